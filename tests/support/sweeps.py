"""Sweeps over several parameters: a covering part of their product in plain runs, the rest under ``slow``.

A test with several ``parametrize`` marks is a sweep. Plain runs take any value of each of two axes at least once, and
any two values of each two of three or more axes. For example, of 6 methods × 5 types × 3 sizes about 30 points are
plain and 60 ``slow``; of 6 methods × 2 modes 6 are plain. Sweeps of up to four points stay whole.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import pytest

_WHOLE = 4
"""Points up to which a sweep stays whole."""
Point = tuple[str, ...]


def mark_rest_slow(items: Iterable[pytest.Item]) -> None:
    """Mark as ``slow`` the points of sweeps that plain runs leave out."""
    sweeps: dict[tuple[object, ...], list[tuple[Point, pytest.Item]]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow"):
            continue
        axes = [mark.args[0] for mark in item.iter_markers("parametrize")]
        if len(axes) > 1 and isinstance(item, pytest.Function):
            names = [axis.replace(" ", "").split(",") if isinstance(axis, str) else axis for axis in axes]
            point = tuple(repr([item.callspec.params[name] for name in axis]) for axis in names)
            sweeps[item.path, item.cls, item.originalname].append((point, item))
    for sweep in sweeps.values():
        if len(sweep) > _WHOLE:
            plain = covering([point for point, _ in sweep])
            for number, (_, item) in enumerate(sweep):
                if number not in plain:
                    item.add_marker(pytest.mark.slow)


def covering(points: Sequence[Point]) -> set[int]:
    """Numbers of the points of a cover: the one with most that is missing and least that is there, again and again."""
    strength = min(2, len(points[0]) - 1)
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
