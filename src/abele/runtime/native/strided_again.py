"""Finding a strided form again for views that lost theirs.

A reshape may cut across the factors of a dimension: 200 elements that lie as 25 groups of 8, seen as 8 x 25. Such a
view only has a list of addresses. Joined with its neighbours, the dimension is strided again (here: 200 = 25 x 8).

Joins of neighbouring dimensions are tried, fewest first, until the table of addresses is a sum of one term per
dimension and each term is nested strides. The first line of the table along each dimension gives the terms; that their
sum is the whole table is then checked element by element, so a wrong guess cannot pass. With up to six dimensions
there are at most 32 joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.graph import Tensor, Variable

Factors = tuple[tuple[int, int], ...]

_MOST_DIMS = 6


@dataclass(frozen=True, slots=True)
class Regrouped:
    """A view with some neighbouring dimensions joined, as one strided block.

    Attributes:
        variable: Its storage.
        offset: Element of the variable at which it begins.
        shape: Extents of the joined dimensions.
        factors: Extents and strides of each, outermost first.
    """

    variable: Variable
    offset: int
    shape: tuple[int, ...]
    factors: tuple[Factors, ...]


def regrouped(tensor: Tensor) -> Regrouped | None:
    """A view as one strided block of fewer dimensions, or None when it is none; most dimensions first."""
    if len(tensor.variables) != 1 or not 0 < tensor.ndim <= _MOST_DIMS:
        return None
    (variable,) = tensor.variables
    table = tensor.addresses() - variable.base
    offset = int(table.reshape(-1)[0])
    for shape in _joined_shapes(tensor.shape):
        factors = _separated(table.reshape(shape) - offset)
        if factors is not None:
            return Regrouped(variable, offset, shape, factors)
    return None


def _joined_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Shapes with neighbouring dimensions joined, those with most dimensions first."""
    level = {shape}
    while level:
        yield from sorted(level)
        # One more join on each level; a set, since several orders of joins give the same shape.
        level = {(*s[:d], s[d] * s[d + 1], *s[d + 2 :]) for s in level for d in range(len(s) - 1)}


def _separated(table: Int64) -> tuple[Factors, ...] | None:
    """Factors of every dimension, if the offset of an element is a sum of one strided term per dimension."""
    lines = [table[tuple(slice(None) if e == d else 0 for e in range(table.ndim))] for d in range(table.ndim)]
    factors = [_line_factors(line) for line in lines]
    if any(f is None for f in factors):
        return None
    total = sum(line.reshape((-1,) + (1,) * (table.ndim - d - 1)) for d, line in enumerate(lines))
    return tuple(f for f in factors if f is not None) if np.array_equal(total, table) else None


def _line_factors(line: Int64) -> Factors | None:
    """Extents and strides that list a line of offsets, outermost first."""
    found: list[tuple[int, int]] = []
    while len(line) > 1:
        steps = np.diff(line)
        # The first change of step ends the innermost factor; every other row must then look like the first.
        breaks = np.flatnonzero(steps != steps[0])
        extent = int(breaks[0]) + 1 if len(breaks) else len(line)
        if len(line) % extent:
            return None
        rows = line.reshape(-1, extent)
        if (rows - rows[:, :1] != rows[0] - rows[0, 0]).any():
            return None
        found.append((extent, int(steps[0])))
        line = rows[:, 0]
    return tuple(reversed(found)) or ((1, 0),)
