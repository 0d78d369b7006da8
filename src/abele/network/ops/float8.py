"""8-bit floats in networks: casts by powers of two, and products with one scale for the result.

Names and signs are PopART's and PopXL's: a cast to 8 bits multiplies by ``2^log2_scale``, so does a cast back, and a
product is multiplied by it. Values of ``f8_143`` and ``f8_152`` do not remember their scale; who casts keeps it.
``log2_scale`` is a number, and becomes an attribute; or it is a value of one i32 that the program computes, and becomes
the last operand. Source: low_precision.md §1.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Shape, Value
from abele.network.ir.part import ValuePart, whole_digits
from abele.network.ops.convolution import Convolution, ConvolutionGradData, ConvolutionGradWeight
from abele.network.ops.views import expand, reshape
from abele.network.registry import OpRule, Types, require, rule
from abele.numerics import ElementType, as_element_type, f16, i32, to_host
from abele.numerics.narrow import round_to_nearest
from abele.numerics.types import SCALES
from abele.poplibs import poplin, popops
from abele.poplibs.poplin.conv_params.params import ConvParams

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def pow2scale_cast_to_fp8(
    net: BlockBuilder,
    x: Value,
    log2_scale: Value | int,
    format: ElementType | str = "F143",
    *,
    saturate: bool = False,
    throws: bool = True,
) -> Value:
    """``x · 2^log2_scale`` rounded to an 8-bit float, F143 or F152.

    Args:
        net: The network to extend.
        x: f16 or f32.
        log2_scale: From -32 to 31.
        format: The 8-bit float.
        saturate: True to make the largest number of larger ones, rather than NaN.
        throws: True if the program stops where the scale is out of range; else the nearest that is not counts.
    """
    operands, scale = scaled_operands([x], log2_scale)
    how = {"log2_scale": scale, "saturate": saturate, "throws": throws}
    return net.emit("pow2scale_cast_to_fp8", operands, x.shape, as_element_type(format), **how)


def pow2scale_cast_from_fp8(
    net: BlockBuilder, x: Value, log2_scale: Value | int, dtype: ElementType = f16, *, throws: bool = True
) -> Value:
    """The numbers of 8-bit floats times ``2^log2_scale``, as f16 or f32."""
    operands, scale = scaled_operands([x], log2_scale)
    return net.emit("pow2scale_cast_from_fp8", operands, x.shape, dtype, log2_scale=scale, throws=throws)


def matmul_pow2scaled(
    net: BlockBuilder, a: Value, b: Value, log2_scale: Value | int, *, throws: bool = True, converts: bool = False
) -> Value:
    """``(a @ b) · 2^log2_scale`` in f16: matrices of 8-bit floats, and stacks of them that broadcast.

    Args:
        net: The network to extend.
        a: [..., m, k].
        b: [..., k, n].
        log2_scale: From -32 to 31.
        throws: True if the program stops where the scale is out of range; else the nearest that is not counts.
        converts: True if operands are cast to f16 on chips that do not multiply 8-bit floats, which refuse them else.
    """

    def product(left: Value, right: Value) -> Value:
        operands, scale = scaled_operands([left, right], log2_scale)
        shape = (*left.shape[:-1], right.shape[-1])
        how = {"log2_scale": scale, "throws": throws, "converts": converts}
        return net.emit("matmul_pow2scaled", operands, shape, f16, **how)

    if a.ndim == b.ndim == 2:
        return product(a, b)
    if b.ndim == 2:
        rows = product(reshape(net, a, (-1, a.shape[-1])), b)
        return reshape(net, rows, (*a.shape[:-1], b.shape[1]))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    groups = int(np.prod(batch))
    left = reshape(net, expand(net, a, (*batch, *a.shape[-2:])), (groups, *a.shape[-2:]))
    right = reshape(net, expand(net, b, (*batch, *b.shape[-2:])), (groups, *b.shape[-2:]))
    return reshape(net, product(left, right), (*batch, a.shape[-2], b.shape[-1]))


def conv_pow2scaled(
    net: BlockBuilder,
    x: Value,
    weight: Value,
    log2_scale: Value | int,
    params: ConvParams,
    *,
    kind: str = "conv_pow2scaled",
    throws: bool = True,
    converts: bool = False,
) -> Value:
    """A convolution of 8-bit floats times ``2^log2_scale`` in f16, or one of its gradients.

    Args:
        net: The network to extend.
        x: Input [batch, in, *field]; of gradients that of the output.
        weight: Weights [out, in / groups, *kernel]; of the gradient by weights the input.
        log2_scale: From -32 to 31.
        params: The convolution.
        kind: ``conv_pow2scaled``, ``conv_grad_data_pow2scaled`` or ``conv_grad_weight_pow2scaled``.
        throws: True if the program stops where the scale is out of range; else the nearest that is not counts.
        converts: True if operands are cast to f16 on chips that do not multiply 8-bit floats.
    """
    shape = {
        "conv_pow2scaled": params.output_shape,
        "conv_grad_data_pow2scaled": params.input_shape,
        "conv_grad_weight_pow2scaled": params.weights_shape,
    }[kind]
    operands, scale = scaled_operands([x, weight], log2_scale)
    how = {"log2_scale": scale, "throws": throws, "converts": converts}
    return net.emit(kind, operands, shape, f16, params=params, **how)


def scaled_operands(operands: Sequence[Value], log2_scale: Value | int) -> tuple[list[Value], int]:
    """Operands and attribute of an op with a scale."""
    return ([*operands, log2_scale], 0) if isinstance(log2_scale, Value) else ([*operands], int(log2_scale))


def check_scale(op: NetworkOp, operands: int) -> None:
    """Check the scale of an op with so many other operands."""
    number = op.attrs["log2_scale"]
    require(number in SCALES, f"the scale is 2^{number}, not from 2^{SCALES[0]} to 2^{SCALES[-1]}")
    for scale in op.inputs[operands:]:
        require(scale.size == 1 and scale.dtype == i32, f"the scale is {scale}, not one i32")
        require(number == 0, "there are two scales")


def check_quarters(*values: Value) -> None:
    """Refuse values that are no 8-bit floats."""
    for value in values:
        require(value.dtype.is_quarter, f"{value} is no 8-bit float: cast it first")


def power_of(op: NetworkOp, log2_scale: Sequence[Array]) -> float:
    """Factor of an op, given the arrays of the operands that are scales: one or none."""
    exponent = np.asarray(log2_scale[0]).reshape(()) if log2_scale else op.attrs["log2_scale"]
    return float(2.0 ** np.clip(exponent, SCALES[0], SCALES[-1]))


def scale_of(to: Lowering, op: NetworkOp, operands: int) -> int | Tensor:
    """The scale of an op with so many other operands."""
    return to[op.inputs[operands]] if len(op.inputs) > operands else int(op.attrs["log2_scale"])


class Pow2Scaled(OpRule):
    """An op with a scale as its last operand, or as an attribute."""

    operands: ClassVar[tuple[int, int]]

    def simplify(self, net: BlockBuilder, op: NetworkOp) -> Value | None:
        """The op with the scale as an attribute, if it is known: a tensor takes some 1,300 cycles to become a power."""
        *operands, scale = op.inputs
        known = net.contents(scale) if len(op.inputs) == self.operands[1] else None
        if known is None or int(known.reshape(())) not in SCALES:
            return None
        attributes = {**op.attrs, "log2_scale": int(known.reshape(()))}
        return net.emit(op.kind, operands, op.output.shape, op.output.dtype, **attributes)


class CastingPow2Scaled(Pow2Scaled):
    """A cast to 8-bit floats or back."""

    operands = (1, 2)
    folds = False

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same part of the value to cast."""
        return part, [part, *(ValuePart.whole(v.shape) for v in op.inputs[1:])]


@rule("pow2scale_cast_to_fp8")
class CastToFp8(CastingPow2Scaled):
    """``x · 2^log2_scale`` rounded to an 8-bit float."""

    attributes: ClassVar = {"log2_scale": int, "saturate": bool, "throws": bool}

    def types(self, op: NetworkOp) -> Types:
        """The shape of the input, and the 8-bit float that the op says."""
        x = op.inputs[0]
        check_scale(op, 1)
        require(x.dtype.is_float and not x.dtype.is_quarter, f"{x} is no float of 16 or 32 bits")
        made = op.output.dtype
        require(made.is_quarter and not made.scale, f"{made} is no 8-bit float without a scale")
        return [(x.shape, made)]

    def evaluate(self, op: NetworkOp, x: Array, *log2_scale: Array) -> Array:
        """Rounded to nearest, whatever values are computed in."""
        made = op.output.dtype
        with np.errstate(over="ignore"):
            scaled = np.asarray(x, np.float64) * power_of(op, log2_scale)
            held = np.clip(scaled, -_MOST, _MOST) if op.attrs["saturate"] else scaled
            codes = round_to_nearest(np.where(np.isfinite(x), held, x), made, saturate=op.attrs["saturate"])
        return to_host(codes, made)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One cast."""
        return popops.pow2scale_cast_to_fp8(
            to.graph,
            to[op.inputs[0]],
            scale_of(to, op, 1),
            op.output.dtype,
            to.prog,
            saturate=op.attrs["saturate"],
            options=_throwing(op),
        )


_MOST = float(np.finfo(np.float32).max)


@rule("pow2scale_cast_from_fp8")
class CastFromFp8(CastingPow2Scaled):
    """The number of an 8-bit float times ``2^log2_scale``."""

    attributes: ClassVar = {"log2_scale": int, "throws": bool}

    def types(self, op: NetworkOp) -> Types:
        """The shape of the input, and the float that the op says."""
        x = op.inputs[0]
        check_scale(op, 1)
        check_quarters(x)
        made = op.output.dtype
        require(made.is_float and not made.is_quarter, f"{made} is no float of 16 or 32 bits")
        return [(x.shape, made)]

    def evaluate(self, op: NetworkOp, x: Array, *log2_scale: Array) -> Array:
        """The product."""
        return np.asarray(to_host(x, op.inputs[0].dtype) * power_of(op, log2_scale))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One cast."""
        x, made = to[op.inputs[0]], op.output.dtype
        options = _throwing(op)
        return popops.pow2scale_cast_from_fp8(to.graph, x, scale_of(to, op, 1), to.prog, dtype=made, options=options)


def _throwing(op: NetworkOp) -> dict[str, Any]:
    return {"throwIfLog2ScaleTensorNotInRange": op.attrs["throws"]}


def _options(to: Lowering, op: NetworkOp) -> dict[str, Any]:
    """Options of a product: those of all products, but with partials in f16."""
    planned = {name: value for name, value in to.planned(op, f16).items() if name != "partials_type"}
    return {**planned, "convertQuarterToHalf": op.attrs["converts"]}


def _numbers(op: NetworkOp, *operands: Array) -> list[Array]:
    return [np.asarray(to_host(a, v.dtype)) for a, v in zip(operands, op.inputs, strict=False)]


@rule("matmul_pow2scaled")
class MatMulPow2Scaled(Pow2Scaled):
    """A product of two matrices of 8-bit floats [m, k] · [k, n], or of g pairs of them, times ``2^log2_scale``."""

    operands = (2, 3)
    attributes: ClassVar = {"log2_scale": int, "throws": bool, "converts": bool}
    wants_one_piece = True
    folds = False
    planned = True

    def types(self, op: NetworkOp) -> Types:
        """[m, n], or [g, m, n], in f16."""
        a, b = op.inputs[:2]
        check_scale(op, 2)
        check_quarters(a, b)
        require(a.ndim == b.ndim and a.ndim in (2, 3), f"{a} and {b} are not both matrices or stacks of them")
        require(a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2], f"{a} and {b} do not fit each other")
        return [((*a.shape[:-1], b.shape[-1]), f16)]

    def evaluate(self, op: NetworkOp, a: Array, b: Array, *log2_scale: Array) -> Array:
        """NumPy's matmul, scaled."""
        left, right = _numbers(op, a, b)
        return np.asarray((left @ right) * power_of(op, log2_scale))

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same groups of both, the same rows of one and columns of the other."""
        *groups, rows, columns = part.dims
        inner = whole_digits(op.inputs[0].shape[-1])
        scale = (ValuePart.whole(v.shape) for v in op.inputs[2:])
        return part, [ValuePart((*groups, rows, inner)), ValuePart((*groups, inner, columns)), *scale]

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One matmul, grouped for three dimensions."""
        a, b = (to[v] for v in op.inputs[:2])
        scale, options = scale_of(to, op, 2), {**_options(to, op), **_throwing(op)}
        return poplin.matmul_pow2scaled(to.graph, a, b, scale, to.prog, like=to.like(op.output), options=options)


class ConvolvingPow2Scaled(Pow2Scaled):
    """Base of convolutions of 8-bit floats and their gradients.

    Attributes:
        plain: The rule without a scale.
        call: The library's function.
    """

    operands = (2, 3)
    attributes: ClassVar = {"params": ConvParams, "log2_scale": int, "throws": bool, "converts": bool}
    folds = False
    planned = True
    plain: ClassVar[OpRule]
    call: ClassVar[Any]

    def shapes(self, params: ConvParams) -> tuple[Shape, Shape, Shape]:
        """Shapes of both operands and of the result."""
        raise NotImplementedError

    def types(self, op: NetworkOp) -> Types:
        """Shape from the parameters, which the operands must fit, in f16."""
        *shapes, made = self.shapes(op.attrs["params"])
        check_scale(op, 2)
        check_quarters(*op.inputs[:2])
        for number, (value, shape) in enumerate(zip(op.inputs, shapes, strict=False)):
            require(value.shape == shape, f"operand {number} is {list(value.shape)}, its parameters say {list(shape)}")
        return [(made, f16)]

    def evaluate(self, op: NetworkOp, *args: Array) -> Array:
        """The convolution in NumPy, scaled."""
        left, right = _numbers(op, *args[:2])
        return np.asarray(self.plain.evaluate(op, left, right) * power_of(op, args[2:]))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One call of the library."""
        left, right = (to[v] for v in op.inputs[:2])
        how = {"scales": (scale_of(to, op, 2), None), "throws": op.attrs["throws"], "options": _options(to, op)}
        made: Tensor = self.call(to.graph, left, right, op.attrs["params"], to.prog, **how)
        return made


@rule("conv_pow2scaled")
class ConvPow2Scaled(ConvolvingPow2Scaled):
    """A convolution."""

    plain = Convolution()
    call = staticmethod(poplin.convolution)

    def shapes(self, params: ConvParams) -> tuple[Shape, Shape, Shape]:
        """Input, weights and output."""
        return params.input_shape, params.weights_shape, params.output_shape


@rule("conv_grad_data_pow2scaled")
class ConvGradDataPow2Scaled(ConvolvingPow2Scaled):
    """The gradient of a convolution by its input."""

    plain = ConvolutionGradData()
    call = staticmethod(poplin.convolution_backward_data)

    def shapes(self, params: ConvParams) -> tuple[Shape, Shape, Shape]:
        """Output, weights and input."""
        return params.output_shape, params.weights_shape, params.input_shape


@rule("conv_grad_weight_pow2scaled")
class ConvGradWeightPow2Scaled(ConvolvingPow2Scaled):
    """The gradient of a convolution by its weights."""

    plain = ConvolutionGradWeight()
    call = staticmethod(poplin.calculate_weight_deltas)

    def shapes(self, params: ConvParams) -> tuple[Shape, Shape, Shape]:
        """Output, input and weights."""
        return params.output_shape, params.input_shape, params.weights_shape
