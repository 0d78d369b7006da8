"""Elements: a set of element addresses with the way to their host memory, for checks of data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import Edge, Variable
from abele.graph.interval_set import IntervalSet
from abele.graph.intervals import expand
from abele.runtime.memory.arena import Arena


@dataclass(frozen=True, eq=False, slots=True)
class VariablePart:
    """Elements of one variable.

    Attributes:
        variable: The variable.
        index: Numbers of its elements, int64[k], ascending.
        place: Their positions among all elements of the set.
    """

    variable: Variable
    index: Int64
    place: slice

    def values(self, arena: Arena) -> npt.NDArray[Any]:
        """The elements in every replica, [replicas, k]."""
        return arena.images(self.variable).reshape(arena.replicas, -1)[:, self.index]

    def bits(self, arena: Arena) -> npt.NDArray[Any]:
        """The same as unsigned integers."""
        return self.values(arena).view(f"u{self.variable.dtype.bytes}")


@dataclass(frozen=True, eq=False, slots=True)
class Elements:
    """A set of elements.

    Attributes:
        address: Their addresses in the global space, int64[n], ascending.
        parts: The same by variable.
    """

    address: Int64
    parts: tuple[VariablePart, ...]

    @staticmethod
    def of(elements: IntervalSet, arena: Arena) -> Elements:
        """The elements of an interval set."""
        address = expand(elements.begin, elements.end - elements.begin)
        return Elements(address, tuple(_parts(address, arena.variables_in(elements))))


def _parts(address: Int64, variables: list[Variable]) -> Iterator[VariablePart]:
    for variable in variables:
        low, high = np.searchsorted(address, (variable.base, variable.base + variable.size))
        yield VariablePart(variable, address[low:high] - variable.base, slice(int(low), int(high)))


def row_elements(edge: Edge) -> tuple[Int64, Int64]:
    """The elements that each row of an edge is wired to.

    Returns:
        Addresses, row after row and in the order of the field's indices, int64[n]; the row of each, int64[n].
    """
    regions = edge.regions.take(edge.index)
    return expand(regions.begin, regions.length), np.repeat(np.arange(regions.num, dtype=np.int64), regions.sizes)
