"""Eigenvalues and eigenvectors of symmetric matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.matrices.composed import (
    Composed,
    check_matrices,
    identity,
    mapped,
    on_diagonal,
    one_hot,
    ranks,
    times,
)
from abele.network.ops.matrices.jacobi import orthogonal_columns
from abele.network.ops.reduction import reduce
from abele.network.ops.views import reshape, transpose
from abele.network.registry import Gradients, Types, rule
from abele.numerics import bool_, f32


def eigh(net: BlockBuilder, a: Value) -> tuple[Value, Value]:
    """Eigenvalues [b, n] in ascending order, and vectors as columns, of symmetric matrices [b, n, n]."""
    w, v = net.emit_many("eigh", [a], [(a.shape[:2], f32), a.type])
    return w, v


@rule("eigh")
class EighRule(Composed):
    """A·V = V·diag w with an orthogonal V."""

    def types(self, op: NetworkOp) -> Types:
        """Types of the results of :func:`eigh`."""
        check_matrices(op.inputs[0], square=True)
        return [(op.inputs[0].shape[:2], f32), op.inputs[0].type]

    def evaluate(self, op: NetworkOp, a: Array) -> tuple[Array, Array]:
        """NumPy's."""
        found = np.linalg.eigh(a)
        return found[0], found[1]

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """The rotations that make the columns of A + c·1 orthogonal, with c no less than any eigenvalue's size.

        Without the shift, eigenvalues that differ in sign alone would be one singular value twice, whose vectors may
        be any of a plane. The values are then those of the vectors and A itself, so that the shift costs them no
        digits.
        """
        (a,) = inputs
        batch, n, _ = a.shape
        sums = reduce(net, mapped(net, apply("abs", arg(0)), a), [2])
        bound = reshape(net, reduce(net, sums, [1], "max"), (batch, 1, 1))
        shifted = mapped(net, arg(0) + arg(1) * arg(2), a, identity(net, batch, n), bound)
        _, turns = orthogonal_columns(net, shifted)
        values = reduce(net, mapped(net, arg(0) * arg(1), times(net, turns, a), turns), [2])
        order = one_hot(net, ranks(net, values), n)
        w = reshape(net, times(net, order, reshape(net, values, (batch, n, 1))), (batch, n))
        return [w, transpose(net, times(net, order, turns))]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """V·(Vᵀ·G_V over differences of eigenvalues, G_w on the diagonal)·Vᵀ, for distinct eigenvalues."""
        (w, v), (by_w, by_v) = op.outputs, grads
        inner = None if by_w is None else on_diagonal(net, by_w)
        if by_v is not None:
            batch, n = w.shape
            product = times(net, transpose(net, v), by_v)
            across, down = reshape(net, w, (batch, 1, n)), reshape(net, w, (batch, n, 1))
            # Vectors stay orthogonal: of the product only the part that turns them counts.
            ratio = select(arg(4), 0.0, (arg(0) - arg(1)) * 0.5 / (arg(2) - arg(3)))
            diagonal = net.constant(np.eye(n), bool_)
            part = mapped(net, ratio, *(product, transpose(net, product), across, down, diagonal))
            inner = part if inner is None else mapped(net, arg(0) + arg(1), inner, part)
        assert inner is not None
        return [times(net, v, inner, transpose(net, v))]
