"""Windows of an operand at index vectors, as XLA's gather and scatter name them, seen as rows of a table.

A window that is moved along some dimensions is so many rows of a table whose entries are the points of these
dimensions; the other dimensions are its columns.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.layout import row_major
from abele.numerics import ElementType, i32, u32
from abele.poplibs.popops.elementwise.map import map as map_
from abele.poplibs.popops.expr import Const, Expr, Op, PlaceHolder, select
from abele.words import counted


@dataclass(frozen=True)
class Windows:
    """Windows of one size in a tensor.

    Attributes:
        shape: The tensor's shape; where no index moves the window along a dimension, that of the window.
        dims: Dimension that each entry of an index vector moves the window along.
        sizes: Extent of the window along every dimension.
    """

    shape: tuple[int, ...]
    dims: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def moving(self) -> list[int]:
        """Entries of an index vector along whose dimension the window has more than one place."""
        return [k for k, d in enumerate(self.dims) if self.sizes[d] < self.shape[d]]

    @property
    def order(self) -> list[int]:
        """Dimensions along which the window moves, then the others."""
        front = [self.dims[k] for k in self.moving]
        return [*front, *(d for d in range(len(self.shape)) if d not in front)]

    @property
    def entries(self) -> int:
        """Rows of the table."""
        return math.prod(self.shape[self.dims[k]] for k in self.moving)

    @property
    def num_rows(self) -> int:
        """Rows of one window."""
        return math.prod(self.sizes[self.dims[k]] for k in self.moving)

    def last(self, k: int) -> int:
        """The last place of the window along the dimension of entry ``k``."""
        return self.shape[self.dims[k]] - self.sizes[self.dims[k]]

    def cut(self, tensor: Tensor) -> Tensor:
        """``tensor`` without the elements that no window reaches."""
        return tensor[tuple(slice(0, extent) for extent in self.shape)]

    def table(self, tensor: Tensor) -> Tensor:
        """``tensor`` as [entries, columns]."""
        return self.cut(tensor).transpose(self.order).reshape((self.entries, math.prod(self.shape) // self.entries))

    def rows(self, windows: Tensor) -> Tensor:
        """[n, *sizes] as [n · rows, 1, columns]."""
        # Moving dimensions first, so that the rows of a window are those of the table in the same order.
        moved = windows.transpose((0, *(1 + d for d in self.order)))
        columns = math.prod(self.shape) // self.entries
        return moved.reshape((windows.shape[0] * self.num_rows, 1, columns))

    def from_rows(self, rows: Tensor, num: int) -> Tensor:
        """[num · rows, 1, columns] as [num, *sizes]."""
        order = self.order
        return rows.reshape((num, *(self.sizes[d] for d in order))).transpose(
            (0, *(1 + order.index(d) for d in range(len(order))))
        )

    def clamped(self, graph: Graph, starts: Tensor, prog: Steps, name: str) -> Tensor:
        """Entries [n · rows] of windows at ``starts`` [n, dims], each moved so far that it is inside."""
        return self._entries(graph, starts, [self._clamp(k, starts.dtype) for k in self.moving], None, prog, name)

    def valid(self, graph: Graph, starts: Tensor, prog: Steps, name: str) -> Tensor:
        """Entries [n · rows] of windows at ``starts``; those of windows that are not inside are no entries."""
        places: list[Expr] = [PlaceHolder(k + 1) for k in self.moving]
        return self._entries(graph, starts, places, self.is_inside(starts.dtype), prog, name)

    def is_inside(self, dtype: ElementType) -> Expr:
        """True if the window at the placeholders' indices is inside."""
        found: Expr | None = None
        for k in range(len(self.dims)):
            at = PlaceHolder(k + 1)
            inside: Expr = at <= Const(self.last(k), dtype)
            if dtype == i32:
                inside = Op("logical_and", inside, at >= Const(0, i32))
            found = inside if found is None else Op("logical_and", found, inside)
        assert found is not None
        return found

    def _clamp(self, k: int, dtype: ElementType) -> Expr:
        at = Op("min", PlaceHolder(k + 1), Const(self.last(k), dtype))
        return at if dtype == u32 else Op("max", at, Const(0, dtype))

    def _entries(
        self, graph: Graph, starts: Tensor, places: list[Expr], inside: Expr | None, prog: Steps, name: str
    ) -> Tensor:
        dtype, num = starts.dtype, starts.shape[0]
        extents = [self.shape[self.dims[k]] for k in self.moving]
        strides = row_major(extents)
        operands = [starts[:, k : k + 1] for k in range(len(self.dims))]
        row: Expr = Const(0, dtype)
        for place, stride in zip(places, strides, strict=True):
            row = row + place * Const(stride, dtype)
        if self.num_rows > 1:
            within = [range(self.sizes[self.dims[k]]) for k in self.moving]
            # The rows of a window lie in the table where its place says, plus steps that are the same for all windows:
            # a constant that broadcasts.
            steps = [sum(a * s for a, s in zip(at, strides, strict=True)) for at in itertools.product(*within)]
            operands.append(graph.constant(dtype, (1, len(steps)), np.array([steps], dtype.np), name=f"{name}/within"))
            row = row + PlaceHolder(len(operands))
        if inside is not None:
            # The number of entries is out of range for every slice and update, which leave it alone.
            row = select(row, Const(self.entries, dtype), inside)
        made = map_(graph, row, operands, prog, f"{name}/entries")
        return made.reshape((num * self.num_rows,))


def index_vectors(indices: Tensor, vector_dim: int, length: int, name: str) -> tuple[Tensor, tuple[int, ...]]:
    """``indices`` as [n, length], and the shape of the n.

    Raises:
        TypeMismatchError: They are no 32-bit integers.
        TensorError: ``vector_dim`` is no dimension of them, nor one past the last; or vectors have another length.
    """
    if indices.dtype not in (u32, i32):
        raise TypeMismatchError(f"{name}: the indices {indices!r} are {indices.dtype}, they must be u32 or i32")
    if not 0 <= vector_dim <= indices.ndim:
        raise TensorError(
            f"{name}: index_vector_dim {vector_dim} of the indices {indices!r}, which have {indices.ndim}"
        )
    if vector_dim == indices.ndim:
        indices = indices.expand_dims(indices.ndim)
    if indices.shape[vector_dim] != length or not length:
        raise TensorError(
            f"{name}: the indices {indices!r} have vectors of {counted(indices.shape[vector_dim], 'entry')}, "
            f"which are to move a window along {counted(length, 'dimension')}"
        )
    moved = indices.transpose((*(d for d in range(indices.ndim) if d != vector_dim), vector_dim))
    shape = moved.shape[:-1]
    return moved.reshape((math.prod(shape), length)), shape


def check_dims(given: Sequence[int], rank: int, what: str, name: str, *, ascend: bool = True) -> tuple[int, ...]:
    """``given`` as dimensions of a tensor of ``rank``.

    Raises:
        TensorError: One that the tensor lacks, or that is given twice, or that does not follow the one before.
    """
    dims = tuple(int(d) for d in given)
    if any(not 0 <= d < rank for d in dims) or len(set(dims)) != len(dims) or (ascend and sorted(dims) != list(dims)):
        order = " in ascending order" if ascend else ""
        raise TensorError(f"{name}: {what} {list(given)} must be different dimensions below {rank}{order}")
    return dims
