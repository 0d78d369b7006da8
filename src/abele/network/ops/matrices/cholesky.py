"""Cholesky factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Array
from abele.expr import select
from abele.expr.derivative import arg
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import map_
from abele.network.ops.linear import matmul
from abele.network.ops.matrices.composed import IN_BLOCKS, check_matrices
from abele.network.ops.matrices.triangular import triangle, triangular_solve
from abele.network.ops.views import transpose
from abele.network.registry import Gradients, OpRule, Types, only, rule
from abele.numerics import bool_
from abele.poplibs import poplin

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


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
