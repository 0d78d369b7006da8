"""QR factorisation by Householder's reflections, for stacks of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.graph import Graph, Tensor
from abele.graph import Sequence as Steps
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.control import loop
from abele.network.ops.linear import matmul
from abele.network.ops.matrices.composed import Composed, check_matrices, holds, mapped, numbers, times
from abele.network.ops.matrices.triangular import triangle, triangular_solve
from abele.network.ops.reduction import reduce
from abele.network.ops.rows import read_row, write_row
from abele.network.ops.views import concat, permute, reshape, slice_, transpose
from abele.network.registry import Gradients, Types, no_derivative, require, rule
from abele.numerics import f32
from abele.poplibs.poplin.linalg.host import host_qr


def qr(net: BlockBuilder, a: Value, *, complete: bool = False) -> tuple[Value, Value]:
    """Q and R with A = Q·R of matrices [b, m, n]: Q has as many columns as A has rows and columns, or all m.

    The derivative is of the reduced form, or of square matrices.
    """
    batch, m, n = a.shape
    columns = m if complete else min(m, n)
    q, r = net.emit_many("qr", [a], [((batch, m, columns), f32), ((batch, columns, n), f32)], complete=complete)
    return q, r


def householder_columns(net: BlockBuilder, a: Value) -> tuple[Value, Value]:
    """R from the diagonal on and the reflections' vectors below it, as one stack, and their factors [b, k].

    Each step makes a column zero below the diagonal by a reflection I − τ·v·vᵀ with v = 1 on the diagonal, and carries
    it out on the columns behind. v's sign is the one that adds to the diagonal instead of cancelling.
    """
    batch, m, n = a.shape
    k = min(m, n)
    rows, index = numbers(net, m, 2, 1), numbers(net, n, 3, 0)
    start = [permute(net, a, (2, 0, 1)), net.constant(np.zeros((k, batch)), f32)]

    def step(body: BlockBuilder, trip: Value, work: Value, factors: Value) -> list[Value]:
        column = read_row(body, work, trip)
        at = holds(body, arg(0).eq(arg(1)), rows, trip)
        below = holds(body, arg(0) > arg(1), rows, trip)
        head = reduce(body, mapped(body, select(arg(1), arg(0), 0.0), column, at), [1], keep=True)
        tail = reduce(body, mapped(body, select(arg(1), arg(0) * arg(0), 0.0), column, below), [1], keep=True)
        norm = apply("sqrt", arg(0) * arg(0) + arg(1))
        # Nothing below the diagonal: no reflection.
        beta = mapped(body, select(arg(1).eq(0.0), arg(0), select(arg(0) < 0.0, norm, -norm)), head, tail)
        factor = select(arg(2).eq(0.0), 0.0, (arg(1) - arg(0)) / arg(1))
        tau = mapped(body, factor, head, beta, tail)
        entry = select(arg(4), arg(0) / select(arg(3).eq(0.0), 1.0, arg(1) - arg(2)), select(arg(5), 1.0, 0.0))
        vector = mapped(body, entry, *(column, head, beta, tail, below, at))
        along = reduce(body, mapped(body, arg(0) * arg(1), work, vector), [2], keep=True)
        later = holds(body, arg(0) > arg(1), index, trip)
        here = holds(body, arg(0).eq(arg(1)), index, trip)
        reflected = select(arg(4), arg(0) - arg(3) * arg(1) * arg(2), arg(0))
        packed = select(arg(6), arg(1), select(arg(7), arg(8), arg(0)))
        update = select(arg(5), packed, reflected)
        work = mapped(body, update, *(work, vector, along, tau, later, here, below, at, beta))
        return [work, write_row(body, factors, reshape(body, tau, (batch,)), trip)]

    work, factors = loop(net, k, start, step)
    return permute(net, work, (1, 2, 0)), permute(net, factors, (1, 0))


def householder_product(net: BlockBuilder, packed: Value, factors: Value, columns: int) -> Value:
    """The first columns of the product of reflections: their vectors below the diagonal [b, m, ≥ k], factors [b, k]."""
    batch, m, _ = packed.shape
    k = factors.shape[1]
    vectors = permute(net, packed, (2, 0, 1))
    taus = permute(net, factors, (1, 0))
    rows = numbers(net, m, 2, 1)
    start = net.constant(np.broadcast_to(np.eye(columns, m)[:, None], (columns, batch, m)), f32)

    def step(body: BlockBuilder, trip: Value, product: Value) -> list[Value]:
        # The last reflection comes first, so that each only changes what those after it have filled.
        number = mapped(body, (k - 1) - arg(0), trip, dtype=trip.dtype)
        column, tau = read_row(body, vectors, number), read_row(body, taus, number)
        entry = select(arg(1) > arg(2), arg(0), select(arg(1).eq(arg(2)), 1.0, 0.0))
        vector = mapped(body, entry, column, rows, number)
        along = reduce(body, mapped(body, arg(0) * arg(1), product, vector), [2], keep=True)
        scale = reshape(body, tau, (batch, 1))
        return [mapped(body, arg(0) - arg(3) * arg(1) * arg(2), product, vector, along, scale)]

    (product,) = loop(net, k, [start], step)
    return permute(net, product, (1, 2, 0))


@rule("qr")
class QrRule(Composed):
    """An orthogonal and an upper triangular factor, with the signs that LAPACK's reflections give."""

    attributes = {"complete": bool}  # noqa: RUF012

    def types(self, op: NetworkOp) -> Types:
        """Types of the results of :func:`qr`."""
        check_matrices(op.inputs[0])
        batch, m, n = op.inputs[0].shape
        require(min(m, n) > 0, f"{op.inputs[0]} has no elements")
        columns = m if op.attrs["complete"] else min(m, n)
        return [((batch, m, columns), f32), ((batch, columns, n), f32)]

    def evaluate(self, op: NetworkOp, a: Array) -> tuple[Array, Array]:
        """NumPy's factors."""
        found = np.linalg.qr(a, mode="complete" if op.attrs["complete"] else "reduced")
        return found[0], found[1]

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """Reflections, and their product."""
        (a,) = inputs
        packed, factors = householder_columns(net, a)
        columns = op.outputs[0].shape[2]
        q = householder_product(net, packed, factors, columns)
        return [q, triangle(net, slice_(net, packed, 1, 0, columns), lower=False)]

    def host_body(self, graph: Graph, given: Sequence[Tensor], results: Sequence[Tensor], name: str) -> Steps:
        """The same by rows, of which each step goes on with what is left."""
        q, r = results
        return host_qr(graph, given[0], q, r, name)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """(G_Q + Q·C(R·G_Rᵀ − G_Qᵀ·Q))·R⁻ᵀ, where C copies the lower triangle to the upper one.

        Of a wide matrix the columns beyond the square are Q times those of R: they add to the gradient of Q.
        """
        (a,), (q, r) = op.inputs, op.outputs
        _, m, n = a.shape
        if op.attrs["complete"] and m > n:
            raise no_derivative(op, "a complete QR factorisation of a tall matrix", "use the reduced one")
        by_q, by_r = grads
        wide = n > m
        # Only the square part of R is solved with.
        square = slice_(net, r, 2, 0, m) if wide else r
        by_square = None if by_r is None else slice_(net, by_r, 2, 0, m) if wide else by_r
        # The other columns are B = Q·R_B: their gradient is Q·G_B, and Q gets B·G_Bᵀ.
        rest = None
        if wide and by_r is not None:
            by_rest = slice_(net, by_r, 2, m, n)
            rest = times(net, q, by_rest)
            added = times(net, slice_(net, a, 2, m, n), transpose(net, by_rest))
            by_q = added if by_q is None else mapped(net, arg(0) + arg(1), by_q, added)
        # M = R·G_Rᵀ − G_Qᵀ·Q, of which either term may be missing.
        parts = []
        if by_square is not None:
            parts.append(times(net, square, transpose(net, triangle(net, by_square, lower=False))))
        if by_q is not None:
            parts.append(mapped(net, -arg(0), times(net, transpose(net, by_q), q)))
        inner = parts[0] if len(parts) == 1 else mapped(net, arg(0) + arg(1), *parts)
        # C(M) is the lower triangle plus its mirror image without the diagonal.
        lower, strict = triangle(net, inner, lower=True), triangle(net, inner, lower=True, offset=-1)
        both = mapped(net, arg(0) + arg(1), lower, transpose(net, strict))
        total = matmul(net, q, both)
        total = total if by_q is None else mapped(net, arg(0) + arg(1), total, by_q)
        # X·R⁻ᵀ is the transpose of R⁻¹·Xᵀ: one triangular solve.
        result = transpose(net, triangular_solve(net, square, transpose(net, total), lower=False))
        if not wide:
            return [result]
        if rest is None:
            rest = net.constant(np.zeros((a.shape[0], m, n - m)), f32)
        return [concat(net, [result, rest], 2)]
