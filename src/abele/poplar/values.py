"""Poplar's small value classes: intervals whose ends are asked by calls, layouts, sequences for its references."""

from __future__ import annotations

from abele.codelet import layouts
from abele.graph import intervals


class _Asked(int):
    """A number that may also be called, as ``interval.begin()`` is in C++."""

    __slots__ = ()

    def __call__(self) -> int:
        return int(self)


class Interval(intervals.Interval):
    """A half-open range of elements, ``[begin, end)``; ``begin``, ``end`` and ``size`` are attributes and calls."""

    __slots__ = ()

    def __new__(cls, begin: int = 0, end: int = 0) -> Interval:
        """The range from ``begin`` up to, not including, ``end``."""
        return super().__new__(cls, _Asked(begin), _Asked(end))

    @property
    def size(self) -> _Asked:
        """Number of elements."""
        return _Asked(self[1] - self[0])


ArrayRef = list
"""Poplar's view of an array: any sequence does."""
StringRef = str
"""Poplar's view of text."""


class VectorLayout:
    """How a vertex describes a vector: the second argument of ``Vector[type, layout]``."""

    SPAN = layouts.SPAN
    SHORT_SPAN = layouts.SHORT_SPAN
    ONE_PTR = layouts.ONE_PTR
    COMPACT_PTR = layouts.COMPACT_PTR
    SCALED_PTR32 = layouts.SCALED_PTR32
    SCALED_PTR64 = layouts.SCALED_PTR64
    SCALED_PTR128 = layouts.SCALED_PTR128


class VectorListLayout:
    """How a vertex describes a list of vectors."""

    DELTAN = layouts.DELTAN
    DELTANELEMENTS = layouts.DELTANELEMENTS
