"""Cycles that PopLibs expects for rearranging the sides of a contraction.

PopLibs decides from the kind of a plan alone which of input, weights and output will be written anew: operands are
created in the order of its first choice, and any other choice pays for a copy. A side that is charged is copied once on
its tile and exchanged once, as if spread evenly over the tiles that the plan uses. The charge steers the choice between
ways of doing the work, as it does in PopLibs; the bytes that a program really moves are counted from the program.
"""

from __future__ import annotations

from math import prod

import numpy as np

from abele.arrays import Int64
from abele.numerics import f32
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.vertices.cost import weights_per_unit
from abele.poplibs.poplin.vertices.method import Method

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
