"""QR factorisation by Householder's reflections.

Rows of A and columns of Q are spread over tiles; a program loop goes over the columns of A. A round is three steps:
each tile sums over its rows what the reflection needs to know of every column, the sums are reduced over the tiles,
and each tile reflects its rows. Q is carried along as further columns beside A, transposed.

Why it is right: the reflection that makes column k zero below row k is I − v·vᵀ/β with v = a − α·eₖ, where a is that
column from row k on and α = ∓‖a‖, and β = ‖a‖² − α·aₖ. What it takes from another column c is v·(v·c)/β, and v·c = a·c
− α·cₖ. So two rows of numbers are all that tiles need to know of each other: the products of column k with every
column, and row k. Both are found in one pass over the rows and one reduction; ‖a‖² is among them, as the product of
column k with itself. The sign of α is opposite to that of aₖ, so that β adds up and loses no digits. Reflections of
blocks of columns at a time would turn more of the work into products; here every round is a superstep over all tiles.

Example: a = (3, 4) has ‖a‖ = 5, so α = −5, v = (8, 4) and β = 25 + 15 = 40. The reflection takes v · 40 / 40 from the
column, which leaves (−5, 0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Copy, Execute, Graph, Sequence, Tensor
from abele.numerics import ElementType, as_element_type, f32
from abele.poplibs.poplin.linalg import blocks, rows
from abele.poplibs.poplin.linalg.row_codelets import partials_codelet, reflect_codelet
from abele.poplibs.popops.reductions.reduce import emit_reduce


def create_qr_factorization_matrices(
    graph: Graph, dtype: ElementType | str, m: int, n: int, *, name: str = "qr"
) -> tuple[Tensor, Tensor]:
    """A [m, n] with its rows, and Q [m, m] with its columns spread over tiles, for :func:`qr_factorization`.

    Raises:
        TensorError: An extent below 1.
        TypeMismatchError: The type is neither f32 nor f16.
    """
    element = as_element_type(dtype)
    blocks.check_type("create_qr_factorization_matrices", "dtype", element)
    if m < 1 or n < 1:
        raise TensorError(f"create_qr_factorization_matrices takes extents of at least 1, got {[m, n]}")
    a, q = (rows.create_rows(graph, element, m, count, f"{name}/{part}") for part, count in (("a", n), ("q", m)))
    return a, q.T


def qr_factorization(graph: Graph, a: Tensor, q: Tensor, prog: Sequence, *, name: str = "qr_factorization") -> None:
    """Factorise A = Q·R in place: ``a`` becomes R, zeros below its diagonal, and ``q`` the orthogonal factor.

    Signs are those of Householder's method: a diagonal element of R is negative where the column that it comes from
    began with a positive number. What ``q`` held before does not matter. Sums are taken in f32.

    Args:
        graph: The graph.
        a: [m, n], f32 or f16; any m and n.
        q: [m, m], of the same type.
        prog: Sequence that the call is appended to.
        name: Name of the call.

    Raises:
        TensorError: Shapes that do not fit.
        TypeMismatchError: Elements of other types, or of two types.
    """
    for label, tensor in (("a", a), ("q", q)):
        rows.check_matrix("qr_factorization", label, tensor)
    m, n = a.shape
    if q.shape != (m, m):
        raise TensorError(f"qr_factorization: q of a {[m, n]} matrix is {[m, m]}, got {q!r}")
    if a.dtype != q.dtype:
        raise TypeMismatchError(f"qr_factorization takes operands of one type, got {a!r} and {q!r}")
    reflections = min(m - 1, n)
    flops = 4 * m * n * reflections + 4 * m * m * reflections
    call = graph.library_call(
        prog, "poplin.qr_factorization", inputs=(a,), outputs=(a, q), flops=flops, debug_name=name
    )
    with call as body:
        identity = graph.map_linear(graph.constant(q.dtype, (m, m), np.eye(m), name="identity"))
        body.add(Copy(identity, q))
        if reflections:
            counter = rows.new_counter(graph)
            rows.repeat(graph, body, reflections, counter, _reflection(graph, a, q.T, counter))


def _reflection(graph: Graph, a: Tensor, q: Tensor, counter: Tensor) -> Sequence:
    """One round: sums, their reduction, and the reflection of all rows."""
    m, columns = a.shape[0], a.shape[1] + q.shape[1]
    count = len(rows.rows_of(graph, m))
    # For each tile: products of column k with every column of A and Q, then row k, or zeros where another tile holds
    # it.
    partials = graph.map_rows(graph.variable(f32, (count, 2 * columns), name="partials"), range(count))
    column = rows.new_column(graph, m)
    inner = Sequence()
    summed = {"sums": partials[:, :columns], "pivot": partials[:, columns:]}
    _on_rows(graph, inner, "sum", codelet=partials_codelet(a.dtype), a=a, q=q, at=counter, column=column, each=summed)
    total = emit_reduce(graph, inner, partials, [0], "ADD", "total")
    every = total.expand_dims(0).broadcast_to((count, 2 * columns))
    known = {"sums": every[:, :columns], "pivot": every[:, columns:]}
    _on_rows(graph, inner, "reflect", codelet=reflect_codelet(a.dtype), a=a, q=q, at=counter, column=column, each=known)
    return inner


def _on_rows(
    graph: Graph,
    inner: Sequence,
    name: str,
    codelet: Any,
    a: Tensor,
    q: Tensor,
    at: Tensor,
    column: Tensor,
    each: dict[str, Tensor],
) -> None:
    """A superstep with one vertex per tile for its rows of ``a`` and ``q``; ``each`` has one row per vertex."""
    cs = graph.compute_set(name)
    for tiles, held, size in rows.shares(graph, a.shape[0]):
        number = tiles.stop - tiles.start
        operands: dict[str, Any] = {field: tensor[tiles] for field, tensor in each.items()}
        operands |= {"a": rows.flat(a[held], number), "q": rows.flat(q[held], number)}
        operands |= {"at": at.broadcast_to((number,)), "column": rows.flat(column[held], number)}
        operands |= {"n": a.shape[1], "m": q.shape[1], "first": held.start + size * np.arange(number)}
        cs.vertices(codelet, tile=np.arange(tiles.start, tiles.stop), **operands)
    inner.add(Execute(cs))
