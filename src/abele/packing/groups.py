"""Packs with the same members, counted together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.packing.packs import Packs

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
