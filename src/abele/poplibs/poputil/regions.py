"""Regions of vertices from ranges of a flattened view, all at once."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.graph import Regions, Tensor


def count_up(counts: Int64) -> tuple[Int64, Int64]:
    """For each of ``counts`` consecutive numbers 0, 1, …: the entry it belongs to, and the number.

    >>> entry, number = count_up(np.array([2, 0, 3]))
    >>> entry.tolist(), number.tolist()
    ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    """
    entry = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    ends = np.cumsum(counts)
    return entry, np.arange(len(entry), dtype=np.int64) - (ends - counts)[entry]


def flat_regions(
    tensor: Tensor, begin: Int64, length: Int64, region: Int64 | None = None, num: int | None = None
) -> Regions:
    """Regions of ``tensor`` made of ranges of its flattened elements.

    Args:
        tensor: The view.
        begin: First element of each range in the flattened view, int64[n].
        length: Elements of each range, int64[n].
        region: Region of each range, int64[n], non-decreasing; by default one region a range.
        num: Number of regions; by default the number of ranges.
    """
    address, size = tensor.intervals()
    if len(address) == 1 and region is None and bool((length > 0).all()):
        return Regions(np.arange(len(begin) + 1, dtype=np.int64), address[0] + begin, length, tensor)
    if region is None and num is None and len(address) > 1 and int(length.sum()) >= _REPEATED * tensor.size:
        # Ranges that many vertices read are looked up once: a mask that every row of scores is added to, say.
        ranges, each = np.unique(np.stack([begin, length]), axis=1, return_inverse=True)
        if ranges.shape[1] < len(begin):
            return flat_regions(tensor, ranges[0], ranges[1]).take(each.reshape(-1))
    region = np.arange(len(begin), dtype=np.int64) if region is None else region
    num = len(begin) if num is None else num
    if len(address) == 1:
        return Regions.from_intervals(tensor, region, address[0] + begin, length, num)
    end_of_run = np.cumsum(size)
    end = begin + length
    first = np.searchsorted(end_of_run, begin, side="right")
    last = np.searchsorted(end_of_run, end, side="left")
    counts = np.where(length > 0, last - first + 1, 0)
    stop = np.cumsum(counts)
    run = np.repeat(first - (stop - counts), counts) + np.arange(int(counts.sum()), dtype=np.int64)
    low, pieces = address[run], size[run]
    # Whole runs, but for what lies before the begin of a range in its first one, and behind its end in its last.
    some = counts > 0
    head, tail, begin_run, end_run = (stop - counts)[some], stop[some] - 1, first[some], last[some]
    before = begin[some] - (end_of_run[begin_run] - size[begin_run])
    low[head] += before
    pieces[head] -= before
    pieces[tail] -= end_of_run[end_run] - end[some]
    return Regions.from_intervals(tensor, np.repeat(region, counts), low, pieces, num)


_REPEATED = 4
"""Least times that ranges cover a view for equal ones to be looked for. Chosen."""


def split_evenly(total: Int64, parts: Int64, grain: Int64 | int = 1) -> tuple[Int64, Int64, Int64]:
    """Cut ranges [0, total) into equal parts of whole grains.

    Args:
        total: Elements of each range, int64[n].
        parts: Parts of each, int64[n]; fewer where there are not so many grains.
        grain: Parts are multiples of this, but for the last; one for all ranges, or int64[n].

    Returns:
        Range, begin and length of each part, int64[k] each, in order; empty parts are left out.
    """
    each = np.broadcast_to(grain, total.shape)
    grains = -(-total // each)
    entry, number = count_up(np.minimum(parts, grains))
    count = np.minimum(parts, grains)[entry]
    low = number * grains[entry] // count * each[entry]
    high = np.minimum((number + 1) * grains[entry] // count * each[entry], total[entry])
    return entry, low, high - low
