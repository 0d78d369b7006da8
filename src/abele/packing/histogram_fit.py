"""Packing a histogram longest first: into the emptiest pack (SPFHP) or into the fullest (LPFHP).

Packs with the same members are one group with a count, so that the work depends on how many lengths there are and not
on how many items. Groups are kept by the room that is left in them. An item goes into a group whose room it fits: for
SPFHP the one with the most room, for LPFHP the one with the least, which is best-fit decreasing. Of groups with the
same room the latest is taken. LPFHP puts a length into a pack as often as it fits at once.

The published scripts try every room from the length to the capacity; here rooms in use lie in a sorted list and the
next is found by bisection, so that a capacity of a million costs no more than one of 512.

Source: Krell, Kosec, Perez, Fitzgibbon, "Efficient sequence packing without cross-contamination", arXiv 2107.02027.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from abele.arrays import Int64
from abele.packing.packs import Packs

# Packs with the same members, counted together.

Runs = tuple[tuple[int, int], ...]
"""Members of a pack: a kind and how often it occurs, kind by kind."""


@dataclass(frozen=True)
class GroupOfPacks:
    """Packs with the same members.

    Attributes:
        runs: The members.
        depth: Number of items in a pack.
        count: Packs.
    """

    runs: Runs
    depth: int
    count: int


def strategies_of(groups: Iterable[GroupOfPacks]) -> tuple[Packs, Int64]:
    """Strategies and how often each is used: groups with the same members joined, the most used first."""
    counts: Counter[Runs] = Counter()
    for group in groups:
        counts[_joined(group.runs)] += group.count
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    kinds = np.array([kind for runs, _ in ranked for kind, _ in runs], np.int64)
    times = np.array([times for runs, _ in ranked for _, times in runs], np.int64)
    depths = np.array([sum(times for _, times in runs) for runs, _ in ranked], np.int64)
    strategies = Packs(np.repeat(kinds, times), np.concatenate(([0], np.cumsum(depths))))
    return strategies, np.array([count for _, count in ranked], np.int64)


def _joined(runs: Runs) -> Runs:
    """Runs with each kind once, the largest kind first."""
    times: Counter[int] = Counter()
    for kind, count in runs:
        times[kind] += count
    return tuple(sorted(((kind, count) for kind, count in times.items() if count), reverse=True))


def runs_of(members: Iterable[int]) -> Runs:
    """Members one by one as kinds and how often each occurs."""
    return tuple(Counter(members).items())


def num_packs(groups: Iterable[GroupOfPacks]) -> int:
    """Packs of all groups."""
    return sum(group.count for group in groups)


def with_kinds(groups: Iterable[GroupOfPacks], lengths: Sequence[int]) -> list[GroupOfPacks]:
    """Groups of packs with lengths replaced by kinds; members of unknown lengths are left out."""
    kind_of = {length: kind for kind, length in enumerate(lengths)}
    found = []
    for group in groups:
        runs = tuple((kind_of[length], times) for length, times in group.runs if length in kind_of)
        if runs:
            found.append(GroupOfPacks(runs, sum(times for _, times in runs), group.count))
    return found


@dataclass
class _OpenGroups:
    """Groups that have room left, by room; those that have none, or may hold no more, are done."""

    depth: int
    by_room: dict[int, list[GroupOfPacks]] = field(default_factory=dict)
    rooms: list[int] = field(default_factory=list)
    done: list[GroupOfPacks] = field(default_factory=list)

    def add(self, room: int, group: GroupOfPacks) -> None:
        """Put a group where its room is, or away."""
        if room == 0 or group.depth == self.depth:
            self.done.append(group)
            return
        if room not in self.by_room:
            self.by_room[room] = []
            insort(self.rooms, room)
        self.by_room[room].append(group)

    def take(self, room: int) -> GroupOfPacks:
        """The latest group with this room."""
        groups = self.by_room[room]
        group = groups.pop()
        if not groups:
            del self.by_room[room]
            del self.rooms[bisect_left(self.rooms, room)]
        return group

    def all(self) -> list[GroupOfPacks]:
        """All groups, done or not."""
        return self.done + [group for room in self.rooms for group in self.by_room[room]]


def shortest_pack_first(lengths: Sequence[int], counts: Sequence[int], capacity: int, depth: int) -> list[GroupOfPacks]:
    """SPFHP: each item into the pack with the most room.

    Args:
        lengths: Ascending lengths, each at most ``capacity``.
        counts: Items of each length.
        capacity: Size that a pack holds.
        depth: The most items of a pack.
    """
    open_groups = _OpenGroups(depth)
    for kind in range(len(lengths) - 1, -1, -1):
        length, left = lengths[kind], counts[kind]
        # Groups with less room than the one that was looked at last: one that was made for this length is tried in its
        # turn, as it is only made where more room was.
        below = len(open_groups.rooms)
        while left and below and open_groups.rooms[below - 1] >= length:
            room = open_groups.rooms[below - 1]
            left = _put(open_groups, room, (kind, 1, length), left)
            below = bisect_left(open_groups.rooms, room + 1)
        if left:
            open_groups.add(capacity - length, GroupOfPacks(((kind, 1),), 1, left))
    return open_groups.all()


def longest_pack_first(
    lengths: Sequence[int],
    counts: Sequence[int],
    capacity: int,
    depth: int,
    open_packs: Sequence[tuple[int, GroupOfPacks]] = (),
) -> list[GroupOfPacks]:
    """LPFHP: each item into the pack with the least room that it fits.

    Args:
        lengths: Ascending lengths, each at most ``capacity``.
        counts: Items of each length.
        capacity: Size that a pack holds.
        depth: The most items of a pack.
        open_packs: Packs that are there before, with the room that is left in them.
    """
    open_groups = _OpenGroups(depth)
    for room, group in open_packs:
        open_groups.add(room, group)
    for kind in range(len(lengths) - 1, -1, -1):
        length, left = lengths[kind], counts[kind]
        while left:
            place = bisect_left(open_groups.rooms, length)
            if place == len(open_groups.rooms):
                break
            room = open_groups.rooms[place]
            times = min(room // length, depth - open_groups.by_room[room][-1].depth, left)
            left = _put(open_groups, room, (kind, times, length), left)
        while left:
            times = min(capacity // length, depth, left)
            packs = left // times
            open_groups.add(capacity - times * length, GroupOfPacks(((kind, times),), times, packs))
            left -= packs * times
    return open_groups.all()


def _put(open_groups: _OpenGroups, room: int, item: tuple[int, int, int], left: int) -> int:
    """Put an item ``times`` over into packs of the latest group with this room; items that are left then."""
    kind, times, length = item
    group = open_groups.take(room)
    packs = min(group.count, left // times)
    if packs < group.count:
        open_groups.add(room, GroupOfPacks(group.runs, group.depth, group.count - packs))
    filled = GroupOfPacks((*group.runs, (kind, times)), group.depth + times, packs)
    open_groups.add(room - times * length, filled)
    return left - packs * times
