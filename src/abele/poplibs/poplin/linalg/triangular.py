"""Solves with triangular matrices: diagonal blocks are inverted, the rest is products."""

from __future__ import annotations

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Copy, Execute, Graph, Sequence, Tensor, concat
from abele.numerics import ElementType, bool_
from abele.poplibs import popops
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.poplin.linalg.codelets import inverse_codelet
from abele.poplibs.poplin.matmul import matmul_grouped
from abele.poplibs.popops.expr import _1, _2, _3, select
from abele.poplibs.poputil.options import Options


def create_triangular_solve_input_lhs(
    graph: Graph,
    dtype: ElementType | str,
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    left_side: bool = True,
    *,
    options: Options = None,
    name: str = "a",
) -> Tensor:
    """The triangular operand [..., n, n] of a solve, each block whole on a tile.

    Raises:
        TensorError: It is not square, or does not fit ``b_shape``.
        TypeMismatchError: The type is neither f32 nor f16.
    """
    _check("create_triangular_solve_input_lhs", a_shape, b_shape, left_side)
    return blocks.create_matrix(graph, dtype, a_shape, options, "create_triangular_solve_input_lhs", name)


def create_triangular_solve_input_rhs(
    graph: Graph,
    dtype: ElementType | str,
    a_shape: tuple[int, ...],
    b_shape: tuple[int, ...],
    left_side: bool = True,
    *,
    options: Options = None,
    name: str = "b",
) -> Tensor:
    """The right-hand sides [..., n, r] (left) or [..., r, n] (right) of a solve, each block whole on a tile.

    Raises:
        As :func:`create_triangular_solve_input_lhs`.
    """
    _check("create_triangular_solve_input_rhs", a_shape, b_shape, left_side)
    return blocks.create_matrix(graph, dtype, b_shape, options, "create_triangular_solve_input_rhs", name)


def triangular_mask(
    graph: Graph, a: Tensor, lower: bool, unit_diagonal: bool, prog: Sequence, *, name: str = "triangular_mask"
) -> Tensor:
    """``a`` [..., n, n] with zeros outside its lower or upper triangle, and ones on its diagonal if that is unit.

    Raises:
        TensorError: Not square.
        TypeMismatchError: Elements neither f32 nor f16.
    """
    whole = blocks.as_batch("triangular_mask", "a", a)
    blocks.check_square("triangular_mask", "a", a.shape)
    n = a.shape[-1]
    ones = np.ones((n, n), np.bool_)
    keep = np.tril(ones) if lower else np.triu(ones)
    if unit_diagonal:
        keep &= ~np.eye(n, dtype=np.bool_)
    fixed = graph.constant(a.dtype, (n, n), np.eye(n) * unit_diagonal, name=f"{name}/outside")
    mask = graph.constant(bool_, (n, n), keep, name=f"{name}/inside")
    shown = [t.map_linear().expand_dims(0).broadcast_to(whole.shape) for t in (fixed, mask)]
    return popops.map(graph, select(_1, _2, _3), [whole, *shown], prog, name=name).reshape(a.shape)


def triangular_solve(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    left_side: bool,
    lower: bool,
    unit_diagonal: bool,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "triangular_solve",
) -> Tensor:
    """X of A·X = B (``left_side``) or X·A = B, as a new tensor of B's shape.

    Only the triangle of ``a`` that is meant is read; with ``unit_diagonal`` its diagonal is taken as ones. A zero on
    the diagonal gives infinities and not-a-numbers.

    Args:
        a: [..., n, n], f32 or f16.
        b: [..., n, r] or, on the right, [..., r, n], with the same batches.
        options: ``blockSize`` (rows of a block that one vertex inverts), ``availableMemoryProportion`` (products).

    Raises:
        TensorError: Shapes that do not fit.
        TypeMismatchError: Elements of other types, or of two types.
        InvalidOptionError: An option or value that there is not.
    """
    block, proportion = blocks.read("triangular_solve", options)
    whole_a, whole_b = (blocks.as_batch("triangular_solve", n, t) for n, t in (("a", a), ("b", b)))
    _check("triangular_solve", a.shape, b.shape, left_side)
    if a.dtype != b.dtype:
        raise TypeMismatchError(f"triangular_solve: a holds {a.dtype}, b holds {b.dtype}")
    if b.size == 0:
        return graph.clone(b, name=f"{name}/out")
    with graph.scope(name):
        if not left_side:
            whole_a, whole_b, lower = whole_a.transpose((0, 2, 1)), whole_b.transpose((0, 2, 1)), not lower
        inverses = invert_blocks(graph, whole_a, block, lower, unit_diagonal, prog)
        solved = _solve(graph, whole_a, whole_b, inverses, lower, proportion, prog)
        result = solved if left_side else solved.transpose((0, 2, 1))
    return result.reshape(b.shape)


def invert_blocks(
    graph: Graph, a: Tensor, block: int, lower: bool, unit_diagonal: bool, prog: Sequence
) -> list[Tensor]:
    """Inverses [b, m, m] of the diagonal blocks of ``a`` [b, n, n], all in one compute set."""
    batch, n = a.shape[0], a.shape[1]
    cs = graph.compute_set("invert")
    inverses = []
    for index, size in enumerate(blocks.extents(n, block)):
        tiles = blocks.block_tiles(graph, batch, index)
        start = index * block
        square = a[:, start : start + size, start : start + size]
        inverse = graph.variable(a.dtype, (batch, size, size), name="inverse").map_rows([int(t) for t in tiles])
        cs.vertices(
            inverse_codelet(a.dtype),
            tile=tiles,
            x=square.reshape((batch, size * size)),
            y=inverse.reshape((batch, size * size)),
            n=size,
            row=size if lower else 1,
            column=1 if lower else size,
            unit=int(unit_diagonal),
        )
        inverses.append(inverse)
    prog.add(Execute(cs))
    return inverses


def _solve(
    graph: Graph, a: Tensor, b: Tensor, inverses: list[Tensor], lower: bool, proportion: float, prog: Sequence
) -> Tensor:
    """The halves of the system one after the other, the second less what the first adds to it."""
    if len(inverses) == 1:
        return _product(graph, inverses[0], b, proportion, prog)
    count = len(inverses) // 2
    middle = sum(t.shape[1] for t in inverses[:count])
    parts = [(slice(0, middle), inverses[:count]), (slice(middle, a.shape[1]), inverses[count:])]
    (first, first_inverses), (last, last_inverses) = parts if lower else parts[::-1]
    known = _solve(graph, a[:, first, first], b[:, first], first_inverses, lower, proportion, prog)
    added = _product(graph, a[:, last, first], known, proportion, prog)
    rest = graph.clone(added, name="rest")
    prog.add(Copy(b[:, last], rest))
    popops.sub_in_place(graph, rest, added, prog)
    unknown = _solve(graph, a[:, last, last], rest, last_inverses, lower, proportion, prog)
    return concat([known, unknown] if lower else [unknown, known], 1)


def _product(graph: Graph, a: Tensor, b: Tensor, proportion: float, prog: Sequence) -> Tensor:
    return matmul_grouped(graph, a, b, prog, available_memory_proportion=proportion, name="product")


def _check(function: str, a: tuple[int, ...], b: tuple[int, ...], left_side: bool) -> None:
    blocks.check_square(function, "a", a)
    rows = b[-2 if left_side else -1] if len(b) >= 2 else 0
    if len(b) != len(a) or a[:-2] != b[:-2] or rows != a[-1]:
        side = "left" if left_side else "right"
        raise TensorError(f"{function}: a of shape {list(a)} on the {side} does not fit b of shape {list(b)}")
