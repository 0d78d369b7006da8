"""A dimension multiplied by a known banded matrix: interpolation, and other mixtures of a few neighbours.

Each row of a matrix that interpolates has a few numbers other than zero, and where they are moves on evenly. A product
with the whole matrix would read and multiply mostly zeros. So the result is written as a sum of *taps*: tap t of output
o is input ``o · inputs // outputs + first + t``, times a number that depends on o alone. All taps are views of the same
input, shifted, repeated or strided, and the result is one element-wise map over them. Ends need no case of their own:
indices outside are moved to the nearest end, where their numbers are zero. The gradient is the same thing with the
matrix transposed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import derivative
from abele.graph import Tensor, concat
from abele.kernels.nest.ir import Expr
from abele.network.ir import BlockBuilder, Dense, NetworkOp, Value
from abele.network.ir.part import ValuePart, whole_digits
from abele.network.ops.linear import matmul
from abele.network.ops.views import expand, reshape, transpose
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.poplibs import popops

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

MOST_TAPS = 8
"""Taps above which a product with the whole matrix is made instead."""
MOST_PHASES = 8
"""Outputs after which the pattern of taps repeats; each is a view of its own, so that more make a product too."""


@dataclass(frozen=True)
class Taps:
    """A matrix [outputs, inputs] as taps.

    Attributes:
        first: Number added to ``o · inputs // outputs`` for the first tap of output o.
        numbers: Factor of each tap and output, [taps, outputs].
    """

    first: int
    numbers: Array

    @classmethod
    def of(cls, matrix: Array) -> Taps | None:
        """The taps of a matrix; None where there are too many of them, or too many phases."""
        outputs, inputs = matrix.shape
        if outputs // math.gcd(outputs, inputs) > MOST_PHASES:
            return None
        base = np.arange(outputs) * inputs // outputs
        rows, columns = np.nonzero(matrix)
        if not rows.size:
            return None
        offsets = columns - base[rows]
        first, count = int(offsets.min()), int(offsets.max() - offsets.min()) + 1
        if count > MOST_TAPS or count * 2 > inputs:
            return None
        numbers = np.zeros((count, outputs))
        numbers[offsets - first, rows] = matrix[rows, columns]
        return cls(first, numbers)


def resample(net: BlockBuilder, value: Value, dim: int, matrix: Array) -> Value:
    """``value`` with its dimension ``dim`` multiplied by ``matrix`` [outputs, inputs].

    A matrix that only repeats each input is a view; one that is banded evenly is an op; others are a product.
    """
    outputs, inputs = matrix.shape
    shape = (*value.shape[:dim], outputs, *value.shape[dim + 1 :])
    times = outputs // inputs
    if times * inputs == outputs and np.array_equal(matrix, np.repeat(np.eye(inputs), times, 0)):
        wide = (*value.shape[: dim + 1], times, *value.shape[dim + 1 :])
        return reshape(net, expand(net, reshape(net, value, (*wide[: dim + 1], 1, *wide[dim + 2 :])), wide), shape)
    if Taps.of(matrix) is not None and Taps.of(matrix.T) is not None:
        return net.emit("resample", [value], shape, value.dtype, dim=dim, matrix=Dense(np.array(matrix, np.float64)))
    product = matmul(net, transpose(net, value, dim, -1), net.constant(matrix.T, value.dtype, "interpolation"))
    return transpose(net, product, dim, -1)


def _tap(tensor: Tensor, dim: int, outputs: int, first: int) -> Tensor:
    """The view of input ``min(max(o · inputs // outputs + first, 0), inputs − 1)`` for each output o."""
    inputs = tensor.shape[dim]
    common = math.gcd(outputs, inputs)
    step, phases = inputs // common, outputs // common
    moved = _shifted(tensor, dim, first)
    wide = (*tensor.shape[:dim], common, step, *tensor.shape[dim + 1 :])
    blocks = moved.reshape(wide)
    if step == 1:
        taken = blocks.broadcast_to((*wide[: dim + 1], phases, *wide[dim + 2 :]))
    else:
        columns = (phase * step // phases for phase in range(phases))
        taken = concat([blocks.slice(c, c + 1, dim + 1) for c in columns], dim + 1)
    return taken.reshape((*tensor.shape[:dim], outputs, *tensor.shape[dim + 1 :]))


def _shifted(tensor: Tensor, dim: int, by: int) -> Tensor:
    """Index i is that of i + ``by``, or the end that this is beyond."""
    extent = tensor.shape[dim]
    by = max(-extent, min(extent, by))
    if by == 0:
        return tensor
    edge = tensor.slice(0, 1, dim) if by < 0 else tensor.slice(extent - 1, extent, dim)
    ends = edge.broadcast_to((*tensor.shape[:dim], abs(by), *tensor.shape[dim + 1 :]))
    rest = tensor.slice(0, extent + by, dim) if by < 0 else tensor.slice(by, extent, dim)
    return concat([ends, rest] if by < 0 else [rest, ends], dim)


@rule("resample")
class Resample(OpRule):
    """One dimension multiplied by a banded matrix."""

    attributes: ClassVar = {"dim": int, "matrix": Dense}

    def types(self, op: NetworkOp) -> Types:
        """The input with as many indices along the dimension as the matrix has rows."""
        (value,), dim, matrix = op.inputs, op.attrs["dim"], op.attrs["matrix"].contents
        require(0 <= dim < value.ndim, f"{value} has no dimension {dim}")
        require(matrix.ndim == 2 and matrix.shape[1] == value.shape[dim], f"the matrix does not fit {value}")
        require(Taps.of(matrix) is not None, "the matrix is not banded evenly")
        return [((*value.shape[:dim], matrix.shape[0], *value.shape[dim + 1 :]), value.dtype)]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same part of the operand's other dimensions."""
        dim = op.attrs["dim"]
        made = part.with_whole(dim)
        return made, [made.with_dim(dim, whole_digits(op.inputs[0].shape[dim]))]

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """The product in NumPy."""
        dim, matrix = op.attrs["dim"], op.attrs["matrix"].contents
        return np.asarray(np.moveaxis(np.tensordot(x, matrix, ((dim,), (1,))), -1, dim))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One map over the taps."""
        dim, x = op.attrs["dim"], to[op.inputs[0]]
        taps = Taps.of(op.attrs["matrix"].contents)
        assert taps is not None
        outputs = op.output.shape[dim]
        along = (outputs, *(1,) * (x.ndim - dim - 1))
        terms: list[Expr] = []
        operands: list[Tensor] = []
        for number, row in enumerate(taps.numbers):
            operands.append(_tap(x, dim, outputs, taps.first + number))
            term: Expr = derivative.arg(len(operands) - 1)
            if np.ptp(row) == 0:
                term = term * float(row[0])
            else:
                operands.append(
                    to.graph.map_linear(to.graph.constant(x.dtype, along, row.reshape(along), name="weights"))
                )
                term = term * derivative.arg(len(operands) - 1)
            terms.append(term)
        return popops.map(to.graph, popops.expr.written_out(sum(terms[1:], terms[0])), operands, to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient multiplied by the matrix transposed."""
        dim, matrix = op.attrs["dim"], op.attrs["matrix"].contents
        return [net.emit_like("resample", [only(grads)], op.inputs[0], dim=dim, matrix=Dense(matrix.T.copy()))]
