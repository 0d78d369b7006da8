"""Storage order: the dimensions of a view split and permuted so that its elements follow each other in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from abele.graph import Tensor
from abele.layout import row_major

T = TypeVar("T")


@dataclass(frozen=True)
class StorageOrder:
    """Order of a view's elements in its variable.

    A view [B, C, H, W] of a variable [C1, B, H, W, C0] has the fine dimensions (B, C1, C0, H, W) and the order
    (1, 0, 3, 4, 2).

    Attributes:
        shape: Shape of the view.
        fine: Its dimensions, each split where the variable splits it.
        of_dim: Dimension of the view that each fine dimension is part of.
        order: Fine dimensions from the outermost in memory to the innermost.
    """

    shape: tuple[int, ...]
    fine: tuple[int, ...]
    of_dim: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the fine dimensions in storage order."""
        return self.permuted(self.fine)

    def permuted(self, values: Sequence[T]) -> tuple[T, ...]:
        """One value per fine dimension, put in storage order."""
        return tuple(values[d] for d in self.order)

    def apply(self, tensor: Tensor) -> Tensor:
        """``tensor``, of the view's shape, with its dimensions split and permuted to storage order."""
        return tensor.reshape(self.fine).transpose(self.order) if self.fine else tensor

    def undo(self, tensor: Tensor) -> Tensor:
        """A tensor in storage order seen in the view's shape again."""
        if not self.fine:
            return tensor
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        return tensor.transpose(inverse).reshape(self.shape)

    def dims(self) -> tuple[int, ...]:
        """Dimension of the view that each fine dimension belongs to, in storage order."""
        return self.permuted(self.of_dim)

    def logical_strides(self) -> tuple[int, ...]:
        """Row-major strides of the view along its fine dimensions, in storage order."""
        return self.permuted(row_major(self.fine))


def storage_order(tensor: Tensor) -> StorageOrder:
    """The storage order of ``tensor``; row-major where it is not one strided block of one variable."""
    strided = tensor.strided()
    if strided is None:
        return row_major_order(tensor.shape)
    # A view read backwards lies in memory as one read forwards.
    parts = [(d, extent, abs(stride)) for d, f in enumerate(strided.factors) for extent, stride in f]
    order = sorted(range(len(parts)), key=lambda i: _outermost_first(parts[i][1], parts[i][2]))
    return StorageOrder(tensor.shape, tuple(p[1] for p in parts), tuple(p[0] for p in parts), tuple(order))


def is_same_view(one: Tensor, other: Tensor) -> bool:
    """True if two tensors show the same elements in the same order, without listing these where it can be avoided."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    a, b = one.strided(), other.strided()
    return one.is_same_view(other) if a is None or b is None else a == b


def row_major_order(shape: tuple[int, ...]) -> StorageOrder:
    """The storage order of a contiguous view of ``shape``."""
    dims = tuple(range(len(shape)))
    return StorageOrder(shape, shape, dims, dims)


def _outermost_first(extent: int, stride: int) -> float:
    """Sort key: larger strides first, dimensions that repeat elements outermost of all."""
    return -math.inf if stride == 0 or extent == 1 else -stride
