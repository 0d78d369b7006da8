"""Determinants, and their signs and logarithms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.matrices.composed import Composed, check_matrices, diagonal, mapped
from abele.network.ops.matrices.lu import lu
from abele.network.ops.matrices.solve import inverse
from abele.network.ops.reduction import reduce
from abele.network.ops.views import reshape, transpose
from abele.network.registry import Gradients, Types, only, require, rule
from abele.numerics import f32, i32


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
