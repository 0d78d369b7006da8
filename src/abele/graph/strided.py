"""The simplest views: one strided block of one variable."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph.block import Strides
from abele.graph.variable import Variable


@dataclass(frozen=True, slots=True)
class Strided:
    """A view that is one strided block of one variable.

    Attributes:
        variable: The storage.
        offset: Element of the variable that index (0, …, 0) reads.
        factors: Per dimension of the view, ``(extent, stride)`` pairs in elements, outermost first.
    """

    variable: Variable
    offset: int
    factors: tuple[Strides, ...]
