"""Weights that layers begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from abele.arrays import Array

SPREAD = 0.02
"""Standard deviation of weights: they are normal, cut off at two of it."""


def truncated_normal(shape: Sequence[int], dtype: np.dtype[np.generic], spread: float = SPREAD) -> Callable[[], Array]:
    """A function that draws weights by NumPy's own state, so that ``np.random.seed`` makes them again.

    Args:
        shape: Shape of the weights.
        dtype: Type of the weights.
        spread: Standard deviation of the distribution; nothing is further than two of it from zero.
    """

    def draw() -> Array:
        made = np.random.normal(0.0, spread, size=tuple(shape))
        while (outside := np.abs(made) > 2 * spread).any():
            made[outside] = np.random.normal(0.0, spread, size=int(outside.sum()))
        return made.astype(dtype)

    return draw


def together(make: Callable[[], Sequence[Any]], count: int) -> list[Callable[[], Any]]:
    """Functions for one part each of a function's results, for variables that are made of the same weights.

    Args:
        make: Function that makes all parts; it is called once for the n-th calls of all functions.
        count: Number of parts.
    """
    made: list[Sequence[Any]] = []

    def part(number: int) -> Callable[[], Any]:
        taken = 0

        def give() -> Any:
            nonlocal taken
            if len(made) <= taken:
                made.append(make())
            taken += 1
            return made[taken - 1][number]

        return give

    return [part(number) for number in range(count)]


__all__ = ["SPREAD", "together", "truncated_normal"]
