"""Tensors after each other: views of several views along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.graph import block as algebra
from abele.graph.block import StridedBlock
from abele.graph.block_list import BlockList, merged
from abele.graph.block_table import FEW, BlockTable, compact, packed
from abele.graph.content import AddressList, Content
from abele.graph.expect import expect
from abele.graph.grid import MOST_BLOCKS, PieceGrid, joined_grids, simplest

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor


# Concatenation of contents: parts after each other, with blocks joined that continue each other across the seams.

Part = tuple[Content, tuple[int, ...]]


def joined(parts: Sequence[Part], dim: int) -> Content:
    """The content of several views after each other along ``dim``.

    Args:
        parts: Content and shape of each view.
        dim: The dimension that grows.
    """
    parts = [(content.resolved, shape) for content, shape in parts]
    if any(isinstance(content, AddressList) for content, _ in parts):
        return AddressList(np.concatenate([content.addresses(shape) for content, shape in parts], axis=dim))
    grid = _as_grid([content for content, shape in parts if 0 not in shape], dim)
    if grid is not None:
        return simplest(grid)
    filled: list[tuple[BlockList | BlockTable, int]] = []
    at = 0
    for content, shape in parts:
        if isinstance(content, PieceGrid):
            if content.num_blocks > MOST_BLOCKS:
                return AddressList(np.concatenate([c.addresses(s) for c, s in parts], axis=dim))
            content = packed(content.all_blocks(), content.is_cut)
        assert isinstance(content, (BlockList, BlockTable))
        if 0 not in shape:
            filled.append((content, at))
        at += shape[dim]
    count = sum(len(c) if isinstance(c, BlockTable) else len(c.blocks) for c, _ in filled)
    is_cut = any(c.is_cut for c, _ in filled)
    if count <= FEW:
        return BlockList(tuple(merged([b for c, o in filled for b in _moved(c, dim, o)], dim)), is_cut)
    seams = sorted({at for _, at in filled if at})
    return compact(_merged_table(_one_table(filled, dim, is_cut), dim, seams))


def _as_grid(contents: Sequence[Content], dim: int) -> PieceGrid | None:
    """Many pieces of one variable as a grid, or None when they are few, or none."""
    if any(isinstance(c, BlockTable) for c in contents):
        return None
    count = sum(c.num_blocks if isinstance(c, PieceGrid) else len(c.blocks or ()) for c in contents[: FEW + 1])
    if max(count, len(contents)) <= FEW:
        return None
    grids: list[PieceGrid] = []
    for content in contents:
        grid = content if isinstance(content, PieceGrid) else PieceGrid.of(content.blocks or (), content.is_cut)
        if grid is None or (grids and grid.variable is not grids[0].variable):
            return None
        grids.append(grid)
    return joined_grids(grids, dim)


def _moved(content: BlockList | BlockTable, dim: int, by: int) -> Sequence[StridedBlock]:
    if not by:
        return content.blocks
    return [StridedBlock(v, o, algebra.put(at, dim, at[dim] + by), f) for v, o, at, f in content.blocks]


def _one_table(parts: Sequence[tuple[BlockList | BlockTable, int]], dim: int, is_cut: bool) -> BlockTable:
    """All parts as one table; blocks of small parts are gathered first."""
    tables: list[BlockTable] = []
    loose: list[StridedBlock] = []
    for content, at in parts:
        if isinstance(content, BlockTable):
            tables.append(content.shifted(dim, at))
        else:
            loose.extend(_moved(content, dim, at))
    if loose:
        tables.append(BlockTable.of(loose))
    pool = tables[0].pool
    owners = [tables[0].owner]
    for table in tables[1:]:
        if table.pool == pool:
            owners.append(table.owner)
            continue
        number = {v: i for i, v in enumerate(pool)}
        pool += tuple(v for v in table.pool if v not in number)
        number = {v: i for i, v in enumerate(pool)}
        owners.append(np.array([number[v] for v in table.pool], dtype=np.int64)[table.owner])
    dims = range(len(tables[0].origin))
    return BlockTable(
        pool=pool,
        owner=np.concatenate(owners),
        offset=np.concatenate([t.offset for t in tables]),
        origin=tuple(np.concatenate([t.origin[d] for t in tables]) for d in dims),
        extent=tuple(_stacked([t.extent[d] for t in tables], 1) for d in dims),
        step=tuple(_stacked([t.step[d] for t in tables], 1) for d in dims),
        stride=tuple(_stacked([t.stride[d] for t in tables], 0) for d in dims),
        is_cut=is_cut,
    )


def _stacked(columns: Sequence[Int64], missing: int) -> Int64:
    """Factor columns under each other, narrow ones filled up in front."""
    width = max(c.shape[1] for c in columns)
    if all(c.shape[1] == width for c in columns):
        return np.concatenate(columns)
    fill = [np.full((len(c), width - c.shape[1]), missing, dtype=np.int64) for c in columns]
    return np.concatenate([np.concatenate(pair, axis=1) for pair in zip(fill, columns, strict=True)])


def _merged_table(table: BlockTable, dim: int, seams: Sequence[int]) -> BlockTable:
    """The table with blocks joined that continue each other across a seam; only where they have one factor there."""
    if table.extent[dim].shape[1] > 1 or not seams:
        return table
    begin = table.origin[dim]
    end = begin + table.spans(dim)
    if len(seams) == 1:
        touching = (begin == seams[0]) | (end == seams[0])
    else:
        at = np.array(seams, dtype=np.int64)
        touching = np.isin(begin, at) | np.isin(end, at)
    rows = np.flatnonzero(touching)
    if len(rows) < 2:
        return table
    near = _continued(table.take(rows), dim)
    if len(near) == len(rows):
        return table
    return _one_table([(table.take(np.flatnonzero(~touching)), 0), (near, 0)], dim, table.is_cut)


def _continued(table: BlockTable, dim: int) -> BlockTable:
    """Blocks joined that continue each other along ``dim``, where each has one factor."""
    others = [d for d in range(len(table.origin)) if d != dim]
    table = table.take(np.lexsort([table.origin[dim], *(table.origin[d] for d in others)]))
    n, v, s = (columns[dim][:, 0] for columns in (table.extent, table.step, table.stride))
    dense, alone = (v == 1) | (n == 1), n == 1
    width, uneven = np.divmod(np.diff(table.offset), n[:-1])
    follows = np.diff(table.origin[dim]) == n[:-1]
    follows &= (np.diff(table.owner) == 0) & dense[1:] & dense[:-1] & (uneven == 0)
    follows &= (alone[:-1] | (s[:-1] == width)) & (alone[1:] | (s[1:] == width))
    for d in others:
        follows &= np.diff(table.origin[d]) == 0
        for column in (table.extent[d], table.step[d], table.stride[d]):
            follows &= (column[1:] == column[:-1]).all(axis=1)
    # A run goes on at one distance; where two single indices would change it, it ends.
    follows[1:] &= ~(follows[1:] & follows[:-1] & (width[1:] != width[:-1]))
    if not follows.any():
        return table
    first = np.flatnonzero(np.append(True, ~follows))
    total = np.add.reduceat(n, first)
    same = total == n[first]
    step = np.where(same, v[first], 1)
    stride = np.where(same, s[first], np.append(width, 0)[first])
    return table.take(first).changed(dim, total, step, stride)


View = TypeVar("View", bound="Tensor")


class Concatenation:
    """Concatenation without content so far.

    Joining contents costs time for every part. A program that appends a thousand rows one by one would join the first
    of them a thousand times; so the parts are only noted, and joined in one go when the content is first asked for.

    Attributes:
        dim: The dimension that grows.
        parts: The views, in order.
    """

    __slots__ = ("dim", "parts")

    def __init__(self, dim: int, parts: tuple[Tensor, ...]) -> None:
        self.dim = dim
        self.parts = parts

    def resolved(self) -> Content:
        """The content; concatenations inside it along the same dimension are joined in the same go."""
        parts: list[tuple[Content, tuple[int, ...]]] = []
        left = list(reversed(self.parts))
        while left:
            tensor = left.pop()
            inner = tensor.unresolved
            if isinstance(inner, Concatenation):
                left.extend(reversed(inner.parts))
            else:
                parts.append((inner, tensor.shape))
        return joined(parts, self.dim)


def concat(tensors: Sequence[View], dim: int = 0) -> View:
    """The view of several tensors after each other along ``dim``.

    Raises:
        TensorError: None is given, or shapes differ elsewhere than along ``dim``.
        TypeMismatchError: Element types differ.
    """
    from abele.graph.tensor import Tensor

    if not tensors:
        raise TensorError("nothing to concatenate")
    for t in tensors:
        expect(t, Tensor, "concat takes tensors")
    first = tensors[0]
    dim = first.checked_dim(dim)
    shape, extent = first.shape, 0
    for t in tensors:
        if t.dtype != first.dtype:
            raise TypeMismatchError(f"cannot concatenate {first!r} and {t!r}: the element types differ")
        own = t.shape
        if len(own) != len(shape) or own[:dim] != shape[:dim] or own[dim + 1 :] != shape[dim + 1 :]:
            raise TensorError(f"cannot concatenate {first!r} and {t!r} along dimension {dim}: the shapes differ")
        inner = t.unresolved
        if isinstance(inner, Concatenation) and inner.dim != dim:
            t.content  # noqa: B018 - resolved now: only concatenations along one dimension are joined in one go
        extent += own[dim]
    if len(tensors) == 1:
        return first
    return first.view((*shape[:dim], extent, *shape[dim + 1 :]), Concatenation(dim, tuple(tensors)))


def stack(tensors: Sequence[View], dim: int = 0) -> View:
    """The view of several tensors of one shape along a new dimension."""
    return concat([t.expand_dims(dim) for t in tensors], dim)
