"""One-sided Jacobi rotations: columns of matrices made orthogonal, all pairs of a round at once.

A rotation of two columns makes them orthogonal; going over all pairs again and again makes all of them so,
quadratically fast in the end (Hestenes, 1958). In a round-robin order n / 2 pairs that share no column are rotated at
the same time, and n − 1 such rounds meet every pair: a round is a few maps over the whole stack of matrices, whatever
tiles they lie on, where the two-sided form would go over rows as well as columns. Columns are rows of the working
tensor, so that a pair's two are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.arrays import Array
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ops.control import loop, while_
from abele.network.ops.matrices.composed import (
    Composed,
    check_matrices,
    holds,
    identity,
    mapped,
    on_diagonal,
    one_hot,
    ranks,
    times,
)
from abele.network.ops.reduction import reduce
from abele.network.ops.views import concat, reshape, reverse, slice_, transpose
from abele.network.registry import Gradients, Types, rule
from abele.numerics import bool_, f32

_SWEEPS = 18
"""Most sweeps; six to ten are enough for matrices that a chip holds."""
_ORTHOGONAL = 3e-8
"""Cosine of two columns that counts as none: half a unit in the last place of an f32."""
_LAST = 3e-6
"""Largest cosine of two columns in a sweep that is the last: it leaves less than it found, mostly about the square."""
_NEGLIGIBLE = 1e-14
"""Share of the largest squared column below which a column is rounding errors alone, without a direction."""


def orthogonal_columns(net: BlockBuilder, a: Value) -> tuple[Value, Value]:
    """A·V with orthogonal columns and V, an orthogonal matrix, of matrices [b, m, n]: both transposed.

    Returns:
        [b, n, m] and [b, n, n]: columns of A·V and of V as rows, in no order.
    """
    batch, m, n = a.shape
    even = n + n % 2
    rows = transpose(net, a)
    if even > n:
        rows = concat(net, [rows, net.constant(np.zeros((batch, 1, m)), f32)], 1)
    work = concat(net, [rows, identity(net, batch, even)], 2)
    if even > 2:
        work = _swept(net, work, m, even)
    elif even == 2:
        work = _round(net, work, m, _largest(net, work, m), None)[0]
    # The column of zeros was mixed with no other, and is last again after every sweep.
    work = slice_(net, work, 1, 0, n)
    turns = slice_(net, work, 2, m, m + n)
    # Rounded rotations are no longer quite orthogonal, and stretch both sides alike.
    length = reduce(net, mapped(net, arg(0) * arg(0), turns), [2], keep=True)
    stretch = mapped(net, 1.0 / apply("sqrt", arg(0)), length)
    columns = slice_(net, work, 2, 0, m)
    return mapped(net, arg(0) * arg(1), columns, stretch), mapped(net, arg(0) * arg(1), turns, stretch)


def _largest(net: BlockBuilder, work: Value, m: int) -> Value:
    """The largest squared length [b, 1, 1] of the columns."""
    squares = mapped(net, arg(0) * arg(0), slice_(net, work, 2, 0, m))
    return reduce(net, reduce(net, squares, [2], keep=True), [1], "max", keep=True)


def _swept(net: BlockBuilder, work: Value, m: int, even: int) -> Value:
    largest = _largest(net, work, m)

    def unfinished(body: BlockBuilder, turn: Value, cosine: Value, _: Value) -> Value:
        return holds(body, apply("and", arg(0) > _LAST, arg(1) < float(_SWEEPS)), cosine, turn)

    def sweep(body: BlockBuilder, trip: Value, turn: Value, cosine: Value, work: Value) -> list[Value]:
        def step(inner: BlockBuilder, number: Value, cosine: Value, work: Value) -> list[Value]:
            rotated, found = _round(inner, work, m, largest, cosine)
            return [found, _turned(inner, rotated, even)]

        none = mapped(body, arg(0) * 0.0, turn)
        cosine, work = loop(body, even - 1, [none, work], step)
        return [mapped(body, arg(0) + 1.0, turn), cosine, work]

    start = [net.constant(0.0, f32), net.constant(1.0, f32), work]
    return while_(net, start, unfinished, sweep)[2]


def _round(net: BlockBuilder, work: Value, m: int, largest: Value, cosine: Value | None) -> tuple[Value, Value]:
    """Rotate row i with row n − 1 − i; also the largest cosine between two of a pair, or ``cosine`` if that is
    larger."""
    even = work.shape[1]
    one, other = slice_(net, work, 1, 0, even // 2), reverse(net, slice_(net, work, 1, even // 2, even), [1])
    left, right = slice_(net, one, 2, 0, m), slice_(net, other, 2, 0, m)
    alpha = reduce(net, mapped(net, arg(0) * arg(0), left), [2], keep=True)
    beta = reduce(net, mapped(net, arg(0) * arg(0), right), [2], keep=True)
    gamma = reduce(net, mapped(net, arg(0) * arg(1), left, right), [2], keep=True)
    size = apply("sqrt", arg(0)) * apply("sqrt", arg(1))
    real = apply("min", arg(0), arg(1)) > arg(3) * _NEGLIGIBLE
    angle = mapped(net, select(real, apply("abs", arg(2)) / size, 0.0), alpha, beta, gamma, largest)
    # tan of the angle that makes both orthogonal, the smaller of two.
    zeta = (arg(1) - arg(0)) / (2.0 * arg(2))
    tangent = select(zeta < 0.0, -1.0, 1.0) / (apply("abs", zeta) + apply("sqrt", 1.0 + zeta * zeta))
    needed = arg(3) > _ORTHOGONAL
    tangent_ = mapped(net, select(needed, tangent, 0.0), alpha, beta, gamma, angle)
    cosine_ = mapped(net, apply("rsqrt", 1.0 + arg(0) * arg(0)), tangent_)
    sine_ = mapped(net, arg(0) * arg(1), tangent_, cosine_)
    first = mapped(net, arg(0) * arg(2) - arg(1) * arg(3), one, other, cosine_, sine_)
    second = mapped(net, arg(1) * arg(2) + arg(0) * arg(3), one, other, cosine_, sine_)
    rotated = concat(net, [first, reverse(net, second, [1])], 1)
    most = reduce(net, angle, [0, 1, 2], "max")
    return rotated, most if cosine is None else mapped(net, apply("max", arg(0), arg(1)), most, cosine)


def _turned(net: BlockBuilder, work: Value, even: int) -> Value:
    """The rows but the first moved on by one place, the last to the second: the next round's pairs."""
    parts = [slice_(net, work, 1, begin, end) for begin, end in ((0, 1), (even - 1, even), (1, even - 1))]
    return concat(net, parts, 1)


# Eigenvalues and eigenvectors of symmetric matrices.


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
