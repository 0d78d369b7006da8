"""Sweeps over parameters: plain runs take a covering part, slow runs a sample that their commit chooses.

A test with several ``parametrize`` marks is a sweep. Plain runs take any value of each axis at least once, and any two
values of each two of three or more axes where eight points have them all. For example, of 2 × 2 × 2 × 2 values about 6
points are plain; of 6 methods × 5 types × 3 sizes 6 are. Sweeps of up to four points stay whole, and so does one mark
with the product of several axes. The rest is ``slow``: a slow run takes one in eight of it, chosen by the commit, and
``make sweeps`` all.
A failed run names its sample:
``SWEEP='8feff850fe6c' make slow`` takes it again.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import subprocess
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")
Point = tuple[str, ...]

ALL = "all"
_WHOLE = 4
"""Points up to which a sweep stays whole."""
_PAIRS = 8
"""Points up to which plain runs have any two values of each two axes."""
_ONE_IN = 8
"""Points of the rest of a sweep for each one that a slow run takes."""


@functools.cache
def seed() -> str:
    """Seed of the samples: ``SWEEP`` in the environment, else the commit, else a word."""
    return os.environ.get("SWEEP") or _commit() or "no commit"


def _commit() -> str:
    try:
        command, folder = ["git", "rev-parse", "--short=12", "HEAD"], Path(__file__).parent
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def sampled(items: Sequence[T], count: int, *, by: str = "") -> list[T]:
    """Some of the items, in their order; all of them for the seed ``all``.

    Args:
        items: The whole sweep.
        count: Items of a sample.
        by: The seed, if not that of this run.
    """
    seeded = by or seed()
    if seeded == ALL or count >= len(items):
        return list(items)
    places = random.Random(seeded).sample(range(len(items)), count)
    return [items[place] for place in sorted(places)]


def rounds(all_of_them: int, count: int) -> int:
    """Rounds of a loop: a few, or all of them for the seed ``all``."""
    return all_of_them if seed() == ALL else count


def mark_rest_slow(items: Iterable[pytest.Item]) -> None:
    """Mark as ``slow`` and ``rest`` the points of sweeps that plain runs leave out."""
    sweeps: dict[tuple[object, ...], list[tuple[Point, pytest.Item]]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow"):
            continue
        axes = [mark.args[0] for mark in item.iter_markers("parametrize")]
        if len(axes) > 1 and isinstance(item, pytest.Function):
            names = [axis.replace(" ", "").split(",") if isinstance(axis, str) else axis for axis in axes]
            point = tuple(repr([item.callspec.params[name] for name in axis]) for axis in names)
            sweeps[item.path, item.cls, item.originalname].append((point, item))
    for points in sweeps.values():
        if len(points) > _WHOLE:
            plain = covering([point for point, _ in points])
            for number, (_, item) in enumerate(points):
                if number not in plain:
                    item.add_marker(pytest.mark.slow)
                    item.add_marker(pytest.mark.rest)


def is_left_out(item: pytest.Item, *, by: str = "") -> bool:
    """True for a point of the rest of a sweep that is not in the sample of a seed."""
    seeded = by or seed()
    if seeded == ALL or item.get_closest_marker("rest") is None:
        return False
    return zlib.crc32(f"{seeded} {item.nodeid}".encode()) % _ONE_IN != 0


def covering(points: Sequence[Point]) -> set[int]:
    """Numbers of the points of a cover of all pairs, or of all values where pairs take too many."""
    pairs = _covering(points, min(2, len(points[0]) - 1))
    return pairs if len(pairs) <= _PAIRS else _covering(points, 1)


def _covering(points: Sequence[Point], strength: int) -> set[int]:
    """Again and again the point with most missing combinations of so many values, and least used values."""
    axes = list(itertools.combinations(range(len(points[0])), strength))
    held = [{(chosen, tuple(point[a] for a in chosen)) for chosen in axes} for point in points]
    missing = set().union(*held)
    used: Counter[tuple[int, str]] = Counter()
    plain: set[int] = set()
    while missing:
        best = max(
            range(len(points)), key=lambda n: (len(held[n] & missing), -sum(used[v] for v in enumerate(points[n])))
        )
        missing -= held[best]
        used.update(enumerate(points[best]))
        plain.add(best)
    return plain
