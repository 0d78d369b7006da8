"""Products with quantised weights, and their numbers.

Weights are codes of 8 or 4 bits with a scale, and perhaps an offset, per group of columns, as
:class:`abele.weights.QuantisedMatrix` has them. They are no parameters: the derivative of a product is by x alone,
``dx = dy · W`` with the numbers of W, which is what fine-tuning beside frozen weights asks for.

Example: x f32[1, 576] times codes u8[1536, 288] of int4 with scales and offsets f16[1536, 9], groups of 64, is
f32[1, 1536].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.part import ValuePart, whole_digits
from abele.network.ops.linear import matmul
from abele.network.ops.lookup import look_up
from abele.network.ops.sparse_matmul import with_bias
from abele.network.ops.views import reshape
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.numerics import ElementType, f16, f32
from abele.poplibs.poplin import quantised as library
from abele.weights.quantised import KINDS
from abele.weights.quantised import dequantise as numbers_of

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def quantised_linear(
    net: BlockBuilder,
    x: Value,
    codes: Value,
    scales: Value,
    offsets: Value | None = None,
    *,
    kind: str,
    group: int,
    bias: Value | None = None,
) -> Value:
    """``x · Wᵀ + bias`` for quantised W [out, in]; sums are of f32, the result of x's type.

    Args:
        net: Network or block to extend.
        x: [..., in], f16 or f32.
        codes: i8 or u8 [out, in]; u8 [out, in/2] for int4.
        scales: f16 or f32 [out, in/group].
        offsets: As scales, or None.
        kind: ``int8``, ``int4`` or ``f143``.
        group: Columns of a group.
        bias: [out].
    """
    rows = reshape(net, x, (-1, x.shape[-1]))
    inputs = [rows, codes, scales] + ([] if offsets is None else [offsets])
    shape = (rows.shape[0], codes.shape[0])
    product = net.emit("quantised_linear", inputs, shape, x.dtype, codes=kind, group=group)
    return with_bias(net, reshape(net, product, (*x.shape[:-1], codes.shape[0])), bias)


def dequantise(
    net: BlockBuilder,
    codes: Value,
    scales: Value,
    offsets: Value | None = None,
    *,
    kind: str,
    group: int,
    dtype: ElementType = f32,
) -> Value:
    """The numbers of a quantised matrix, [out, in] of ``dtype``; other arguments as of :func:`quantised_linear`."""
    inputs = [codes, scales] + ([] if offsets is None else [offsets])
    columns = codes.shape[1] * (KINDS[kind].per_byte if kind in KINDS else 1)
    return net.emit("dequantise", inputs, (codes.shape[0], columns), dtype, codes=kind, group=group)


def look_up_quantised(
    net: BlockBuilder,
    index: Value,
    codes: Value,
    scales: Value,
    offsets: Value | None = None,
    *,
    kind: str,
    group: int,
    dtype: ElementType = f32,
) -> Value:
    """Rows of a quantised table by their numbers, index [...]: [..., in]. Codes of rows are gathered, then numbers."""
    flat = reshape(net, index, (index.size,))
    shifts = None if offsets is None else look_up(net, offsets, flat)
    rows = dequantise(
        net, look_up(net, codes, flat), look_up(net, scales, flat), shifts, kind=kind, group=group, dtype=dtype
    )
    return reshape(net, rows, (*index.shape, rows.shape[1]))


def _check_weights(op: NetworkOp, codes: Value, scales: Value, *offsets: Value) -> tuple[int, int]:
    """Rows and columns of the quantised matrix that an op reads.

    Raises:
        NetworkError: Its parts do not fit each other.
    """
    kind, group = op.attrs["codes"], op.attrs["group"]
    require(kind in KINDS, f"no kind of quantised weights is called {kind!r}")
    require(codes.ndim == 2 and codes.dtype.np == np.dtype(KINDS[kind].dtype), f"{codes} are no codes of {kind}")
    columns = codes.shape[1] * KINDS[kind].per_byte
    require(
        group > 0 and columns % group == 0 and group % KINDS[kind].per_byte == 0, f"{codes} has no groups of {group}"
    )
    shape = (codes.shape[0], columns // group)
    require(
        scales.shape == shape and scales.dtype in (f16, f32), f"the scales {scales} are not f16 or f32{list(shape)}"
    )
    for shift in offsets:
        require(kind != "f143", "8-bit floats have no offsets")
        require(shift.shape == shape and shift.dtype == scales.dtype, f"the offsets {shift} are not as {scales}")
    return codes.shape[0], columns


def _held(to: Lowering, op: NetworkOp, operands: Sequence[Value]) -> library.QuantisedTensor:
    codes, scales, *offsets = (to[v] for v in operands)
    return library.QuantisedTensor(op.attrs["codes"], codes, scales, offsets[0] if offsets else None)


@rule("quantised_linear")
class QuantisedRows(OpRule):
    """x [rows, in] · Wᵀ of quantised W [out, in]."""

    operands = (3, 4)
    attributes: ClassVar = {"codes": str, "group": int}
    wants_one_piece = True
    planned = True

    def types(self, op: NetworkOp) -> Types:
        """[rows, out] of x's type."""
        x, *weights = op.inputs
        outputs, columns = _check_weights(op, *weights)
        require(x.dtype in (f16, f32), f"{x} is neither f16 nor f32")
        require(x.ndim == 2 and x.shape[1] == columns, f"{x} has not the {columns} columns of the weights")
        return [((x.shape[0], outputs), x.dtype)]

    def evaluate(self, op: NetworkOp, x: Array, codes: Array, scales: Array, *offsets: Array) -> Array:
        """The product with the numbers in NumPy, in f32."""
        weights = numbers_of(op.attrs["codes"], codes, scales, offsets[0] if offsets else None, op.attrs["group"])
        return np.asarray(x, np.float32) @ weights.T

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same rows of x. Weights are used whole."""
        made = part.with_whole(1)
        x, *weights = op.inputs
        return made, [ValuePart((made.dims[0], whole_digits(x.shape[1]))), *(ValuePart.whole(v.shape) for v in weights)]

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One product."""
        hint = op.hint
        proportion = None if hint is None else hint.proportion
        weights = _held(to, op, op.inputs[1:])
        return library.quantised_matmul(
            to.graph, to[op.inputs[0]], weights, to.prog, available_memory_proportion=proportion
        )

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Codes, scales and offsets where they are multiplied."""
        if not operand:
            return None
        x, given = op.inputs[0], op.inputs[operand]
        codes, scales = op.inputs[1:3]
        return library.create_part(
            to.graph,
            given.dtype,
            given.shape,
            x=(x.shape[0], x.dtype),
            kind=op.attrs["codes"],
            codes=codes.shape,
            groups=scales.shape[1],
            offsets=len(op.inputs) == 4,
            name=given.name or "weights",
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """By x: the gradient times the weights' numbers. Weights have none."""
        grad = only(grads)
        x, codes, scales, *offsets = op.inputs
        how = {"kind": op.attrs["codes"], "group": op.attrs["group"], "dtype": x.dtype}
        weights = dequantise(net, codes, scales, offsets[0] if offsets else None, **how) if wanted[0] else None
        return [None if weights is None else matmul(net, grad, weights), *(None for _ in op.inputs[1:])]


@rule("dequantise")
class Dequantise(OpRule):
    """Numbers [out, in] of a quantised matrix."""

    operands = (2, 3)
    attributes: ClassVar = {"codes": str, "group": int}
    wants_one_piece = True

    def types(self, op: NetworkOp) -> Types:
        """[out, in], f16 or f32."""
        outputs, columns = _check_weights(op, *op.inputs)
        dtype = op.output.dtype
        require(dtype in (f16, f32), f"weights become f16 or f32, not {dtype}")
        return [((outputs, columns), dtype)]

    def evaluate(self, op: NetworkOp, codes: Array, scales: Array, *offsets: Array) -> Array:
        """The numbers in NumPy."""
        return numbers_of(op.attrs["codes"], codes, scales, offsets[0] if offsets else None, op.attrs["group"])

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same rows of all parts."""
        made = part.with_whole(1)
        return made, [ValuePart((made.dims[0], whole_digits(v.shape[1]))) for v in op.inputs]

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One vertex per tile."""
        return library.dequantise(to.graph, _held(to, op, op.inputs), op.output.dtype, to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """None: codes, scales and offsets are frozen."""
        return [None for _ in op.inputs]
