"""Scans along a dimension: sums, products, extrema and linear recurrences of everything up to each element.

A row is cut into blocks where that keeps more tiles busy. Each block is summed from its own beginning where it lies;
the sums of whole blocks, one row to a vertex, become what stands before each block; that is added to all of the block.
So an element is visited twice however many blocks there are, where adding neighbours at doubling distances visits it
log n times. Hosts have one vertex for each row, which visits an element once, or one for some rows side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Regions, Tensor, boxes
from abele.graph.mapping import TileMapping
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32
from abele.poplibs.popops.reductions.vertices import (
    COLUMNS,
    SCANS,
    join_codelet,
    recurrence_codelet,
    recurrence_total_codelet,
    scan_codelet,
    side_by_side_codelet,
)
from abele.poplibs.poputil.host_body import host_rows, host_vertices, note_host

MIN_BLOCK = 32
"""Elements of a block at least, where a row has as many: shorter ones cost more to exchange than to sum."""
MANY_ROWS = 4 * COLUMNS
"""Rows from which on a host scans some side by side, so that four threads have some."""
MOST_AT_ONCE = 2 * MIN_BLOCK
"""Blocks of a row above which their sums are a row to be cut into blocks themselves. One vertex for all would take
longer than the two supersteps that this adds.
"""


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
        graph: Graph in which vertices and the result are made.
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
    return _scan(graph, tensor, dim, prog, "add", exclusive=exclusive, reverse=reverse, name=name, library="cum_sum")


def scan(
    graph: Graph,
    tensor: Tensor,
    dim: int,
    prog: Sequence,
    operation: str = "add",
    *,
    exclusive: bool = False,
    reverse: bool = False,
    name: str = "scan",
) -> Tensor:
    """As :func:`cum_sum`, with another operation over all elements up to each.

    Args:
        graph: Graph in which vertices and the result are made.
        tensor: Numbers; those of 16 bits are joined in f32.
        dim: The dimension that is gone along.
        prog: Sequence that the steps are appended to.
        operation: ``add``, ``mul``, ``max``, ``min``, or ``logaddexp`` of floats.
        exclusive: True if an element itself is left out.
        reverse: True to begin at the last element.
        name: Name of the steps.

    Raises:
        InvalidOptionError: No such operation.
        TensorError: The tensor has no such dimension.
        TypeMismatchError: Elements that the operation has no meaning for.
    """
    if operation not in SCANS:
        raise InvalidOptionError(f"{name}: no operation {operation!r}", remedy=", ".join(SCANS))
    if operation == "logaddexp" and not tensor.dtype.is_float:
        raise TypeMismatchError(f"{name}: logaddexp is of floats, got {tensor!r}", remedy="cast it to f32")
    return _scan(graph, tensor, dim, prog, operation, exclusive=exclusive, reverse=reverse, name=name, library="scan")


def linear_recurrence(
    graph: Graph,
    factor: Tensor,
    addend: Tensor,
    dim: int,
    prog: Sequence,
    *,
    reverse: bool = False,
    name: str = "recurrence",
) -> Tensor:
    """h[i] = factor[i] · h[i − 1] + addend[i] along ``dim``, from h[−1] = 0: a new tensor of the operands' shape.

    What a block of elements does to the number before it is a product and a sum, and two such make one, so rows are cut
    into blocks as those of sums are: first what every block does, then what stands before each, then its elements.

    Args:
        graph: Graph in which vertices and the result are made.
        factor: Floats.
        addend: Floats of the same shape and type.
        dim: The dimension that the recurrence goes along.
        prog: Sequence that the steps are appended to.
        reverse: True to begin at the last element.
        name: Name of the steps.

    Raises:
        TensorError: No such dimension, or operands of different shapes.
        TypeMismatchError: Operands that are no floats, or of different types.
    """
    if factor.shape != addend.shape:
        raise TensorError(f"{name}: {factor!r} and {addend!r} differ in shape")
    if not factor.dtype.is_float or factor.dtype.is_quarter or factor.dtype != addend.dtype:
        raise TypeMismatchError(f"{name}: takes floats of one type, got {factor!r} and {addend!r}")
    factors, addends = (_Along.of(t, dim, reverse=reverse, name=name) for t in (factor, addend))
    blocks = _Blocks.of(graph, addends.rows)
    out = graph.map(graph.variable(factor.dtype, addends.rows.shape, name=f"{name}/out"), blocks.mapping)
    call = graph.library_call(
        prog, "popops.recurrence", inputs=(factor, addend), outputs=(out,), flops=2 * factor.size, debug_name=name
    )
    with call as body:
        if factor.size:
            _recur(graph, body, factors.rows, addends.rows, out=out, blocks=blocks, name=name)
    if factor.size:
        codelet = recurrence_codelet(factor.dtype, factor.dtype, begins=False)
        note_host(prog, host_rows(graph, name, codelet, factor=factors.rows, addend=addends.rows, y=out))
    return addends.back(out)


def _scan(
    graph: Graph,
    tensor: Tensor,
    dim: int,
    prog: Sequence,
    operation: str,
    *,
    exclusive: bool,
    reverse: bool,
    name: str,
    library: str,
) -> Tensor:
    if tensor.dtype.kind == "bool" or tensor.dtype.is_quarter:
        raise TypeMismatchError(f"{name}: {tensor!r} cannot be summed", remedy="cast it to i32 or f16")
    along = _Along.of(tensor, dim, reverse=reverse, name=name)
    rows, blocks = along.rows, _Blocks.of(graph, along.rows)
    sums = graph.map(graph.variable(tensor.dtype, rows.shape, name=f"{name}/out"), blocks.mapping)
    call = graph.library_call(
        prog, f"popops.{library}", inputs=(tensor,), outputs=(sums,), flops=2 * tensor.size, debug_name=name
    )
    with call as body:
        if tensor.size:
            _scan_blocks(graph, body, rows, sums, blocks, operation=operation, exclusive=exclusive, name=name)
    if tensor.size:
        wide = f32 if rows.dtype.is_float else rows.dtype
        note_host(prog, _host_scan(graph, along, sums, wide, operation=operation, exclusive=exclusive, name=name))
    return along.back(sums)


def _host_scan(
    graph: Graph, along: _Along, sums: Tensor, wide: ElementType, *, operation: str, exclusive: bool, name: str
) -> Sequence:
    """Steps of a host: rows side by side where they lie so, or where that is worth turning them."""
    rows, step = along.rows, graph.compute_set(f"{name}/host")
    count, width = rows.shape
    whole = 0

    def side_by_side(x: Tensor, y: Tensor, *, across: bool) -> None:
        scratch = {
            field: graph.variable(dtype, (len(y), size), name=f"{name}/host", map="linear")
            for field, dtype, size in (("s", wide, COLUMNS), ("t", sums.dtype, COLUMNS**2))
        }
        codelet = side_by_side_codelet(rows.dtype, wide, exclusive, operation, across=across)
        host_vertices(step, codelet, x=x, y=y, **scratch)

    if along.inner >= COLUMNS:
        whole = count
        x, y = (t.reshape((-1, along.inner, width)) for t in (rows, sums))
        for first in range(0, along.inner, COLUMNS):
            part = slice(first, first + COLUMNS)
            side_by_side(x[:, part].transpose((0, 2, 1)), y[:, part], across=True)
    elif count >= MANY_ROWS and (rows.dtype != wide or operation == "logaddexp"):
        # Conversions and logarithms fill lanes; sums of one row after the other are as fast as turned ones.
        whole = count // COLUMNS * COLUMNS
        x, y = (t[:whole].reshape((-1, COLUMNS, width)) for t in (rows, sums))
        side_by_side(x, y, across=False)
    if whole < count:
        codelet = scan_codelet(rows.dtype, wide, exclusive, has_total=False, operation=operation)
        host_vertices(step, codelet, x=rows[whole:], y=sums[whole:])
    return Sequence(Execute(step))


@dataclass(frozen=True)
class _Along:
    """A tensor seen as rows along one of its dimensions.

    Attributes:
        rows: [rows, extent]; backwards where the tensor is gone through from the end.
        moved: The tensor's shape with the dimension last.
        dim: The dimension.
        reverse: True if rows are backwards.
    """

    rows: Tensor
    moved: tuple[int, ...]
    dim: int
    reverse: bool

    @property
    def inner(self) -> int:
        """Rows whose elements lie side by side in the tensor: one where these lie along it."""
        return math.prod(self.moved[self.dim : -1])

    @staticmethod
    def of(tensor: Tensor, dim: int, *, reverse: bool, name: str) -> _Along:
        """The rows along ``dim``."""
        if not -tensor.ndim <= dim < tensor.ndim:
            raise TensorError(f"{name}: {tensor!r} has no dimension {dim}")
        dim %= tensor.ndim
        moved = tensor.moveaxis(dim, tensor.ndim - 1)
        rows = moved.reshape((moved.size // max(moved.shape[-1], 1), moved.shape[-1]))
        # From the last element backwards is the same over a reversed view.
        return _Along(rows.reverse(1) if reverse else rows, moved.shape, dim, reverse)

    def back(self, rows: Tensor) -> Tensor:
        """Rows like these as a tensor like the one that they are of."""
        result = rows.reverse(1) if self.reverse else rows
        return result.reshape(self.moved).moveaxis(len(self.moved) - 1, self.dim)


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


def _scan_blocks(
    graph: Graph,
    body: Sequence,
    rows: Tensor,
    sums: Tensor,
    blocks: _Blocks,
    *,
    operation: str,
    exclusive: bool,
    name: str,
) -> None:
    wide = f32 if rows.dtype.is_float else rows.dtype
    totals = graph.variable(wide, (blocks.rows, blocks.parts), name=f"{name}/totals")
    graph.map_rows(totals.flatten(), blocks.tile.tolist())
    scan = graph.compute_set(f"{name}/blocks")
    scan.vertices(
        scan_codelet(rows.dtype, wide, exclusive, operation=operation),
        tile=blocks.tile,
        x=blocks.regions(rows),
        y=blocks.regions(sums),
        total=totals.flatten(),
    )
    body.add(Execute(scan))
    if blocks.parts == 1:
        return
    tiles = blocks.tile.reshape(blocks.rows, blocks.parts)
    # Exclusive: a block starts from the sum of all blocks before it, without its own.
    before = graph.variable(wide, totals.shape, name=f"{name}/before")
    graph.map_rows(before, tiles[:, 0].tolist())
    if blocks.parts > MOST_AT_ONCE:
        inner = _Blocks.of(graph, totals)
        _scan_blocks(graph, body, totals, before, inner, operation=operation, exclusive=True, name=f"{name}/rows")
    else:
        across = graph.compute_set(f"{name}/rows")
        codelet = scan_codelet(wide, wide, True, has_total=False, operation=operation)
        across.vertices(codelet, tile=tiles[:, 0], x=totals, y=before)
        body.add(Execute(across))
    add = graph.compute_set(f"{name}/add")
    add.vertices(
        join_codelet(rows.dtype, wide, operation),
        tile=tiles[:, 1:].reshape(-1),
        y=blocks.regions(sums, 1),
        before=before[:, 1:].flatten(),
    )
    body.add(Execute(add))


def _recur(
    graph: Graph, body: Sequence, factor: Tensor, addend: Tensor, out: Tensor, blocks: _Blocks, name: str
) -> None:
    dtype, tiles = factor.dtype, blocks.tile.reshape(blocks.rows, blocks.parts)
    given: dict[str, Any] = {"factor": blocks.regions(factor), "addend": blocks.regions(addend)}
    step = graph.compute_set(f"{name}/elements")
    if blocks.parts == 1:
        step.vertices(recurrence_codelet(dtype, dtype, begins=False), tile=blocks.tile, y=blocks.regions(out), **given)
        body.add(Execute(step))
        return
    scale, offset = (graph.variable(f32, tiles.shape, name=f"{name}/{n}") for n in ("scale", "offset"))
    for total in (scale, offset):
        graph.map_rows(total.flatten(), blocks.tile.tolist())
    totals = graph.compute_set(f"{name}/blocks")
    codelet = recurrence_total_codelet(dtype)
    totals.vertices(codelet, tile=blocks.tile, scale=scale.flatten(), offset=offset.flatten(), **given)
    body.add(Execute(totals))
    before = graph.map_rows(graph.variable(f32, tiles.shape, name=f"{name}/before"), tiles[:, 0].tolist())
    across = graph.compute_set(f"{name}/rows")
    codelet = recurrence_codelet(f32, f32, exclusive=True, begins=False)
    across.vertices(codelet, tile=tiles[:, 0], factor=scale, addend=offset, y=before)
    body.add(Execute(across))
    codelet = recurrence_codelet(dtype, dtype)
    step.vertices(codelet, tile=blocks.tile, y=blocks.regions(out), before=before.flatten(), **given)
    body.add(Execute(step))
