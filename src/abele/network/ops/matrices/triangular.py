"""Triangles of matrices, and solves with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import select
from abele.expr.derivative import arg
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import map_
from abele.network.ops.linear import matmul
from abele.network.ops.matrices.composed import IN_BLOCKS, check_matrices
from abele.network.ops.views import transpose
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import bool_
from abele.poplibs import poplin

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def triangle(net: BlockBuilder, value: Value, *, lower: bool, offset: int = 0) -> Value:
    """``value`` [..., m, n] with zeros above (``lower``) or below the diagonal numbered ``offset``."""
    ones = np.ones(value.shape[-2:], bool)
    kept = np.tril(ones, offset) if lower else np.triu(ones, offset)
    zero = False if value.dtype == bool_ else 0.0 if value.dtype.is_float else 0
    return map_(net, select(arg(1), arg(0), zero), [value, net.constant(kept, bool_)])


def triangular_solve(net: BlockBuilder, a: Value, b: Value, *, lower: bool, unit: bool = False) -> Value:
    """X of A·X = B: A [b, n, n], of which one triangle is read, and B [b, n, r]."""
    return net.emit_like("triangular_solve", [a, b], b, lower=lower, unit=unit)


@rule("triangular_solve")
class TriangularSolveRule(OpRule):
    """Solutions of systems whose matrices have a triangle of zeros."""

    operands = 2
    attributes: ClassVar = {"lower": bool, "unit": bool}
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """The right-hand sides'."""
        a, b = op.inputs
        check_matrices(a, square=True)
        check_matrices(b)
        require(a.shape[:2] == b.shape[:2], f"{a} and {b} do not fit each other")
        return [b.type]

    def evaluate(self, op: NetworkOp, a: Array, b: Array) -> Array:
        """NumPy's solve of the triangle."""
        kept = np.tril(a) if op.attrs["lower"] else np.triu(a)
        if op.attrs["unit"]:
            kept = kept * (1 - np.eye(a.shape[-1])) + np.eye(a.shape[-1])
        return np.linalg.solve(kept, b)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One poplin solve."""
        a, b = (to[v] for v in op.inputs)
        lower, unit = op.attrs["lower"], op.attrs["unit"]
        return poplin.triangular_solve(
            to.graph, a, b, left_side=True, lower=lower, unit_diagonal=unit, prog=to.prog, options=IN_BLOCKS
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """By B a solve with the transpose; by A the triangle of minus that times Xᵀ."""
        a, lower, unit = op.inputs[0], op.attrs["lower"], op.attrs["unit"]
        by_b = triangular_solve(net, transpose(net, a), only(grads), lower=not lower, unit=unit)
        if not wanted[0]:
            return [None, by_b]
        outer = matmul(net, map_(net, -arg(0), [by_b]), transpose(net, op.output))
        offset = int(unit) * (-1 if lower else 1)
        return [triangle(net, outer, lower=lower, offset=offset), by_b]


# Cholesky factors.


def cholesky(net: BlockBuilder, a: Value) -> Value:
    """L with L·Lᵀ = A, from the lower triangles of symmetric positive definite matrices [b, n, n]."""
    return net.emit_like("cholesky", [a], a)


@rule("cholesky")
class CholeskyRule(OpRule):
    """The lower factor; not-a-numbers where a matrix is not positive definite."""

    folds = False

    def types(self, op: NetworkOp) -> Types:
        """The matrices'."""
        check_matrices(op.inputs[0], square=True)
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, a: Array) -> Array:
        """NumPy's factor."""
        return np.linalg.cholesky(a)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One poplin factorisation."""
        return poplin.cholesky(to.graph, to[op.inputs[0]], True, to.prog, options=IN_BLOCKS)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """L⁻ᵀ·Φ(Lᵀ·G)·L⁻¹ made symmetric, where Φ is the lower triangle with half of the diagonal (Murray, 2016)."""
        factor = op.output
        upper = transpose(net, factor)
        inner = triangle(net, matmul(net, upper, triangle(net, only(grads), lower=True)), lower=True)
        diagonal = net.constant(np.eye(factor.shape[-1]), bool_)
        inner = map_(net, select(arg(1), arg(0) * 0.5, arg(0)), [inner, diagonal])
        left = triangular_solve(net, upper, inner, lower=False)
        both = transpose(net, triangular_solve(net, upper, transpose(net, left), lower=False))
        return [map_(net, (arg(0) + arg(1)) * 0.5, [both, transpose(net, both)])]
