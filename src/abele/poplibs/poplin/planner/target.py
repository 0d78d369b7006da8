"""Target of the planner: its questions to a machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from abele.arrays import Int64
from abele.machine import System
from abele.numerics import ElementType, f16, f32
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.options import DEFAULT, Planning
from abele.poplibs.poplin.vertices.cost import weights_per_unit
from abele.poplibs.poplin.vertices.method import Method
from abele.poplibs.poplin.vertices.slic_cost import slic_takes


@dataclass(frozen=True)
class PlanningTarget:
    """Figures of a machine that the planner reads.

    Attributes:
        name: The machine's name.
        tiles: Tiles to plan for.
        tile_bytes: Memory of one tile.
        exchange_bytes_per_cycle: Bytes that a tile receives per cycle.
        pair_bytes_per_cycle: The same where the other tile of its pair receives the same.
        fragment_cycles: Least cycles to receive one separate piece.
        superstep_cycles: Sync and launch of one superstep.
        memcpy_bytes_per_cycle: Rate of such a copy.
        units: Conv units that work together, and cycles from one position to the next, by names of input and partials
            type.
        load_bytes: Bytes of weights that the conv units load per cycle.
        wide_loads: True if these are 128-bit loads.
    """

    name: str
    tiles: int
    tile_bytes: int
    exchange_bytes_per_cycle: float
    pair_bytes_per_cycle: float
    fragment_cycles: int
    superstep_cycles: int
    memcpy_bytes_per_cycle: int
    units: tuple[tuple[str, str, int, int], ...]
    load_bytes: int
    wide_loads: bool = False

    def conv_units(self, dtype: ElementType, partials: ElementType) -> tuple[int, int]:
        """Conv units for these types, and cycles per position; 0 where the AMP cannot take them."""
        asked = "f8" if dtype.is_quarter else dtype.name, partials.name
        return next(((n, core) for d, p, n, core in self.units if (d, p) == asked), (0, 0))


@lru_cache(maxsize=256)
def target_of(system: System, planning: Planning = DEFAULT) -> PlanningTarget:
    """One IPU of ``system``, or as many of its tiles as may be used: a contraction is not spread over several."""
    ipu = system.ipu
    amp = ipu.amp
    return PlanningTarget(
        name=ipu.name,
        tiles=min(ipu.num_tiles, planning.tiles or ipu.num_tiles),
        tile_bytes=ipu.tile.usable_bytes,
        exchange_bytes_per_cycle=ipu.exchange.bytes_per_cycle,
        pair_bytes_per_cycle=ipu.exchange.pair_bytes_per_cycle,
        fragment_cycles=ipu.exchange.fragment_cycles,
        superstep_cycles=ipu.sync.on_chip_cycles + ipu.launch.compute_set_cycles + ipu.exchange.phase_overhead_cycles,
        memcpy_bytes_per_cycle=ipu.tile.memcpy_bytes_per_cycle,
        units=tuple((mode.input, mode.partials, mode.num_units, mode.core_cycles) for mode in ipu.amp.modes),
        load_bytes=amp.wide_weight_load_bytes_per_cycle if planning.wide_loads else amp.weight_load_bytes_per_cycle,
        wide_loads=planning.wide_loads,
    )


# A bound below every plan of a contraction, from its multiply-accumulates alone.
#
# The fastest vertex at its fastest, on every tile, without exchange or launch. For the matrix units channels count as
# those of whole units: a unit that has no out-channel of its own idles. Ways of doing the work whose bound lies above
# the plan of another need no plan of their own, which leaves the choice as it is and saves most of the planning.
# Source: machine.md §5.14.

_SLIC_RATE = 32
"""Multiply-accumulates of SLIC per cycle: 4 in-channels, 4 positions, 2 chains. Source: machine.md §1.3."""
_VECTOR_RATE = 4
"""The same without the matrix units: a vector of halves per cycle. Source: machine.md §1.3."""
_LEAST_IN_CHANNELS = 4
"""In-channels that a unit takes at least: a load of weights holds up to four kernel rows. Source: machine.md §4.1."""


def least_cycles(problem: Contraction, target: PlanningTarget) -> int:
    """Cycles that no split of ``problem`` over the tiles takes less than."""
    if problem.diagonal:
        # Vertices that take the diagonal alone do a fraction of the multiply-accumulates.
        return 0
    macs = problem.macs
    found = [macs / _VECTOR_RATE]
    units, core = target.conv_units(problem.dtype, problem.partials)
    if units:
        ins = min(_LEAST_IN_CHANNELS, weights_per_unit(problem.dtype))
        whole = _padded(problem.out_channels, units) * _padded(problem.in_channels, ins) * macs
        rate = units * weights_per_unit(problem.dtype) / core
        found.append(whole / (problem.out_channels * problem.in_channels) / rate)
    if problem.rank and problem.dtype == f16 and slic_takes(problem.axes[-1], problem.dtype):
        found.append(macs / _SLIC_RATE)
    return int(min(found) / target.tiles)


def _padded(channels: int, group: int) -> int:
    return -(-channels // group) * group


# Cycles that PopLibs expects for rearranging the sides of a contraction.
#
# PopLibs decides from the kind of a plan alone which of input, weights and output will be written anew: operands are
# created in the order of its first choice, and any other choice pays for a copy. A side that is charged is copied once
# on its tile and exchanged once, as if spread evenly over the tiles that the plan uses. The charge steers the choice
# between ways of doing the work, as it does in PopLibs; the bytes that a program really moves are counted from the
# program.

SIDES = ("input", "weights", "output")
"""Sides of a contraction that can be rearranged."""


def padded_sides(problem: Contraction, method: Method) -> tuple[str, ...]:
    """Sides of a product that are written anew since their channels are padded to whole groups of the matrix units.

    Source: machine.md §4.16.
    """
    if problem.axes or method.family != "amp":
        return ()
    ins = problem.in_channels % weights_per_unit(problem.dtype) > 0
    outs = problem.out_channels % method.out_group > 0
    return tuple(side for side, pads in zip(SIDES, (ins, ins or outs, outs), strict=True) if pads)


def rearranging_cycles(problem: Contraction, side: str, tiles: int, target: PlanningTarget) -> int:
    """Cycles that PopLibs charges for rearranging a side of a contraction on ``tiles``."""
    return int(rearranging_by_tiles(problem, side, np.asarray(tiles), target))


def rearranging_by_tiles(problem: Contraction, side: str, tiles: Int64, target: PlanningTarget) -> Int64:
    """The same for several numbers of tiles, int64[n]. Source: machine.md §4.16."""
    dims = {"input": problem.in_dims, "weights": problem.weight_dims, "output": problem.out_dims}[side]
    channels = problem.out_channels * (problem.in_channels if side == "input" else 1)
    element_bytes = problem.dtype.bytes
    held = -(-prod(problem.extents[dim] for dim in dims) * element_bytes // tiles)
    # Whole vectors move faster: five cycles for four units where the channels are made of them, else for three.
    whole = channels % (2 if problem.dtype == f32 else 4) == 0
    units = (4 if whole else 3) * min(target.memcpy_bytes_per_cycle, element_bytes)
    sent = np.ceil(held / target.exchange_bytes_per_cycle).astype(np.int64)
    return np.asarray(-(-held * 5 // units) + sent, dtype=np.int64)
