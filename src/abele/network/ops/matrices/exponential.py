"""Exponentials of matrices: scaling, a polynomial, and squaring."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.control import while_
from abele.network.ops.linear import matmul
from abele.network.ops.matrices.composed import Composed, check_matrices, holds, identity, mapped
from abele.network.ops.reduction import reduce
from abele.network.ops.views import concat, reshape, slice_, transpose
from abele.network.registry import Gradients, Types, only, rule
from abele.numerics import f32

_SMALL = 0.5
"""Norm up to which eight terms of the series leave out less than an f32 keeps: 0.5⁹ / 9! is 5e-9."""
_TERMS = 8
_LIMIT = 100.0
"""Most doublings: f32 holds no larger norm."""


def matrix_exponential(net: BlockBuilder, a: Value) -> Value:
    """exp of matrices [b, n, n]."""
    return net.emit_like("matrix_exponential", [a], a)


@rule("matrix_exponential")
class MatrixExponentialRule(Composed):
    """Σ Aᵏ / k!."""

    def types(self, op: NetworkOp) -> Types:
        """The matrices'."""
        check_matrices(op.inputs[0], square=True)
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, a: Array) -> Array:
        """The series of A / 2ᵏ, squared k times."""
        norm = max(1.0, float(np.abs(a).sum(axis=1).max(initial=0)))
        doublings = math.ceil(math.log2(norm)) + 4 if math.isfinite(norm) else 0
        scaled = a / 2.0**doublings
        term = total = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
        for k in range(1, 18):
            term = term @ scaled / k
            total = total + term
        for _ in range(doublings):
            total = total @ total
        return total

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """Each matrix is halved as often as its norm asks for; those that need fewer squarings than others wait."""
        (a,) = inputs
        batch, n, _ = a.shape
        columns = reduce(net, mapped(net, apply("abs", arg(0)), a), [1])
        norm = reduce(net, columns, [1], "max", keep=True)
        needed = apply("ceil", apply("log", apply("max", arg(0) / _SMALL, 1.0)) * (1 / math.log(2.0)))
        doublings = mapped(net, apply("min", needed, _LIMIT), norm)
        left = reshape(net, doublings, (batch, 1, 1))
        scaled = mapped(net, arg(0) * apply("exp", arg(1) * -math.log(2.0)), a, left)
        one = identity(net, batch, n)
        total = mapped(net, arg(0) + arg(1) * (1 / _TERMS), one, scaled)
        for k in range(_TERMS - 1, 0, -1):
            total = mapped(net, arg(0) + arg(1) * (1 / k), one, matmul(net, scaled, total))

        def unfinished(body: BlockBuilder, left: Value, total: Value) -> Value:
            most = reduce(body, left, [0, 1, 2], "max")
            return holds(body, arg(0) > 0.5, most)

        def step(body: BlockBuilder, trip: Value, left: Value, total: Value) -> list[Value]:
            squared = matmul(body, total, total)
            chosen = mapped(body, select(arg(0) > 0.5, arg(1), arg(2)), left, squared, total)
            return [mapped(body, arg(0) - 1.0, left), chosen]

        return [while_(net, [left, total], unfinished, step)[1]]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The upper right block of exp [[Aᵀ, G], [0, Aᵀ]] (Najfeld and Havel, 1995)."""
        (a,), grad = op.inputs, only(grads)
        n, turned = a.shape[-1], transpose(net, a)
        zeros = net.constant(np.broadcast_to(np.zeros((), np.float32), a.shape), f32)
        above, below = concat(net, [turned, grad], 2), concat(net, [zeros, turned], 2)
        whole = matrix_exponential(net, concat(net, [above, below], 1))
        return [slice_(net, slice_(net, whole, 1, 0, n), 2, n, 2 * n)]
