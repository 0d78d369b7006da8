"""Singular value decompositions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.matrices.composed import (
    Composed,
    check_matrices,
    diagonal,
    mapped,
    on_diagonal,
    one_hot,
    ranks,
    times,
)
from abele.network.ops.matrices.jacobi import orthogonal_columns
from abele.network.ops.matrices.qr import householder_columns, householder_product
from abele.network.ops.reduction import reduce
from abele.network.ops.views import concat, reshape, slice_, transpose
from abele.network.registry import Gradients, Types, no_derivative, only, require, rule
from abele.numerics import bool_, f32

# Moore and Penrose's inverses.


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


def svd(net: BlockBuilder, a: Value, *, full: bool = False, vectors: bool = True) -> tuple[Value, Value, Value]:
    """U, σ in descending order, and Vᵀ with A = U·diag σ·Vᵀ, of matrices [b, m, n].

    Args:
        net: Network or block to extend.
        a: The matrices.
        full: U and V are square; otherwise they have as many columns as there are singular values.
        vectors: False where σ alone is wanted: U and Vᵀ are then zeros, and the derivative computes them.
    """
    batch, m, n = a.shape
    k = min(m, n)
    shapes = [(batch, m, m if full else k), (batch, k), (batch, n if full else k, n)]
    u, s, v = net.emit_many("svd", [a], [(shape, f32) for shape in shapes], full=full, vectors=vectors)
    return u, s, v


@rule("svd")
class SvdRule(Composed):
    """Singular values, and vectors on both sides."""

    attributes: ClassVar = {"full": bool, "vectors": bool}

    def types(self, op: NetworkOp) -> Types:
        """Types of the results of :func:`svd`."""
        check_matrices(op.inputs[0])
        batch, m, n = op.inputs[0].shape
        require(min(m, n) > 0, f"{op.inputs[0]} has no elements")
        k, full = min(m, n), op.attrs["full"]
        return [((batch, m, m if full else k), f32), ((batch, k), f32), ((batch, n if full else k, n), f32)]

    def evaluate(self, op: NetworkOp, a: Array) -> tuple[Array, Array, Array]:
        """NumPy's."""
        if not op.attrs["vectors"]:
            zeros = [np.zeros(v.shape) for v in op.outputs]
            return zeros[0], np.linalg.svd(a, compute_uv=False), zeros[2]
        found = np.linalg.svd(a, full_matrices=op.attrs["full"])
        return found[0], found[1], found[2]

    def compose(self, net: BlockBuilder, op: NetworkOp, *inputs: Value) -> Sequence[Value]:
        """Rotations of the columns, or of the rows where those are fewer, then everything in order.

        U is the orthogonal factor of the rotated columns, which are R's diagonal times it: dividing by σ instead would
        leave nothing to divide where σ is zero.
        """
        (a,) = inputs
        tall = a.shape[1] >= a.shape[2]
        columns, turns = orthogonal_columns(net, a if tall else transpose(net, a))
        squares = reduce(net, mapped(net, arg(0) * arg(0), columns), [2])
        sizes = mapped(net, apply("sqrt", arg(0)), squares)
        order = one_hot(net, ranks(net, sizes, descending=True), sizes.shape[1])
        s = reshape(net, times(net, order, reshape(net, sizes, (*sizes.shape, 1))), sizes.shape)
        if not op.attrs["vectors"]:
            zeros = [net.constant(np.broadcast_to(np.zeros((), np.float32), v.shape), f32) for v in op.outputs]
            return [zeros[0], s, zeros[2]]
        sorted_columns, v = times(net, order, columns), times(net, order, turns)
        wanted = op.outputs[0 if tall else 2].shape[2 if tall else 1]
        u = _with_signs(net, transpose(net, sorted_columns), wanted)
        return [u, s, v] if tall else [transpose(net, v), s, transpose(net, u)]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The formula of Giles (2008), for distinct singular values where vectors have gradients."""
        (a,), (by_u, by_s, by_v) = op.inputs, grads
        if not op.attrs["vectors"]:
            assert by_s is not None
            u, _, v = svd(net, a)
            return [times(net, u, on_diagonal(net, by_s), v)]
        u, s, v = op.outputs
        if op.attrs["full"] and (by_u is not None or by_v is not None) and a.shape[1] != a.shape[2]:
            raise no_derivative(op, "a full singular value decomposition", "use full_matrices=False")
        k = s.shape[1]
        u, v = slice_(net, u, 2, 0, k), slice_(net, v, 1, 0, k)
        return [_gradient(net, (u, s, v), (by_u, by_s, by_v))]


def _with_signs(net: BlockBuilder, columns: Value, wanted: int) -> Value:
    """Columns [b, m, n], orthogonal to each other, of length 1 and as many as wanted."""
    batch, _, n = columns.shape
    packed, factors = householder_columns(net, columns)
    product = householder_product(net, packed, factors, wanted)
    signs = mapped(net, select(arg(0) < 0.0, -1.0, 1.0), diagonal(net, packed))
    signed = mapped(net, arg(0) * arg(1), slice_(net, product, 2, 0, n), reshape(net, signs, (batch, 1, n)))
    if wanted == n:
        return signed
    return concat(net, [signed, slice_(net, product, 2, n, wanted)], 2)


def _gradient(net: BlockBuilder, made: tuple[Value, Value, Value], grads: Sequence[Value | None]) -> Value:
    (u, s, v), (by_u, by_s, by_v) = made, grads
    batch, k = s.shape
    across, down = reshape(net, s, (batch, 1, k)), reshape(net, s, (batch, k, 1))
    diagonal_ = net.constant(np.eye(k), bool_)
    inner: list[Value] = []
    if by_s is not None:
        inner.append(on_diagonal(net, by_s))
    for vectors, grad, scale in ((u, by_u, across), (transpose(net, v), by_v, down)):
        if grad is None:
            continue
        gradient = grad if grad is by_u else transpose(net, grad)
        product = times(net, transpose(net, vectors), gradient)
        ratio = (arg(0) - arg(1)) / ((arg(2) - arg(3)) * (arg(2) + arg(3)))
        kept = select(arg(4), 0.0, ratio * arg(5))
        part = mapped(net, kept, *(product, transpose(net, product), across, down, diagonal_, scale))
        inner.append(part)
    total = inner[0]
    for part in inner[1:]:
        total = mapped(net, arg(0) + arg(1), total, part)
    result = times(net, u, total, v)
    if by_u is not None and u.shape[1] > k:
        scaled = mapped(net, arg(0) / arg(1), by_u, across)
        rest = mapped(net, arg(0) - arg(1), scaled, times(net, u, transpose(net, u), scaled))
        result = mapped(net, arg(0) + arg(1), result, times(net, rest, v))
    if by_v is not None and v.shape[2] > k:
        scaled = mapped(net, arg(0) / arg(1), by_v, down)
        rest = mapped(net, arg(0) - arg(1), scaled, times(net, scaled, transpose(net, v), v))
        result = mapped(net, arg(0) + arg(1), result, times(net, u, rest))
    return result
