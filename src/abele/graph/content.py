"""Content of a view: blocks of variables where it can, otherwise the address of every element."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from abele.arrays import Int64
from abele.graph.block import StridedBlock
from abele.graph.variable import Variable


class Content(ABC):
    """The elements of a view, without its shape; every operation gives new content and moves no data."""

    __slots__ = ()

    @abstractmethod
    def sliced(self, dim: int, begin: int, end: int) -> Content:
        """Indices ``[begin, end)`` of ``dim``."""

    @abstractmethod
    def reversed(self, dim: int, extent: int) -> Content:
        """``dim``, of ``extent`` indices, backwards."""

    @abstractmethod
    def sampled(self, dim: int, every: int) -> Content:
        """Every ``every``-th index of ``dim``; NotStridedError where that needs too many blocks."""

    @abstractmethod
    def permuted(self, order: Sequence[int]) -> Content:
        """Dimension i of the result is dimension ``order[i]``."""

    @abstractmethod
    def expanded(self, dim: int, extent: int = 1) -> Content:
        """A new dimension before ``dim`` that repeats everything ``extent`` times."""

    @abstractmethod
    def dropped(self, dim: int) -> Content:
        """Without ``dim``, which has one index."""

    def picked(self, dim: int, index: int) -> Content:
        """One index of ``dim``, which goes."""
        return self.sliced(dim, index, index + 1).dropped(dim)

    @abstractmethod
    def shifted(self, dim: int, by: int) -> Content:
        """Moved along ``dim``, as a part of a concatenation."""

    @abstractmethod
    def reshaped(self, old: Sequence[int], new: Sequence[int], most: int) -> Content:
        """The same flat positions in another shape; NotStridedError where that needs over ``most`` blocks."""

    @abstractmethod
    def form(self, number: Callable[[Variable], int]) -> Hashable:
        """Key of the view, with variables by number alone; None where only addresses are known."""

    @abstractmethod
    def with_variables(self, other: Callable[[Variable], Variable], moved: Callable[[Int64], Int64]) -> Content:
        """The same of other variables: ``other`` gives the new variable, ``moved`` the new address."""

    @abstractmethod
    def addresses(self, shape: Sequence[int]) -> Int64:
        """Global address of every element, int64[shape]."""

    @abstractmethod
    def runs(self, shape: Sequence[int]) -> tuple[Int64, Int64]:
        """Global begins and lengths of contiguous runs in flattened order, neighbours not yet joined."""

    @abstractmethod
    def footprint(self) -> tuple[Int64, Int64, bool]:
        """Begins and lengths of the intervals shown, in any order, and whether some are left out as repetitions."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[StridedBlock, ...] | None:
        """All blocks; None where there are only addresses."""

    @property
    @abstractmethod
    def variables(self) -> tuple[Variable, ...] | None:
        """Variables in order of first appearance; None where only the graph knows them."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """Lowest address, and one past the highest; ``(0, 0)`` when empty."""

    @property
    def single_run(self) -> tuple[int, int] | None:
        """Global begin and length where the form of the block alone shows that the view is one interval."""
        return None

    @property
    def resolved(self) -> Content:
        """The content in a form that knows its shape: itself, unless a reshape is pending."""
        return self

    @property
    def is_surely_distinct(self) -> bool:
        """True if the form of the blocks alone shows that no element appears twice."""
        return False

    @property
    def is_cut(self) -> bool:
        """True if the blocks are parts of larger ones, cut by a reshape or a step."""
        return False


class AddressList(Content):
    """The address of every element.

    Args:
        table: int64 of the view's shape.
    """

    __slots__ = ("table",)

    def __init__(self, table: Int64) -> None:
        self.table = table

    def sliced(self, dim: int, begin: int, end: int) -> Content:
        """See :class:`Content`."""
        return AddressList(self.table[(slice(None),) * dim + (slice(begin, end),)])

    def reversed(self, dim: int, extent: int) -> Content:
        """See :class:`Content`."""
        return AddressList(np.flip(self.table, dim))

    def sampled(self, dim: int, every: int) -> Content:
        """See :class:`Content`."""
        return AddressList(self.table[(slice(None),) * dim + (slice(None, None, every),)])

    def permuted(self, order: Sequence[int]) -> Content:
        """See :class:`Content`."""
        return AddressList(self.table.transpose(order))

    def expanded(self, dim: int, extent: int = 1) -> Content:
        """See :class:`Content`."""
        wide = np.expand_dims(self.table, dim)
        return AddressList(np.broadcast_to(wide, (*wide.shape[:dim], extent, *wide.shape[dim + 1 :])))

    def dropped(self, dim: int) -> Content:
        """See :class:`Content`."""
        return AddressList(self.table.squeeze(dim))

    def shifted(self, dim: int, by: int) -> Content:
        """See :class:`Content`."""
        return self

    def reshaped(self, old: Sequence[int], new: Sequence[int], most: int) -> Content:
        """See :class:`Content`."""
        return AddressList(self.table.reshape(tuple(new)))

    def form(self, number: Callable[[Variable], int]) -> Hashable:
        """See :class:`Content`."""
        return None

    def with_variables(self, other: Callable[[Variable], Variable], moved: Callable[[Int64], Int64]) -> Content:
        """See :class:`Content`."""
        return AddressList(moved(self.table.reshape(-1)).reshape(self.table.shape))

    def addresses(self, shape: Sequence[int]) -> Int64:
        """See :class:`Content`."""
        return self.table

    def runs(self, shape: Sequence[int]) -> tuple[Int64, Int64]:
        """See :class:`Content`."""
        flat = self.table.reshape(-1)
        return flat, np.ones_like(flat)

    def footprint(self) -> tuple[Int64, Int64, bool]:
        """See :class:`Content`."""
        return *self.runs(()), False

    @property
    def blocks(self) -> tuple[StridedBlock, ...] | None:
        """See :class:`Content`."""
        return None

    @property
    def variables(self) -> tuple[Variable, ...] | None:
        """See :class:`Content`."""
        return None

    @property
    def bounds(self) -> tuple[int, int]:
        """See :class:`Content`."""
        return (int(self.table.min()), int(self.table.max()) + 1) if self.table.size else (0, 0)
