"""Reshape that is carried out on first use: views of many pieces often take their old shape again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from abele.arrays import Int64
from abele.graph.block import NotStridedError, StridedBlock
from abele.graph.content import AddressList, Content
from abele.graph.variable import Variable


class Reshaped(Content):
    """Content in another shape; questions that do not depend on the shape go to the old content.

    Args:
        base: The content as it was.
        old: Its shape.
        new: The shape now, of as many elements.
        most: Blocks at most; where there would be more, the address of every element is listed.
    """

    __slots__ = ("_resolved", "base", "most", "new", "old")

    def __init__(self, base: Content, old: Sequence[int], new: Sequence[int], most: int) -> None:
        self.base, self.old, self.new, self.most = base, tuple(old), tuple(new), most
        self._resolved: Content | None = None

    @property
    def resolved(self) -> Content:
        """See :class:`Content`."""
        if self._resolved is None:
            try:
                self._resolved = self.base.reshaped(self.old, self.new, self.most)
            except NotStridedError:
                self._resolved = AddressList(self.base.addresses(self.old).reshape(self.new))
        return self._resolved

    def sliced(self, dim: int, begin: int, end: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.sliced(dim, begin, end)

    def reversed(self, dim: int, extent: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.reversed(dim, extent)

    def sampled(self, dim: int, every: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.sampled(dim, every)

    def permuted(self, order: Sequence[int]) -> Content:
        """See :class:`Content`."""
        return self.resolved.permuted(order)

    def expanded(self, dim: int, extent: int = 1) -> Content:
        """See :class:`Content`."""
        return self.resolved.expanded(dim, extent)

    def dropped(self, dim: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.dropped(dim)

    def shifted(self, dim: int, by: int) -> Content:
        """See :class:`Content`."""
        return self.resolved.shifted(dim, by)

    def reshaped(self, old: Sequence[int], new: Sequence[int], most: int) -> Content:
        """See :class:`Content`."""
        return self.base if tuple(new) == self.old else Reshaped(self.base, self.old, new, most)

    def form(self, number: Callable[[Variable], int]) -> Hashable:
        """See :class:`Content`."""
        base = self.base.form(number)
        return None if base is None else (base, self.old, self.new, self.most)

    def with_variables(self, other: Callable[[Variable], Variable], moved: Callable[[Int64], Int64]) -> Content:
        """See :class:`Content`."""
        return Reshaped(self.base.with_variables(other, moved), self.old, self.new, self.most)

    def addresses(self, shape: Sequence[int]) -> Int64:
        """See :class:`Content`."""
        return self.base.addresses(self.old).reshape(self.new)

    def runs(self, shape: Sequence[int]) -> tuple[Int64, Int64]:
        """See :class:`Content`."""
        return self.base.runs(self.old)

    def footprint(self) -> tuple[Int64, Int64, bool]:
        """See :class:`Content`."""
        return self.base.footprint()

    @property
    def blocks(self) -> tuple[StridedBlock, ...] | None:
        """See :class:`Content`."""
        return self.resolved.blocks

    @property
    def variables(self) -> tuple[Variable, ...] | None:
        """See :class:`Content`."""
        return self.base.variables

    @property
    def bounds(self) -> tuple[int, int]:
        """See :class:`Content`."""
        return self.base.bounds

    @property
    def is_surely_distinct(self) -> bool:
        """See :class:`Content`."""
        return self.base.is_surely_distinct

    @property
    def is_cut(self) -> bool:
        """See :class:`Content`."""
        return self.resolved.is_cut
