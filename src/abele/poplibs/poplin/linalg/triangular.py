"""Solves with triangular matrices, as PopLibs has them or with right-hand sides shared out between workers.

Halves of a system are solved one after the other, so its diagonal blocks are too
(:mod:`~abele.poplibs.poplin.linalg.halved`). What is done with a block is PopLibs' way
(:mod:`~abele.poplibs.poplin.linalg.recursive`) unless ``vertices`` is ``counted``
(:mod:`~abele.poplibs.poplin.linalg.shared`), which has fewer steps and, with many right-hand sides, a fraction of the
cycles.
"""

from __future__ import annotations

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, Sequence, Tensor, concat
from abele.numerics import ElementType
from abele.poplibs.poplin.linalg import blocks
from abele.poplibs.poplin.linalg.host import host_solve
from abele.poplibs.poplin.linalg.recursive import RecursiveSolve
from abele.poplibs.poplin.linalg.shared import SharedSolve
from abele.poplibs.poputil.host_body import note_host
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
    """The triangular operand [..., n, n] of a solve: in PopLibs' way spread by rows, else each block whole on a tile.

    Raises:
        TensorError: It is not square, or does not fit ``b_shape``.
        TypeMismatchError: The type is neither f32 nor f16.
        InvalidOptionError: An option or value that there is not.
    """
    function = "create_triangular_solve_input_lhs"
    _check(function, a_shape, b_shape, left_side)
    return _create(graph, dtype, a_shape, left_side, options, function=function, name=name)


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
    """The right-hand sides [..., n, r] (left) or [..., r, n] (right) of a solve, laid out as the other operand is.

    Raises:
        As :func:`create_triangular_solve_input_lhs`.
    """
    function = "create_triangular_solve_input_rhs"
    _check(function, a_shape, b_shape, left_side)
    return _create(graph, dtype, b_shape, left_side, options, function=function, name=name)


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
        graph: The graph.
        a: [..., n, n], f32 or f16.
        b: [..., n, r] or, on the right, [..., r, n], with the same batches.
        left_side: True if A stands on the left of X.
        lower: True if A is lower triangular.
        unit_diagonal: True if A's diagonal is taken as ones.
        prog: Sequence that the call is appended to.
        options: ``blockSize`` (rows of a block that is solved by substitution, 64), ``availableMemoryProportion`` (of
            the products between), ``vertices`` (``library``: PopLibs' vertices and steps; ``counted``: ours).
        name: Name of the call.

    Raises:
        TensorError: Shapes that do not fit.
        TypeMismatchError: Elements of other types, or of two types.
        InvalidOptionError: An option or value that there is not.
    """
    chosen = blocks.read("triangular_solve", options, blocks.SOLVE_OPTIONS)
    whole_a, whole_b = (blocks.as_batch("triangular_solve", n, t) for n, t in (("a", a), ("b", b)))
    _check("triangular_solve", a.shape, b.shape, left_side)
    if a.dtype != b.dtype:
        raise TypeMismatchError(f"triangular_solve takes operands of one type, got {a!r} and {b!r}")
    if b.size == 0:
        return graph.clone(b, name=f"{name}/out")
    # X·A = B is Aᵀ·Xᵀ = Bᵀ: the transpose of a lower triangle is an upper one.
    if not left_side:
        whole_a, whole_b, lower = whole_a.transpose((0, 2, 1)), whole_b.transpose((0, 2, 1)), not lower
    with graph.scope(name):
        kind = RecursiveSolve if chosen.library else SharedSolve
        solve = kind(graph, a=whole_a, b=whole_b, lower=lower, unit=unit_diagonal, chosen=chosen)
        found = concat(solve.out, 1)
    result = (found if left_side else found.transpose((0, 2, 1))).reshape(b.shape)
    flops = b.size * a.shape[-1]
    call = graph.library_call(
        prog, "poplin.triangular_solve", inputs=(a, b), outputs=(result,), flops=flops, debug_name=name
    )
    with call as body:
        solve.emit(body)
    note_host(prog, host_solve(graph, whole_a, whole_b, found, lower=lower, unit=unit_diagonal, name=name))
    return result


def _create(
    graph: Graph,
    dtype: ElementType | str,
    shape: tuple[int, ...],
    left_side: bool,
    options: Options,
    *,
    function: str,
    name: str,
) -> Tensor:
    """Operand in the order of solving the system; on the right that is the transposed one."""
    chosen = blocks.read(function, options, blocks.SOLVE_OPTIONS)
    if not chosen.library:
        return blocks.create_matrix(graph, dtype, shape, chosen.block, function, name)
    if left_side:
        return blocks.create_rows(graph, dtype, shape, chosen.block, function, name)
    turned = (*shape[:-2], shape[-1], shape[-2])
    made = blocks.create_rows(graph, dtype, turned, chosen.block, function, name)
    return made.transpose((*range(len(shape) - 2), len(shape) - 1, len(shape) - 2))


def _check(function: str, a: tuple[int, ...], b: tuple[int, ...], left_side: bool) -> None:
    blocks.check_square(function, "a", a)
    rows = b[-2 if left_side else -1] if len(b) >= 2 else 0
    if len(b) != len(a) or a[:-2] != b[:-2] or rows != a[-1]:
        side = "left" if left_side else "right"
        raise TensorError(f"{function}: a of shape {list(a)} on the {side} does not fit b of shape {list(b)}")
