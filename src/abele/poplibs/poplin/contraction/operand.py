"""Operands of a contraction: tensors of named dimensions, walked in the order of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph, Regions, Tensor, boxes
from abele.numerics import ElementType
from abele.poplibs.poputil.order import storage_order

Box = Mapping[str, Int64]
"""One number per box for every dimension by name, int64[n]."""


BLOCKED_DIMS = ("b", "ci", "co")
"""Dimensions that vertices can walk in blocks."""


@dataclass(frozen=True)
class StorageDim:
    """A dimension of storage: all indices of a named dimension, or its blocks, or the indices within a block.

    Attributes:
        dim: The named dimension.
        step: Indices of the named dimension that one step along this one covers; above 1 for blocks.
        extent: Number of steps.
    """

    dim: str
    step: int
    extent: int


@dataclass(frozen=True)
class Operand:
    """A tensor of named dimensions and how memory holds it.

    Attributes:
        tensor: The logical view, one dimension per name.
        dims: Name of each dimension of the view.
        storage: The same elements with dimensions split and permuted to storage order.
        entries: Dimension that each dimension of ``storage`` is a part of, outermost first; extents of 1 are left out.
    """

    tensor: Tensor
    dims: tuple[str, ...]
    storage: Tensor
    entries: tuple[StorageDim, ...]

    @property
    def extents(self) -> dict[str, int]:
        """Extent of every dimension by name."""
        return dict(zip(self.dims, self.tensor.shape, strict=True))

    def levels(self, dim: str) -> tuple[StorageDim, ...]:
        """The storage dimensions that ``dim`` is split over, outermost first."""
        return tuple(sorted((e for e in self.entries if e.dim == dim), key=lambda e: -e.step))

    def block(self, dim: str) -> int | None:
        """Indices of ``dim`` in a block, or None where it is not stored in blocks."""
        levels = self.levels(dim)
        return levels[0].step if len(levels) == 2 else None

    @property
    def innermost(self) -> str:
        """The dimension along which neighbours follow each other in memory."""
        return self.entries[-1].dim

    @property
    def innermost_stride(self) -> int:
        """Distance in memory of neighbours along the innermost dimension; 0 where the view is not strided."""
        strided = self.storage.strided()
        return 0 if strided is None else strided.factors[-1][-1][1]

    @property
    def blocks(self) -> dict[str, int]:
        """Indices in a block, for every dimension that is stored in blocks."""
        return {dim: block for dim in self.dims if (block := self.block(dim)) is not None}

    @property
    def is_regular(self) -> bool:
        """True if it is one strided view, and only channels and samples are stored in blocks, blocks outermost."""
        if self.tensor.strided() is None or any(self.levels(dim) != self._stored(dim) for dim in self.dims):
            return False
        return all(len(self.levels(dim)) <= (2 if dim in BLOCKED_DIMS else 1) for dim in self.dims)

    def _stored(self, dim: str) -> tuple[StorageDim, ...]:
        """The storage dimensions that ``dim`` is split over, as they follow in memory."""
        return tuple(e for e in self.entries if e.dim == dim)

    def slice(self, dim: str, begin: int, size: int) -> Operand:
        """The operand of some indices along ``dim``; all of it where it lacks that dimension."""
        if dim not in self.dims or size == self.extents[dim]:
            return self
        return operand(self.tensor.slice(begin, begin + size, self.dims.index(dim)), self.dims)

    def regions(self, start: Box, size: Box) -> Regions:
        """One region for each box of named dimensions, elements in storage order.

        Along a dimension that is stored in blocks, a box holds whole blocks or lies within one.
        """
        count = len(next(iter(start.values())))
        starts = np.zeros((count, len(self.entries)), dtype=np.int64)
        for column, entry in enumerate(self.entries):
            # The index within the next outer level, in steps of this one.
            inside = start[entry.dim] % (self._span(entry) * entry.step)
            starts[:, column] = inside // entry.step
        return boxes(self.storage, starts, self.local_extents(size))

    def _span(self, entry: StorageDim) -> int:
        """Steps along ``entry`` until the next outer level of its dimension moves on."""
        outer = [e.step for e in self.levels(entry.dim) if e.step > entry.step]
        return min(outer) // entry.step if outer else entry.extent

    def local_extents(self, size: Box) -> Int64:
        """Extents in storage order of boxes of the given sizes, int64[n, storage dimensions]."""
        count = len(next(iter(size.values())))
        result = np.ones((count, len(self.entries)), dtype=np.int64)
        for column, entry in enumerate(self.entries):
            # A box within a block has one of the outer level and its own extent of the inner; a box of whole blocks has
            # all of the inner.
            result[:, column] = np.clip(size[entry.dim] // entry.step, 1, self._span(entry))
        return result

    def local_strides(self, size: Box) -> dict[tuple[str, bool], Int64]:
        """Distance of neighbours in a contiguous copy of a box: by (dimension, whether between blocks), int64[n]."""
        extents = self.local_extents(size)
        after = np.cumprod(extents[:, ::-1], axis=1)[:, ::-1]
        strides = np.concatenate([after[:, 1:], np.ones((len(after), 1), dtype=np.int64)], axis=1)
        return {(e.dim, e.step > 1): strides[:, column] for column, e in enumerate(self.entries)}


def operand(tensor: Tensor, dims: Sequence[str]) -> Operand:
    """``tensor`` with a name for each of its dimensions."""
    order = storage_order(tensor)
    fine = [(order.dims()[i], extent) for i, extent in enumerate(order.extents)]
    # A storage dimension covers as many indices per step as the parts of its dimension inside it have together.
    steps = [prod(order.fine[j] for j in _inner(order.of_dim, at)) for at in order.order]
    keep = [i for i, (_, extent) in enumerate(fine) if extent > 1]
    entries = tuple(StorageDim(dims[fine[i][0]], steps[i], fine[i][1]) for i in keep) or (StorageDim(dims[0], 1, 1),)
    storage = order.apply(tensor).reshape([e.extent for e in entries])
    return Operand(tensor, tuple(dims), storage, entries)


def seen_in_order(source: Operand, order: Sequence[tuple[str, int]]) -> Operand:
    """``source`` as if memory held it in ``order``, which is given as for :func:`allocate`: pieces are put together
    where they are read."""
    extents = source.extents
    by_dim = {dim: sorted((step for d, step in order if d == dim), reverse=True) for dim in source.dims}
    fine = [(dim, step) for dim in source.dims for step in by_dim[dim]]
    split = [_steps(extents[dim], step, by_dim[dim]) for dim, step in fine]
    storage = source.tensor.reshape(split).transpose([fine.index(entry) for entry in order])
    entries = [StorageDim(dim, step, n) for (dim, step), n in zip(order, storage.shape, strict=True)]
    kept = tuple(e for e in entries if e.extent > 1) or (entries[-1],)
    return replace(source, storage=storage.reshape([e.extent for e in kept]), entries=kept)


def _steps(extent: int, step: int, levels: Sequence[int]) -> int:
    """Steps along a level of a dimension until the next outer one moves on."""
    outer = [other for other in levels if other > step]
    return (min(outer) if outer else extent) // step


def _inner(of_dim: Sequence[int], at: int) -> list[int]:
    """Fine dimensions of the same dimension that lie inside fine dimension ``at``."""
    return [j for j in range(at + 1, len(of_dim)) if of_dim[j] == of_dim[at]]


def allocate(
    graph: Graph,
    dtype: ElementType,
    extents: Mapping[str, int],
    order: Sequence[tuple[str, int]],
    name: str,
) -> Operand:
    """A new, unmapped variable stored in a given order.

    Args:
        graph: Graph in which the variable is made.
        dtype: Element type.
        extents: Extent of every dimension by name, in the order of the logical view.
        order: Storage dimensions, outermost first: a name, and the step along it (the size of a block where the
            dimension is stored in blocks and this one counts them, else 1).
        name: Name of the variable.
    """
    steps = {dim: max(step for d, step in order if d == dim) for dim in extents}
    shape = [extents[dim] // step if step > 1 or steps[dim] == 1 else steps[dim] for dim, step in order]
    variable = graph.variable(dtype, shape, name=name)
    by_dim = [sorted((i for i, (d, _) in enumerate(order) if d == dim), key=lambda i: -order[i][1]) for dim in extents]
    logical = variable.transpose([i for group in by_dim for i in group]).reshape(tuple(extents.values()))
    return operand(logical, tuple(extents))


def blocked(order: Sequence[str], blocks: Mapping[str, int], extents: Mapping[str, int]) -> list[tuple[str, int]]:
    """A storage order for :func:`allocate` from names.

    ``ci1`` stands for the blocks of a dimension ``ci``, ``ci0`` for what is inside one. A dimension that is not stored
    in blocks, or has one block only, is stored whole in the place of its inside.
    """
    result: list[tuple[str, int]] = []
    for name in order:
        dim, level = (name, "0") if name in extents else (name[:-1], name[-1])
        if level == "0":
            result.append((dim, 1))
        elif dim in blocks and blocks[dim] < extents[dim]:
            result.append((dim, blocks[dim]))
    return result
