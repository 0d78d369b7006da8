"""Share the units of functions that run side by side among threads, without knowing how many there are.

A leaf's functions lie along one axis, and a thread runs the units that lie on its part of it. Most functions lie over
the whole axis, their units evenly apart: every thread runs some units of each, so that no guess of what functions cost
decides on how much it has to do. What is left are units that do not divide. A function's *offset* says which threads
have one more of them, and offsets are chosen so that together they load threads evenly, over several numbers of threads
at once.

Functions of few heavy units lie before the others, one after the other and as long as they are expected to take: the
thread that runs half of a leaf in one unit then runs nothing else. All functions lay like that before. Where a product
was expected to take half of a leaf and took 60 %, one of two threads waited for a fifth of the leaf.

Example: two functions of 33 units lie over the whole axis. The first of two threads runs 17 units of one and 16 of the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from abele.arrays import Int64
from abele.kernels.code.drivers import UnitPlaces

AXIS = 5040
"""Points of the axis: a multiple of most small numbers, so that each of so many threads has an equal part."""
THREADS = (2, 3, 4, 6, 8, 12, 16)
"""Numbers of threads that are loaded evenly."""
FEW_UNITS, HEAVY_UNIT = 8, 1 / 32
"""Fewer units are few; a unit of more than this part of a leaf is heavy: another thread's part may well be as much."""
OFFSETS = 16
"""Offsets that are tried, evenly apart."""

_POINTS = np.concatenate([np.arange(n + 1) * AXIS // n for n in THREADS])
_BEGINS = np.flatnonzero(_POINTS < AXIS)
_PARTS = np.repeat(THREADS, THREADS)
"""Points where the parts of so many threads meet, those at which one begins, and for how many threads it is one."""


def share_units(functions: Sequence[tuple[int, int]]) -> list[UnitPlaces]:
    """Places on the axis of the units of functions, of so many units and so much cost each."""
    total = sum(cost for _, cost in functions)
    heavy = [n for n, (units, cost) in enumerate(functions) if units < FEW_UNITS and cost > HEAVY_UNIT * units * total]
    found: dict[int, UnitPlaces] = {}
    first, laid = 0, 0
    for number in heavy:
        laid += functions[number][1]
        end = AXIS * laid // total
        found[number], first = UnitPlaces(first, end - first, (end - first) // 2), end
    offsets = (AXIS - first) * np.arange(OFFSETS) // OFFSETS
    loads = np.zeros(len(_PARTS))
    for number in sorted(set(range(len(functions))) - set(heavy), key=lambda n: -functions[n][1] / functions[n][0]):
        units, cost = functions[number]
        places = UnitPlaces(first, AXIS - first)
        before = units_before(places, _POINTS, units, offsets[:, None])
        # Squares of loads are least where they are even; parts of fewer threads are longer.
        after = loads + (before[:, _BEGINS + 1] - before[:, _BEGINS]) * (cost / units)
        best = int(np.argmin((_PARTS * after**2).sum(axis=1)))
        found[number], loads = replace(places, offset=int(offsets[best])), after[best]
    return [found[n] for n in range(len(functions))]


def units_before(places: UnitPlaces, points: Int64, units: int, offsets: Int64) -> Int64:
    """Number of units that lie before points of the axis."""
    return (np.clip(points - places.first, 0, places.span) * units + offsets) // places.span
