"""Target of the planner: its questions to a machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from abele.machine import System
from abele.numerics import ElementType
from abele.poplibs.poplin.options import DEFAULT, Planning


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
