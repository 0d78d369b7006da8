"""Sums along a dimension, of everything up to each element.

A row is cut into blocks where that keeps more tiles busy. Each block is summed from its own beginning where it lies;
the sums of whole blocks, one row to a vertex, become what stands before each block; that is added to all of the block.
So an element is visited twice however many blocks there are, where adding neighbours at doubling distances visits it
log n times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Regions, Tensor, boxes
from abele.graph.mapping import TileMapping
from abele.graph.program import Sequence
from abele.numerics import f32
from abele.poplibs.popops.reductions.vertices import add_codelet, scan_codelet

Int64 = npt.NDArray[np.int64]
MIN_BLOCK = 32
"""Elements of a block at least, where a row has as many: shorter ones cost more to exchange than to sum."""


def cum_sum(
    graph: Graph,
    tensor: Tensor,
    dim: int,
    prog: Sequence,
    name: str = "cum_sum",
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """The sums of ``tensor`` along ``dim`` up to each element: a new tensor of the same shape and type.

    Args:
        graph: Where vertices and the result are made.
        tensor: Numbers; those of 16 bits are summed in f32.
        dim: The dimension that is summed along.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.
        exclusive: True if an element itself is left out of its sum.
        reverse: True if sums begin at the last element.

    Raises:
        TensorError: The tensor has no such dimension.
        TypeMismatchError: Truth values, or 8-bit floats.
    """
    if not -tensor.ndim <= dim < tensor.ndim:
        raise TensorError(f"{name}: {tensor!r} has no dimension {dim}")
    if tensor.dtype.kind == "bool" or tensor.dtype.is_quarter:
        raise TypeMismatchError(f"{name}: {tensor!r} cannot be summed", remedy="cast it to i32 or f16")
    dim %= tensor.ndim
    moved = tensor.moveaxis(dim, tensor.ndim - 1)
    rows = moved.reshape((moved.size // max(moved.shape[-1], 1), moved.shape[-1]))
    rows = rows.reverse(1) if reverse else rows
    # From the last element backwards is the same over a reversed view.
    blocks = _Blocks.of(graph, rows)
    sums = graph.map(graph.variable(tensor.dtype, rows.shape, name=f"{name}/out"), blocks.mapping)
    call = graph.library_call(
        prog, "popops.cum_sum", inputs=(tensor,), outputs=(sums,), flops=2 * tensor.size, debug_name=name
    )
    with call as body:
        if tensor.size:
            _sum_blocks(graph, body, rows, sums, blocks, exclusive=exclusive, name=name)
    result = sums.reverse(1) if reverse else sums
    return result.reshape(moved.shape).moveaxis(tensor.ndim - 1, dim)


@dataclass(frozen=True)
class _Blocks:
    """Rows cut into blocks, which lie on tiles in their order.

    Attributes:
        rows: Number of rows.
        begin: First element of each block of a row, int64[blocks].
        length: Elements of each, int64[blocks].
        tile: Tile of each block of all rows, int32[rows · blocks].
        width: Elements of a row.
    """

    rows: int
    begin: Int64
    length: Int64
    tile: npt.NDArray[np.int32]
    width: int

    @staticmethod
    def of(graph: Graph, rows: Tensor) -> _Blocks:
        """As many blocks as give each tile one."""
        count, width = rows.shape
        parts = min(max(1, graph.num_tiles // max(count, 1)), max(1, width // MIN_BLOCK))
        ends = np.arange(1, parts + 1, dtype=np.int64) * width // parts
        begin = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        total = count * parts
        tile = (np.arange(total, dtype=np.int64) * min(graph.num_tiles, total) // max(total, 1)).astype(np.int32)
        return _Blocks(count, begin, ends - begin, tile, width)

    @property
    def parts(self) -> int:
        """Blocks of a row."""
        return len(self.begin)

    @property
    def mapping(self) -> TileMapping:
        """The mapping of [rows, width]."""
        starts = (np.arange(self.rows, dtype=np.int64)[:, None] * self.width + self.begin).reshape(-1)
        return TileMapping(self.rows * self.width, starts, self.tile)

    def regions(self, rows: Tensor, first: int = 0) -> Regions:
        """The elements of every block of [rows, width], those before block ``first`` of each row left out."""
        row = np.repeat(np.arange(self.rows, dtype=np.int64), self.parts - first)
        start = np.stack([row, np.tile(self.begin[first:], self.rows)], axis=1)
        length = np.tile(self.length[first:], self.rows)
        return boxes(rows, start, np.stack([np.ones_like(length), length], axis=1))


def _sum_blocks(
    graph: Graph, body: Sequence, rows: Tensor, sums: Tensor, blocks: _Blocks, *, exclusive: bool, name: str
) -> None:
    wide = f32 if rows.dtype.is_float else rows.dtype
    totals = graph.variable(wide, (blocks.rows, blocks.parts), name=f"{name}/totals")
    totals.flatten().map_rows(blocks.tile.tolist())
    scan = graph.compute_set(f"{name}/blocks")
    scan.vertices(
        scan_codelet(rows.dtype, wide, exclusive),
        tile=blocks.tile,
        x=blocks.regions(rows),
        y=blocks.regions(sums),
        total=totals.flatten(),
    )
    body.add(Execute(scan))
    if blocks.parts == 1:
        return
    tiles = blocks.tile.reshape(blocks.rows, blocks.parts)
    before = graph.variable(wide, totals.shape, name=f"{name}/before").map_rows(tiles[:, 0].tolist())
    across = graph.compute_set(f"{name}/rows")
    # Exclusive: a block starts from the sum of all blocks before it, without its own.
    across.vertices(scan_codelet(wide, wide, True, has_total=False), tile=tiles[:, 0], x=totals, y=before)
    body.add(Execute(across))
    add = graph.compute_set(f"{name}/add")
    add.vertices(
        add_codelet(rows.dtype, wide),
        tile=tiles[:, 1:].reshape(-1),
        y=blocks.regions(sums, 1),
        before=before[:, 1:].flatten(),
    )
    body.add(Execute(add))
