"""Nesting of events, from their begins and ends."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64


@dataclass(frozen=True)
class Nesting:
    """Events in order, with the parent of each.

    Attributes:
        order: int64[n], the events by thread, then by when they begin; what encloses an event comes before it.
        depth: int32[n], in that order: how many events of its thread each lies in.
        parent: int64[n], in that order: place of the innermost of these, -1 for none.
        first: int64[threads + 1], place of the first event of each thread.
        num_crossing: Events of threads where some begin in another and end after it, as those of coroutines do. They
            have lanes in place of depths: no two events of one thread and depth overlap.
    """

    order: Int64
    depth: npt.NDArray[np.int32]
    parent: Int64
    first: Int64
    num_crossing: int


def nested(thread: npt.NDArray[np.int32], begin: Int64, duration: Int64, num_threads: int) -> Nesting:
    """Parents and depths of events.

    The depth of an event is the number of those that began before it and have not ended, so it takes two sorts and no
    walk. Where events of a thread cross, that number leaves overlaps, and lanes are dealt out one by one.

    Args:
        thread: int32[n], thread of each event, below ``num_threads``.
        begin: int64[n], begin of each, in ns.
        duration: int64[n], duration of each, in ns. Events that are equal enclose those given before them.
        num_threads: Number of threads.
    """
    size = len(begin)
    end = begin + duration
    # A stable sort of the reversed events puts the later of two equal ones, which ended later, first.
    order = size - 1 - np.lexsort((-end[::-1], begin[::-1], thread[::-1]))
    first = np.searchsorted(thread[order], np.arange(num_threads + 1)).astype(np.int64)
    depth, parent = np.zeros(size, np.int32), np.full(size, -1, np.int64)
    num_crossing = 0
    # Doubled, an event without length still ends after it begins.
    begins = 2 * begin[order]
    ends = np.maximum(2 * end[order], begins + 1)
    for low, high in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        if high - low > 1:
            found, owner, crossing = _of_thread(begins[low:high], ends[low:high])
            depth[low:high] = found
            parent[low:high] = np.where(owner < 0, -1, owner + low)
            num_crossing += crossing
    return Nesting(order, depth, parent, first, num_crossing)


def _of_thread(begin: Int64, end: Int64) -> tuple[Int64, Int64, int]:
    """Depth and parent of events of one thread in order, and how many had to be dealt out to lanes."""
    places = np.arange(len(begin))
    depth = places - np.searchsorted(np.sort(end), begin, side="right")
    parent = _parents(depth)
    crossing = (parent >= 0) & (end[parent] < end)
    if not crossing.any():
        return depth, parent, 0
    stretch = np.cumsum(depth == 0) - 1  # Stretches of time in which something is open throughout.
    starts = np.append(np.flatnonzero(depth == 0), len(depth))
    dealt = 0
    for number in np.unique(stretch[crossing]).tolist():
        low, high = int(starts[number]), int(starts[number + 1])
        lanes, owners = _lanes(begin[low:high].tolist(), end[low:high].tolist())
        depth[low:high] = lanes
        parent[low:high] = np.where(np.array(owners) < 0, -1, np.array(owners) + low)
        dealt += high - low
    return depth, parent, dealt


def _parents(depth: Int64) -> Int64:
    """The last event before each that is one less deep, -1 for events of depth 0."""
    size = len(depth)
    by_depth = np.argsort(depth, kind="stable")
    keys = depth[by_depth] * size + by_depth
    found = np.searchsorted(keys, (depth - 1) * size + np.arange(size)) - 1
    return np.where(depth == 0, -1, by_depth[np.maximum(found, 0)])


def _lanes(begin: list[int], end: list[int]) -> tuple[list[int], list[int]]:
    """The lowest free lane for each event, and the event in the lane below if it encloses it, else -1."""
    lanes, owners = [], []
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    latest: list[int] = []
    for place, (start, stop) in enumerate(zip(begin, end, strict=True)):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane = len(latest)
            latest.append(place)
        latest[lane] = place
        heapq.heappush(busy, (stop, lane))
        below = latest[lane - 1] if lane else -1
        lanes.append(lane)
        owners.append(below if below >= 0 and end[below] >= stop else -1)
    return lanes, owners
