"""Moore and Penrose's inverses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.matrices.composed import Composed, check_matrices, mapped, times
from abele.network.ops.matrices.jacobi import orthogonal_columns
from abele.network.ops.reduction import reduce
from abele.network.ops.views import reshape, transpose
from abele.network.registry import Gradients, Types, only, require, rule
from abele.numerics import f32


def pseudo_inverse(net: BlockBuilder, a: Value, absolute: Value, relative: Value) -> Value:
    """Pseudo-inverses [b, n, m] of matrices [b, m, n].

    Args:
        net: Network or block to extend.
        a: The matrices.
        absolute: Singular values up to this count as zero, [b].
        relative: So do those up to this share of the largest, [b].
    """
    batch, m, n = a.shape
    return net.emit("pseudo_inverse", [a, absolute, relative], (batch, n, m), f32)


@rule("pseudo_inverse")
class PseudoInverseRule(Composed):
    """The inverse on what the matrix does not make zero, and zero elsewhere."""

    operands = 3

    def types(self, op: NetworkOp) -> Types:
        """Rows and columns swapped."""
        a, *limits = op.inputs
        check_matrices(a)
        batch, m, n = a.shape
        require(all(v.type == ((batch,), f32) for v in limits), f"limits of {a} are f32[{batch}]")
        return [((batch, n, m), f32)]

    def evaluate(self, op: NetworkOp, a: Array, absolute: Array, relative: Array) -> Array:
        """Pseudo-inverse by NumPy's singular values."""
        u, s, v = np.linalg.svd(a, full_matrices=False)
        limit = np.maximum(absolute, relative * s.max(axis=1, initial=0))[:, None]
        inverse = np.where(s > limit, 1 / np.where(s > limit, s, 1), 0)
        return np.asarray(np.swapaxes(v, 1, 2) * inverse[:, None] @ np.swapaxes(u, 1, 2))

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """A·V has columns σ·u: the pseudo-inverse is V times their transposes over σ²."""
        a, absolute, relative = inputs
        tall = a.shape[1] >= a.shape[2]
        columns, turns = orthogonal_columns(net, a if tall else transpose(net, a))
        batch = a.shape[0]
        squares = reduce(net, mapped(net, arg(0) * arg(0), columns), [2], keep=True)
        largest = reduce(net, squares, [1], "max", keep=True)
        limits = [reshape(net, v, (batch, 1, 1)) for v in (absolute, relative)]
        limit = apply("max", arg(3), arg(4) * apply("sqrt", arg(2)))
        kept = select(apply("sqrt", arg(1)) > limit, arg(0) / arg(1), 0.0)
        scaled = mapped(net, kept, columns, squares, largest, *limits)
        result = times(net, transpose(net, turns), scaled)
        return [result if tall else transpose(net, result)]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """−Pᵀ·G·Pᵀ + (1 − A·P)·Gᵀ·P·Pᵀ + Pᵀ·P·Gᵀ·(1 − P·A) (Golub and Pereyra, 1973)."""
        a, p, grad = op.inputs[0], op.output, only(grads)
        turned, by = transpose(net, p), transpose(net, grad)
        inner = times(net, turned, grad, turned)
        left = times(net, by, p, turned)
        left = mapped(net, arg(0) - arg(1), left, times(net, a, times(net, p, left)))
        right = times(net, turned, p, by)
        right = mapped(net, arg(0) - arg(1), right, times(net, times(net, right, p), a))
        return [mapped(net, arg(1) + arg(2) - arg(0), inner, left, right), None, None]
