"""Views made of other views: flatten, split, repeat, roll and their like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from abele.errors import TensorError, TensorIndexError
from abele.graph.block_list import BlockList
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.clone import TensorCloneMethod
    from abele.graph.tensor import Tensor


_FEW_COPIES = 64
"""Copies of a view of many pieces that are joined; more are one piece with a stride of 0."""


class TensorViews:
    """Mix-in of :class:`Tensor`: no operation here moves data."""

    __slots__ = ()

    @property
    def T(self: Tensor) -> Tensor:  # type: ignore[misc]
        """The view with all dimensions in reverse order."""
        return self.transpose()

    def flatten(self: Tensor, first: int = 0, last: int | None = None) -> Tensor:  # type: ignore[misc]
        """The view with dimensions ``[first, last)`` joined into one, in row-major order.

        Raises:
            TensorIndexError: There are no such dimensions.
        """
        last = self.ndim if last is None else last
        self._check_dims(first, last)
        return self.reshape((*self.shape[:first], math.prod(self.shape[first:last]), *self.shape[last:]))

    def reshape_partial(self: Tensor, first: int, last: int, shape: Sequence[int]) -> Tensor:  # type: ignore[misc]
        """The view with dimensions ``[first, last)`` replaced by ``shape``, which holds as many indices.

        Raises:
            TensorIndexError: There are no such dimensions.
            TensorError: The number of indices differs.
        """
        self._check_dims(first, last)
        return self.reshape((*self.shape[:first], *shape, *self.shape[last:]))

    def _check_dims(self: Tensor, first: int, last: int) -> None:  # type: ignore[misc]
        if not 0 <= first <= last <= self.ndim:
            raise TensorIndexError(f"{self!r} has {counted(self.ndim, 'dimension')}, not [{first}, {last})")

    def moveaxis(self: Tensor, source: int, destination: int) -> Tensor:  # type: ignore[misc]
        """The view with one dimension moved to another position."""
        order = [d for d in range(self.ndim) if d != self._dim(source)]
        order.insert(self._dim(destination), self._dim(source))
        return self.transpose(order)

    def dim_roll(self: Tensor, source: int, destination: int = 0) -> Tensor:  # type: ignore[misc]
        """The view with one dimension moved, by default to the front: :meth:`moveaxis` in Poplar's words."""
        return self.moveaxis(source, destination)

    def dim_shuffle_partial(  # type: ignore[misc]
        self: Tensor, sources: Sequence[int], destinations: Sequence[int]
    ) -> Tensor:
        """The view with dimension ``sources[i]`` at ``destinations[i]``; the others keep their order.

        Raises:
            TensorIndexError: A dimension is not there, or appears twice.
        """
        moves = {self._dim(d): self._dim(s) for s, d in zip(sources, destinations, strict=False)}
        if not len(sources) == len(destinations) == len(moves) == len(set(moves.values())):
            raise TensorIndexError(f"cannot move dimensions {list(sources)} of {self!r} to {list(destinations)}")
        rest = iter([d for d in range(self.ndim) if d not in moves.values()])
        return self.transpose([moves[d] if d in moves else next(rest) for d in range(self.ndim)])

    def broadcast(self: Tensor, count: int, dim: int = 0) -> Tensor:  # type: ignore[misc]
        """The view repeated ``count`` times along ``dim`` as a whole (0 1 2 0 1 2); aliasing, so not writable.

        Raises:
            TensorError: ``count`` is negative.
        """
        dim = self._dim(dim)
        self._check_times(count, dim)
        if 0 < count <= _FEW_COPIES and self.ndim > 1 and not isinstance(self.content, BlockList):
            from abele.graph.tensor import concat

            return concat([self] * count, dim)
        wide = self.expand_dims(dim).broadcast_to((*self.shape[:dim], count, *self.shape[dim:]))
        return wide.flatten(dim, dim + 2)

    def repeat(self: Tensor, count: int, dim: int = 0) -> Tensor:  # type: ignore[misc]
        """The view with each index of ``dim`` repeated ``count`` times (0 0 1 1 2 2); aliasing, so not writable.

        Raises:
            TensorError: ``count`` is negative.
        """
        dim = self._dim(dim)
        self._check_times(count, dim)
        wide = self.expand_dims(dim + 1).broadcast_to((*self.shape[: dim + 1], count, *self.shape[dim + 1 :]))
        return wide.flatten(dim, dim + 2)

    def _check_times(self: Tensor, count: int, dim: int) -> None:  # type: ignore[misc]
        if count < 0:
            raise TensorError(f"cannot repeat dimension {dim} of {self!r} {counted(count, 'time')}")

    def append(self: Tensor, other: Tensor, dim: int = 0) -> Tensor:  # type: ignore[misc]
        """The view with ``other`` after it along ``dim``; one dimension less counts as one index."""
        from abele.graph.tensor import concat

        return concat([self, other.expand_dims(dim) if other.ndim == self.ndim - 1 else other], dim)

    def split(self: Tensor, parts: int, dim: int = 0) -> list[Tensor]:  # type: ignore[misc]
        """``parts`` views of equal size along ``dim``.

        Raises:
            TensorError: The dimension does not divide.
        """
        extent = self.shape[self._dim(dim)]
        if parts <= 0 or extent % parts:
            raise TensorError(f"cannot split dimension {dim} of {self!r} in {parts} equal parts")
        step = extent // parts
        return [self.slice(i * step, (i + 1) * step, dim) for i in range(parts)]

    def clone(  # type: ignore[misc]
        self: Tensor, dtype: Any = None, name: str | None = None, method: TensorCloneMethod | None = None
    ) -> Tensor:
        """A view of a new variable with the shape and mapping of this one; see :meth:`Graph.clone`."""
        options = {} if method is None else {"method": method}
        return self.graph.clone(self, dtype, name, **options)
