"""Shares: which units of a leaf each thread runs, where equal numbers of them are unequal work.

Vertices run in shares of consecutive units, fixed before a run, because a queue would cost an atomic operation per unit
and shares keep each thread on memory that it touched in the last round. Each bound is put where the running sum of
costs is nearest to its part of the total, so no share is off by more than one unit at either end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64

_WORTHWHILE = 1.05
"""Work of the busiest thread over the mean from which on shares are cut by cost."""


def cost_cuts(costs: npt.NDArray[np.generic], threads: int) -> Int64 | None:
    """Units at which threads' shares begin and end so that all have about the same to do, int64[threads + 1].

    Args:
        costs: Work of each unit, in any measure, number[units].
        threads: Host threads.

    Returns:
        Bounds; None where equal numbers of units are about as good.
    """
    num = len(costs)
    if threads == 1 or num < 2:
        return None
    done = np.concatenate([[0.0], np.cumsum(costs, dtype=np.float64)])
    equal = even_cuts(num, threads)
    mean = done[-1] / threads
    if np.diff(done[equal]).max() <= _WORTHWHILE * mean:
        return None
    targets = np.arange(threads + 1) * mean
    # Of the two units around each target, the one whose sum is nearer.
    after = np.searchsorted(done, targets)
    before = np.maximum(after - 1, 0)
    nearer = targets - done[before] < done[np.minimum(after, num)] - targets
    cuts = np.where(nearer, before, np.minimum(after, num))
    cuts[0], cuts[-1] = 0, num
    return np.ascontiguousarray(cuts, dtype=np.int64)


def even_cuts(num: int, threads: int) -> Int64:
    """Bounds of shares of equal numbers of units, int64[threads + 1], as the virtual machine has them."""
    return -(-np.arange(threads + 1, dtype=np.int64) * num // threads)
