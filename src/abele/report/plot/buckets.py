"""Many members drawn in few columns without losing a peak."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64


def edges_of(count: int, most: int) -> Int64:
    """First members of at most ``most`` buckets of nearly equal size, and one past the last, int64[buckets + 1]."""
    return np.linspace(0, count, min(count, most) + 1).astype(np.int64)


def highest(values: npt.NDArray[Any], most: int) -> tuple[Int64, Int64]:
    """The member of each bucket with the greatest value.

    Args:
        values: Numbers [n].
        most: Buckets at most.

    Returns:
        Members, int64[buckets], and the edges between buckets, int64[buckets + 1].
    """
    edges = edges_of(len(values), most)
    if len(edges) < 2:
        return np.zeros(0, np.int64), np.zeros(1, np.int64)
    if len(edges) == len(values) + 1:
        return np.arange(len(values)), edges
    bucket = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    order = np.lexsort((values, bucket))
    return order[edges[1:] - 1], edges
