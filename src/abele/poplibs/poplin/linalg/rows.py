"""Matrices with rows spread over tiles, and steps that go over them once per column."""

from __future__ import annotations

from abele.errors import TensorError
from abele.graph import Copy, Graph, Repeat, Sequence, Tensor
from abele.numerics import ElementType, f32, u32
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Const, _1


def rows_of(graph: Graph, rows: int) -> list[int]:
    """Rows per tile, on as many tiles as the graph has or as there are rows."""
    return blocks.extents(rows, -(-rows // graph.num_tiles))


def create_rows(graph: Graph, dtype: ElementType, rows: int, columns: int, name: str) -> Tensor:
    """A matrix [rows, columns], rows spread over tiles."""
    made = graph.variable(dtype, (rows, columns), name=name)
    tiles = [tile for tile, count in enumerate(rows_of(graph, rows)) for _ in range(count)]
    return graph.map_rows(made, tiles)


def new_column(graph: Graph, rows: int) -> Tensor:
    """One f32 per row, on the tiles of the rows."""
    return create_rows(graph, f32, rows, 1, "column").reshape((rows,))


def shares(graph: Graph, rows: int) -> list[tuple[slice, slice, int]]:
    """Equal shares of the rows of a matrix: tiles, rows of all of them together, and rows of each. At most two."""
    return blocks.equal_shares(rows, rows_of(graph, rows)[0])


def repeat(graph: Graph, body: Sequence, count: int, counter: Tensor, inner: Sequence) -> None:
    """Append ``inner`` for ``counter`` (u32, a scalar) from 0 up to ``count``."""
    emit_map(graph, inner, [_1 + Const(1, u32)], [counter], [counter], "count")
    first = graph.map(graph.constant(u32, (), 0, name="first"), 0)
    body.add(Copy(first, counter))
    body.add(Repeat(count, inner))


def new_counter(graph: Graph) -> Tensor:
    """The number of the present column: u32, a scalar."""
    return graph.map(graph.variable(u32, (), name="number"), 0)


def check_matrix(function: str, name: str, tensor: Tensor) -> None:
    """Refuse a tensor that is no matrix of floats.

    Raises:
        TensorError: It has another number of dimensions than two, or no elements.
        TypeMismatchError: Its elements are neither f32 nor f16.
    """
    blocks.check_type(function, name, tensor.dtype)
    if tensor.ndim != 2 or tensor.size == 0:
        raise TensorError(f"{function}: {name} takes a matrix [rows, columns], got {tensor!r}")


def flat(tensor: Tensor, vertices: int) -> Tensor:
    """A matrix as one row per vertex."""
    return tensor.reshape((vertices, tensor.size // vertices))
