"""LU factorisation with partial pivoting, column by column.

Rows stay where they are: each has the number of its place in the order of the factorisation, and exchanging two rows
exchanges these numbers. The rows that step k has not reached are those whose place is k or later; of them the one with
the largest element in column k becomes row k. The elimination is a rank-one update of all other rows behind, one map
over the whole stack; only at the end the rows are brought into order, by a product with the permutation. Exchanging
rows at every step instead would move data between tiles whose addresses are only known at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.graph import Graph, Tensor
from abele.graph import Sequence as Steps
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.control import loop
from abele.network.ops.elementwise import map_
from abele.network.ops.linear import matmul
from abele.network.ops.matrices.composed import (
    Composed,
    check_matrices,
    diagonal,
    holds,
    identity,
    mapped,
    numbers,
    one_hot,
    times,
)
from abele.network.ops.matrices.triangular import triangle, triangular_solve
from abele.network.ops.reduction import reduce
from abele.network.ops.rows import read_row, write_row
from abele.network.ops.views import concat, permute, reshape, slice_, transpose
from abele.network.registry import Gradients, Types, only, require, rule
from abele.numerics import f32, i32
from abele.poplibs.poplin.linalg.host import host_lu


def lu(net: BlockBuilder, a: Value) -> tuple[Value, Value, Value]:
    """Factors of matrices [b, m, n], with k the smaller of m and n.

    Returns:
        L below and U from the diagonal on, as one stack [b, m, n]; the place [b, m] that each row of A has in L·U; and
        for each of the k steps [b, k] the row, counted from 0, that it exchanged with its own.
    """
    batch, m, n = a.shape
    kinds = [a.type, ((batch, m), i32), ((batch, min(m, n)), i32)]
    packed, places, swaps = net.emit_many("lu", [a], kinds)
    return packed, places, swaps


def permutation_of_swaps(net: BlockBuilder, swaps: Value, rows: int) -> Value:
    """The place [b, rows] that each row has after exchanges [b, k] of row i with that of number ``swaps[i]``."""
    batch, steps = swaps.shape
    columns = permute(net, swaps, (1, 0))
    origin = net.constant(np.broadcast_to(np.arange(rows), (batch, rows)), i32)

    def step(body: BlockBuilder, trip: Value, places: Value) -> list[Value]:
        other = reshape(body, read_row(body, columns, trip), (batch, 1))
        moved = select(arg(0).eq(arg(1)), arg(2), select(arg(0).eq(arg(2)), arg(1), arg(0)))
        return [mapped(body, moved, places, trip, other, dtype=i32)]

    return loop(net, steps, [origin], step)[0]


@rule("lu")
class LuRule(Composed):
    """P·A = L·U: both factors in one stack, the places of rows, and the exchanges."""

    def types(self, op: NetworkOp) -> Types:
        """Types of the results of :func:`lu`."""
        check_matrices(op.inputs[0])
        batch, m, n = op.inputs[0].shape
        return [op.inputs[0].type, ((batch, m), i32), ((batch, min(m, n)), i32)]

    def evaluate(self, op: NetworkOp, a: Array) -> tuple[Array, Array, Array]:
        """Rows exchanged and eliminated, matrix by matrix."""
        factors = [_factorised(matrix) for matrix in a]
        results = [np.array([f[i] for f in factors]).reshape(v.shape) for i, v in enumerate(op.outputs)]
        return results[0], results[1], results[2]

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """A loop over columns, then the rows in order."""
        (a,) = inputs
        batch, m, n = a.shape
        columns = permute(net, a, (2, 0, 1))
        index = numbers(net, n, 3, 0)
        places = net.constant(np.broadcast_to(np.arange(m), (batch, m)), i32)
        swaps = net.constant(np.zeros((min(m, n), batch)), i32)

        def step(body: BlockBuilder, trip: Value, work: Value, places: Value, swaps: Value) -> list[Value]:
            column = read_row(body, work, trip)
            size = mapped(body, select(arg(1) < arg(2), -1.0, apply("abs", arg(0))), column, places, trip)
            best = reduce(body, size, [1], "max", keep=True)
            # Of equal candidates the first in the present order. A column of not-a-numbers has none, and keeps its row.
            candidate = mapped(body, select(arg(0).eq(arg(1)), arg(2), m), size, best, places, dtype=i32)
            chosen = reduce(body, candidate, [1], "min", keep=True)
            chosen = mapped(body, select(arg(0) < m, arg(0), arg(1)), chosen, trip, dtype=i32)
            is_pivot = holds(body, arg(0).eq(arg(1)), places, chosen)
            # Exchange: the pivot row takes place k, and the row that had it takes the pivot's.
            moved = select(arg(0).eq(arg(1)), arg(2), select(arg(0).eq(arg(2)), arg(1), arg(0)))
            places = mapped(body, moved, places, chosen, trip, dtype=i32)
            pivots = reduce(body, mapped(body, select(arg(1), arg(0), 0.0), work, is_pivot), [2], keep=True)
            pivot = read_row(body, pivots, trip)
            # A pivot of zero leaves its column as it is, which is zero.
            share = select(arg(2) > arg(3), arg(0) / select(arg(1).eq(0.0), 1.0, arg(1)), 0.0)
            factor = mapped(body, share, column, pivot, places, trip)
            beyond = holds(body, arg(0) > arg(1), index, trip)
            here = holds(body, arg(0).eq(arg(1)), index, trip)
            below = holds(body, arg(0) > arg(1), places, trip)
            update = select(arg(3), arg(0) - arg(1) * arg(2), arg(0))
            update = select(apply("and", arg(4), arg(5)), arg(1), update)
            work = mapped(body, update, *(work, factor, pivots, beyond, here, below))
            swaps = write_row(body, swaps, reshape(body, chosen, (batch,)), trip)
            return [work, places, swaps]

        work, places, swaps = loop(net, min(m, n), [columns, places, swaps], step)
        ordered = matmul(net, one_hot(net, places, m), permute(net, work, (1, 2, 0)))
        return [ordered, places, permute(net, swaps, (1, 0))]

    def host_body(self, graph: Graph, given: Sequence[Tensor], results: Sequence[Tensor], name: str) -> Steps:
        """The same by rows, of which each step goes on with what is left."""
        packed, places, swaps = results
        return host_lu(graph, given[0], packed, places, swaps, name)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Of P·A = L·U, with G the gradient of both factors: Pᵀ·L⁻ᵀ·(strict lower of Lᵀ·G_L + upper of G_U·Uᵀ)·U⁻ᵀ.

        Where one factor is longer than it is wide, what it has beyond the square is solved for by itself and taken out
        of the square's part.
        """
        grad = grads[0]
        if grad is None:
            return [None]
        packed, places, _ = op.outputs
        _, m, n = packed.shape
        k = min(m, n)
        square = slice_(net, slice_(net, packed, 1, 0, k), 2, 0, k)
        by_square = slice_(net, slice_(net, grad, 1, 0, k), 2, 0, k)
        by_lower, by_upper = triangle(net, by_square, lower=True, offset=-1), triangle(net, by_square, lower=False)
        upper = triangle(net, square, lower=False)
        strict = triangle(net, square, lower=True, offset=-1)
        unit = mapped(net, arg(0) + arg(1), strict, net.constant(np.eye(k), f32))
        left, right = times(net, transpose(net, unit), by_lower), times(net, by_upper, transpose(net, upper))
        if n > k:
            wide, by_wide = slice_(net, packed, 2, k, n), slice_(net, grad, 2, k, n)
            left = mapped(net, arg(0) - arg(1), left, times(net, by_wide, transpose(net, wide)))
        if m > k:
            tall, by_tall = slice_(net, packed, 1, k, m), slice_(net, grad, 1, k, m)
            right = mapped(net, arg(0) - arg(1), right, times(net, transpose(net, tall), by_tall))
        inner = mapped(
            net, arg(0) + arg(1), triangle(net, left, lower=True, offset=-1), triangle(net, right, lower=False)
        )
        solved = triangular_solve(net, transpose(net, unit), inner, lower=False, unit=True)
        result = _divided(net, solved, upper)
        if n > k:
            rest = triangular_solve(net, transpose(net, unit), by_wide, lower=False, unit=True)
            result = concat(net, [result, rest], 2)
        if m > k:
            result = concat(net, [result, _divided(net, by_tall, upper)], 1)
        return [times(net, transpose(net, one_hot(net, places, m)), result)]


def _divided(net: BlockBuilder, value: Value, upper: Value) -> Value:
    """``value`` · U⁻ᵀ."""
    return transpose(net, triangular_solve(net, upper, transpose(net, value), lower=False))


def _factorised(a: Array) -> tuple[Array, Array, Array]:
    work, order = np.array(a), np.arange(len(a))
    swaps = np.zeros(min(a.shape), np.int64)
    for k in range(min(a.shape)):
        swaps[k] = other = k + int(np.argmax(np.abs(work[k:, k])))
        work[[k, other]], order[[k, other]] = work[[other, k]], order[[other, k]]
        if work[k, k] != 0:
            work[k + 1 :, k] /= work[k, k]
        work[k + 1 :, k + 1 :] -= np.outer(work[k + 1 :, k], work[k, k + 1 :])
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return work, places, swaps


# Solutions of square systems, and inverses.


def solve(net: BlockBuilder, a: Value, b: Value, factors: tuple[Value, Value] | None = None) -> Value:
    """X of A·X = B: A [b, n, n] and B [b, n, r].

    Args:
        net: Network or block to extend.
        a: The matrices.
        b: Right-hand sides.
        factors: The first two results of :func:`lu` of ``a``, where they are known.
    """
    packed, places = factors or lu(net, a)[:2]
    return net.emit_like("solve", [a, packed, places, b], b, transposed=False)


def inverse(net: BlockBuilder, a: Value) -> Value:
    """Inverses of matrices [b, n, n]."""
    return solve(net, a, identity(net, a.shape[0], a.shape[1]))


@rule("solve")
class SolveRule(Composed):
    """Solutions for A or its transpose, of which the factors with pivoting are given beside it."""

    operands = 4
    attributes: ClassVar = {"transposed": bool}

    def types(self, op: NetworkOp) -> Types:
        """The right-hand sides'."""
        a, packed, places, b = op.inputs
        check_matrices(a, square=True)
        check_matrices(b)
        require(packed.type == a.type and a.shape[:2] == b.shape[:2], f"{packed}, {a} and {b} do not fit each other")
        require(places.type == (a.shape[:2], i32), f"{places} are no places of the rows of {a}")
        return [b.type]

    def evaluate(self, op: NetworkOp, a: Array, packed: Array, places: Array, b: Array) -> Array:
        """NumPy's solve."""
        return np.linalg.solve(np.swapaxes(a, 1, 2) if op.attrs["transposed"] else a, b)

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """Two triangular solves, and a product with the permutation."""
        _, packed, places, b = inputs
        order = one_hot(net, places, packed.shape[1])
        if not op.attrs["transposed"]:
            inner = triangular_solve(net, packed, matmul(net, order, b), lower=True, unit=True)
            return [triangular_solve(net, packed, inner, lower=False)]
        turned = transpose(net, packed)
        inner = triangular_solve(net, turned, b, lower=True)
        return [matmul(net, transpose(net, order), triangular_solve(net, turned, inner, lower=False, unit=True))]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """Gradients: by B a solve G with the transpose; by A it is −G Xᵀ, or −X Gᵀ where ``transposed``."""
        a, packed, places, _ = op.inputs
        grad, transposed = only(grads), op.attrs["transposed"]
        by_b = net.emit_like("solve", [a, packed, places, grad], grad, transposed=not transposed)
        if not wanted[0]:
            return [None, None, None, by_b]
        left, right = (op.output, by_b) if transposed else (by_b, op.output)
        by_a = matmul(net, map_(net, -arg(0), [left]), transpose(net, right))
        return [by_a, None, None, by_b]


# Determinants, and their signs and logarithms.


def determinant(net: BlockBuilder, a: Value, factors: tuple[Value, Value, Value] | None = None) -> Value:
    """Determinants [b] of matrices [b, n, n]; ``factors`` are the results of :func:`lu`, where they are known."""
    packed, _, swaps = factors or lu(net, a)
    return net.emit("determinant", [a, packed, swaps], a.shape[:1], f32)


def log_determinant(
    net: BlockBuilder, a: Value, factors: tuple[Value, Value, Value] | None = None
) -> tuple[Value, Value]:
    """Signs and logarithms [b] of the absolute values of determinants."""
    packed, _, swaps = factors or lu(net, a)
    kind = (a.shape[:1], f32)
    sign, size = net.emit_many("log_determinant", [a, packed, swaps], [kind, kind])
    return sign, size


def _sign_of_swaps(net: BlockBuilder, swaps: Value) -> Value:
    """−1 for an odd number of exchanges [b, n], else 1."""
    steps = net.constant(np.arange(swaps.shape[1]), i32)
    signs = mapped(net, select(arg(0).eq(arg(1)), 1.0, -1.0), swaps, steps)
    return reduce(net, signs, [1], "mul")


class _OfFactors(Composed):
    """A number of a matrix, made of the factors that are given beside it."""

    operands = 3

    def types(self, op: NetworkOp) -> Types:
        """One number for each matrix, for each result."""
        a, packed, swaps = op.inputs
        check_matrices(a, square=True)
        require(packed.type == a.type and swaps.type == (a.shape[:2], i32), f"{packed} and {swaps} are not of {a}")
        return [(a.shape[:1], f32)] * len(op.outputs)

    def _by_matrix(self, net: BlockBuilder, op: NetworkOp, factor: Value) -> Gradients:
        """``factor`` of each matrix times its inverse transposed."""
        turned = transpose(net, inverse(net, op.inputs[0]))
        return [mapped(net, arg(0) * arg(1), turned, reshape(net, factor, (-1, 1, 1))), None, None]


@rule("determinant")
class DeterminantRule(_OfFactors):
    """Determinants."""

    def evaluate(self, op: NetworkOp, a: Array, packed: Array, swaps: Array) -> Array:
        """NumPy's."""
        return np.asarray(np.linalg.det(a))

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """The product of U's diagonal."""
        _, packed, swaps = inputs
        product = reduce(net, diagonal(net, packed), [1], "mul")
        return [mapped(net, arg(0) * arg(1), product, _sign_of_swaps(net, swaps))]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The determinant times the inverse transposed."""
        return self._by_matrix(net, op, mapped(net, arg(0) * arg(1), only(grads), op.output))


@rule("log_determinant")
class LogDeterminantRule(_OfFactors):
    """Signs, and logarithms of absolute values."""

    def evaluate(self, op: NetworkOp, a: Array, packed: Array, swaps: Array) -> tuple[Array, Array]:
        """NumPy's."""
        sign, size = np.linalg.slogdet(a)
        return np.asarray(sign), np.asarray(size)

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """The sum of the logarithms of U's diagonal."""
        _, packed, swaps = inputs
        found = diagonal(net, packed)
        signs = reduce(net, mapped(net, apply("signum", arg(0)), found), [1], "mul")
        size = reduce(net, mapped(net, apply("log", apply("abs", arg(0))), found), [1])
        return [mapped(net, arg(0) * arg(1), signs, _sign_of_swaps(net, swaps)), size]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The inverse transposed; the sign does not change."""
        return [None, None, None] if grads[1] is None else self._by_matrix(net, op, grads[1])
