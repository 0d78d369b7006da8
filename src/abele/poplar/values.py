"""Poplar's small value classes: intervals whose ends are asked by calls, and plain sequences for its references."""

from __future__ import annotations

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
