"""Results that lie across the lanes, stored in rows: squares of a register tile that are transposed on their way.

Channels lie side by side in what a pool reads, pixels in what it writes. Whichever of them is in the lanes, loads or
stores go lane by lane, 64 elements in 64 cache lines. So a tile of as many points as there are lanes, such as 8 pixels
of 8 channels, is worked out with channels in the lanes, and its 8 vectors are transposed in registers: 24 shuffles
for 8 stores, each of 8 pixels.
"""

from __future__ import annotations

import math

from abele.kernels.nest.loop_nest import LoopNest, Out

MIN_SQUARE = 4
"""Lanes from which on a transposed square beats stores of single elements."""


def is_stored_across(out: Out, lane: str, dim: str) -> bool:
    """True if a square of ``lane`` and ``dim`` can be transposed to be stored along ``dim``."""
    if not lane or out.place is not None or out.guards or out.streams:
        return False
    return abs(out.access.stride(lane)) > 1 and out.access.stride(dim) == 1


def dims_stored_across(nest: LoopNest, lane: str, width: int) -> frozenset[str]:
    """Dims of which a tile may make squares with the lanes, for all stores of a reduction."""
    if not nest.accumulates or width < MIN_SQUARE:
        return frozenset()
    inside = {d for d, n in nest.parallel if d != lane and d not in nest.unit and n >= width}
    return frozenset(d for d in inside if all(is_stored_across(o, lane, d) for o in nest.outs))


def square_cost(width: int) -> float:
    """Vector operations of storing one vector of a square: the store, and its share of the shuffles."""
    return 1.0 + math.log2(width)
