"""Variables: storage in the graph, each element on one tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.graph.debug import DebugRecord
from abele.graph.mapping import TileMapping
from abele.numerics import ElementType


class Shaped:
    """Anything with an element type and a shape: its number of elements, and their bytes."""

    __slots__ = ()

    dtype: ElementType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements: of a tensor, repeated ones each time; of a stream, those of one copy."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.bytes


@dataclass(eq=False, slots=True)
class Variable(Shaped):
    """An array of elements of one type that lives in tile memory.

    Attributes:
        id: Position among the variables of its graph.
        name: The name it was made under, scopes included.
        dtype: Element type.
        shape: Dimensions; storage is row-major.
        base: Address of the first element in the graph's global element space.
        kind: ``variable``, ``constant``, or ``replica_index`` for the constant that holds the number of the replica.
        mapping: Tile of each element.
        initial: Contents at load, or None when undefined.
        debug: Source line at which the user made it.
    """

    id: int
    name: str
    dtype: ElementType
    shape: tuple[int, ...]
    base: int
    kind: str
    mapping: TileMapping
    initial: npt.NDArray[Any] | None
    debug: DebugRecord

    @property
    def is_constant(self) -> bool:
        """True if the variable is read-only."""
        return self.kind != "variable"

    def coordinates(self, element: int) -> tuple[int, ...]:
        """Index of a flat element in the variable's shape."""
        return tuple(int(i) for i in np.unravel_index(element, self.shape)) if self.shape else ()

    def __repr__(self) -> str:
        return f"{self.kind} {self.name!r} {self.dtype}{list(self.shape)}"
