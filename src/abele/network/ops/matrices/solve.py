"""Solutions of square systems, and inverses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.elementwise import map_
from abele.network.ops.linear import matmul
from abele.network.ops.matrices.composed import Composed, check_matrices, identity, one_hot
from abele.network.ops.matrices.lu import lu
from abele.network.ops.matrices.triangular import triangular_solve
from abele.network.ops.views import transpose
from abele.network.registry import Gradients, Types, only, require, rule
from abele.numerics import i32


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
