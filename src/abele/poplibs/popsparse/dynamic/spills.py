"""Passes that spilt buckets are expected to take, from the statistics of a uniform random pattern.

A cell's count of blocks is binomial, and a cell beyond the room of its buckets spills. Any spill takes a pass, to the
next cell; a second where that one is full as well, and so on: the longest of N chains of which each goes on with chance
q is 1 + log(N) / log(1 / q) long.

Example: 132 cells whose room is two deviations above the mean: a cell spills with chance 0.023, three of them do; there
is a spill with chance 0.95, and the longest way is 1.4 cells.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Float64, Int64


def expected_passes(room: Float64, cells: Int64) -> Float64:
    """Expected passes.

    Args:
        room: Room of a cell's buckets above its mean count, in standard deviations.
        cells: Cells.
    """
    beyond = _upper_tail(room)
    spills = cells * beyond
    any_spill = -np.expm1(-spills)
    # The next cell has to hold the spill besides its own: it is full twice as often as it spills itself.
    onward = np.clip(beyond * 2, 1e-6, 0.9)
    longest = 1 + np.log(np.maximum(spills, 1.0)) / -np.log(onward)
    return np.asarray(any_spill * longest)


def deviations(room: Float64, mean: Float64, places: Float64) -> Float64:
    """Room above the mean count of a binomial variable, in deviations of a normal one with the same upper tail.

    The signed root of the deviance; small counts have longer tails than a normal variable of their variance. Source:
    McCullagh and Nelder, Generalized Linear Models, 2.4.

    Args:
        room: Largest count that fits.
        mean: Mean count.
        places: Places, each of which counts with chance mean / places.
    """
    mean = np.maximum(mean, 1e-9)
    at = np.clip(room + 0.5, 1e-6, np.maximum(places - 1e-6, 1e-6))
    free, empty = np.maximum(places - at, 1e-9), np.maximum(places - mean, 1e-9)
    deviance = 2 * (at * np.log(at / mean) + free * np.log(free / empty))
    found = np.sign(at - mean) * np.sqrt(np.maximum(deviance, 0))
    return np.asarray(np.where(room >= places, 40.0, found))


def _upper_tail(z: Float64) -> Float64:
    """Chance that a normal variable is above ``z``; within 8e-8 absolute.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17.
    """
    positive = np.abs(z)
    t = 1 / (1 + 0.2316419 * positive)
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-positive * positive / 2) / np.sqrt(2 * np.pi) * series
    return np.asarray(np.where(z >= 0, tail, 1 - tail))
