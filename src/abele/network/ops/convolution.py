"""Convolutions over any number of field dimensions, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Shape, Value
from abele.network.ir.part import Digits, ValuePart, some_digits, whole_digits
from abele.network.ops.reduction import reduce
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.poplibs import poplin
from abele.poplibs.poplin.conv_params.params import ConvParams

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


# Dependences of sliding windows: the operand's part for a part of the result, of samples and of a field.


@dataclass(frozen=True)
class SlidingWindows:
    """Windows that slide over a field.

    Attributes:
        field: Extents of what they slide over.
        span: Elements from the first to the last that one window covers, along each dimension.
        stride: Step of the window.
        padding_lower: Padding before each dimension.
        padding_upper: Padding after each.
    """

    field: tuple[int, ...]
    span: tuple[int, ...]
    stride: tuple[int, ...]
    padding_lower: tuple[int, ...]
    padding_upper: tuple[int, ...]

    def part(self, wanted: Sequence[Digits]) -> WindowPart:
        """The windows that make ``wanted`` of the result's field dimensions."""
        along = [self._along(d, digits) for d, digits in enumerate(wanted)]
        made, read, lower, upper = zip(*along, strict=True)
        return WindowPart(made, read, lower, upper)

    def _along(self, dim: int, wanted: Digits) -> tuple[Digits, Digits, int, int]:
        """Part made along a dimension, part read for it, and its padding; all of both where no range says it."""
        field, lower, upper = self.field[dim], self.padding_lower[dim], self.padding_upper[dim]
        if len(wanted) == 1 and not wanted[0].is_whole:
            first = wanted[0].low * self.stride[dim] - lower
            end = (wanted[0].high - 1) * self.stride[dim] - lower + self.span[dim]
            low, high = max(0, first), min(field, end)
            if low < high:
                return wanted, some_digits(field, low, high), low - first, end - high
        extent = math.prod(digit.extent for digit in wanted)
        return whole_digits(extent), whole_digits(field), lower, upper


@dataclass(frozen=True)
class WindowPart:
    """Some of the windows over a field.

    Attributes:
        made: The part of each dimension of the result.
        read: The part of each dimension of the field.
        padding_lower: Padding before the part that is read.
        padding_upper: Padding after it.
    """

    made: tuple[Digits, ...]
    read: tuple[Digits, ...]
    padding_lower: tuple[int, ...]
    padding_upper: tuple[int, ...]

    @property
    def field(self) -> tuple[int, ...]:
        """Extents of the operand."""
        return ValuePart(self.read).shape


def convolution(
    net: BlockBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    padding_upper: Sequence[int] | None = None,
    groups: int = 1,
) -> Value:
    """The cross-correlation of x [batch, in, *field] with weight [out, in / groups, *kernel], plus bias [out].

    Padding is the same on both sides unless ``padding_upper`` says otherwise.
    """
    params = ConvParams(
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=weight.shape[0],
        field=x.shape[2:],
        kernel=weight.shape[2:],
        stride=tuple(stride),
        dilation=tuple(dilation),
        padding_lower=tuple(padding),
        padding_upper=tuple(padding if padding_upper is None else padding_upper),
        groups=groups,
    )
    return convolution_of(net, x, weight, params, bias)


def convolution_of(net: BlockBuilder, x: Value, weight: Value, params: ConvParams, bias: Value | None = None) -> Value:
    """The convolution that some parameters describe."""
    inputs = [x, weight] + ([] if bias is None else [bias])
    return net.emit("convolution", inputs, params.output_shape, x.dtype, params=params)


def transposed_convolution_of(
    net: BlockBuilder, x: Value, weight: Value, params: ConvParams, bias: Value | None = None
) -> Value:
    """The gradient, by its input, of the convolution that some parameters describe."""
    inputs = [x, weight] + ([] if bias is None else [bias])
    return net.emit("convolution_grad_data", inputs, params.input_shape, x.dtype, params=params)


def transposed_convolution(
    net: BlockBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
) -> Value:
    """The gradient of a convolution by its input, of x [batch, in, *field] and weight [in, out / groups, *kernel].

    The result is [batch, out, *output_field], plus bias [out]; ``output_padding`` makes its field larger at the end.
    """
    extents = zip(x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation, strict=True)
    params = ConvParams(
        batch=x.shape[0],
        in_channels=weight.shape[1] * groups,
        out_channels=x.shape[1],
        field=tuple((n - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, k, s, p, o, d in extents),
        kernel=weight.shape[2:],
        stride=tuple(stride),
        dilation=tuple(dilation),
        padding_lower=tuple(padding),
        # A convolution leaves less than a stride unread at the end by itself; more it has to cut.
        padding_upper=tuple(p if o < s else p - o for p, o, s in zip(padding, output_padding, stride, strict=True)),
        groups=groups,
    )
    return transposed_convolution_of(net, x, weight, params, bias)


def _windows(x: Array, params: ConvParams) -> Array:
    """Every element that each output element reads: [batch, in, *output_field, *kernel]."""
    if any(n > 1 for n in params.input_dilation):
        apart = np.zeros(
            (*x.shape[:2], *((n - 1) * by + 1 for n, by in zip(params.field, params.input_dilation, strict=True))),
            x.dtype,
        )
        apart[(slice(None), slice(None), *(slice(None, None, by) for by in params.input_dilation))] = x
        x = apart
    ends = list(zip(params.padding_lower, params.padding_upper, strict=True))
    kept = (slice(max(0, -low), n - max(0, -high)) for n, (low, high) in zip(x.shape[2:], ends, strict=True))
    x = x[(slice(None), slice(None), *kept)]
    around = [(0, 0), (0, 0), *((max(0, low), max(0, high)) for low, high in ends)]
    taps = [
        stride * np.arange(extent)[:, None] + dilation * np.arange(kernel)
        for stride, extent, dilation, kernel in zip(
            params.stride, params.output_field, params.dilation, params.kernel, strict=True
        )
    ]
    rank = len(taps)
    grids = [
        i.reshape([i.shape[0] if d == a else i.shape[1] if d == rank + a else 1 for d in range(2 * rank)])
        for a, i in enumerate(taps)
    ]
    index: Any = (slice(None), slice(None), *grids)
    return np.asarray(np.pad(x, around)[index])


def _windows_over(params: ConvParams) -> SlidingWindows | None:
    """The windows of a convolution; None where its input is dilated, which no range of it makes up for."""
    if any(n > 1 for n in params.input_dilation) or not params.field:
        return None
    span = tuple(dilation * (n - 1) + 1 for n, dilation in zip(params.kernel, params.dilation, strict=True))
    return SlidingWindows(params.field, span, params.stride, params.padding_lower, params.padding_upper)


def _grouped(array: Array, groups: int, dim: int) -> Array:
    return array.reshape(*array.shape[:dim], groups, array.shape[dim] // groups, *array.shape[dim + 1 :])


def _letters(rank: int) -> tuple[str, str]:
    return "uvwxyz"[:rank], "opqrst"[:rank]


def _fit(op: NetworkOp, shapes: Sequence[Shape]) -> None:
    for number, (value, shape) in enumerate(zip(op.inputs, shapes, strict=False)):
        require(value.shape == shape, f"operand {number} is {list(value.shape)}, its parameters say {list(shape)}")


class Convolving(OpRule):
    """Base of convolutions and their gradients by the input, which are convolutions too: derivatives and a bias.

    Attributes:
        by_input: Kind of the gradient by the input.
        turned: True if the gradient by the weights takes the input for the gradient, and the gradient for the input.
    """

    operands = (2, 3)
    attributes: ClassVar = {"params": ConvParams}
    planned = True
    by_input: ClassVar[str]
    turned: ClassVar[bool]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """A convolution by the input, one by weights, and the sum of the gradient for the bias."""
        grad = only(grads)
        x, weight = op.inputs[:2]
        params = op.attrs["params"]
        pair = self.weight_operands(grad, x)
        by_x = by_w = None
        # The gradient by weights writes its operands anew, and has most in motion: beside that the larger of the given
        # gradient, where no other reader follows, and of the gradient by the input is not alive.
        for by_weight in (x.size >= grad.size, x.size < grad.size):
            if by_weight and wanted[1]:
                by_w = net.emit_like("convolution_grad_weight", pair, weight, params=params)
            if not by_weight and wanted[0]:
                by_x = net.emit_like(self.by_input, [grad, weight], x, params=params)
        return [by_x, by_w, *(bias_gradient(net, grad) if w else None for w in wanted[2:])]

    def weight_operands(self, grad: Value, x: Value) -> tuple[Value, Value]:
        """Operands of the gradient by weights."""
        return (x, grad) if self.turned else (grad, x)


def bias_gradient(net: BlockBuilder, grad: Value) -> Value:
    """The gradient of a bias per channel."""
    return reduce(net, grad, [0, *range(2, grad.ndim)])


@rule("convolution")
class Convolution(Convolving):
    """A cross-correlation, with a bias per channel."""

    by_input = "convolution_grad_data"
    turned = False

    def types(self, op: NetworkOp) -> Types:
        """Output of the parameters, which the operands fit."""
        params: ConvParams = op.attrs["params"]
        shapes = (params.input_shape, params.weights_shape, (params.out_channels,))
        _fit(op, shapes)
        return [(params.output_shape, op.inputs[0].dtype)]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same samples, and what the windows read. Weights are used whole, so that they can lie as is wanted."""
        made = part.with_whole(1)
        x, *rest = op.inputs
        windows = _windows_over(op.attrs["params"])
        if windows is None:
            made = made.with_whole(*range(2, x.ndim))
            read = ValuePart.whole(x.shape).dims[2:]
        else:
            under = windows.part(made.dims[2:])
            made, read = ValuePart((*made.dims[:2], *under.made)), under.read
        return made, [
            ValuePart((made.dims[0], whole_digits(x.shape[1]), *read)),
            *(ValuePart.whole(v.shape) for v in rest),
        ]

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """The convolution of fewer samples, over less of the field."""
        params, windows = op.attrs["params"], _windows_over(op.attrs["params"])
        if windows is not None:
            under = windows.part(part.dims[2:])
            lower, upper = under.padding_lower, under.padding_upper
            params = replace(params, field=under.field, padding_lower=lower, padding_upper=upper)
        params = replace(params, batch=part.shape[0])
        return net.emit("convolution", inputs, part.shape, op.output.dtype, params=params)

    def evaluate(self, op: NetworkOp, x: Array, weight: Array, *bias: Array) -> Array:
        """A sum over windows in NumPy."""
        params = op.attrs["params"]
        field, kernel = _letters(len(params.field))
        windows = _grouped(_windows(x, params), params.groups, 1)
        filters = _grouped(weight, params.groups, 0)
        result = np.einsum(f"bgi{field}{kernel},gni{kernel}->bgn{field}", windows, filters, optimize=True)
        result = result.reshape(params.output_shape)
        return np.asarray(result + bias[0].reshape(-1, *[1] * len(params.field)) if bias else result)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One convolution, then the bias added in place."""
        x, weight = to[op.inputs[0]], to[op.inputs[1]]
        result = poplin.convolution(to.graph, x, weight, op.attrs["params"], to.prog, options=to.planned(op, x.dtype))
        if len(op.inputs) == 3:
            poplin.add_bias(to.graph, result, to[op.inputs[2]], to.prog)
        return result

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Input and weights as the convolution's planner wants them."""
        value = op.inputs[operand]
        create = (poplin.create_input, poplin.create_weights)[operand] if operand < 2 else None
        options = to.planned(op, value.dtype)
        return create(to.graph, op.attrs["params"], value.dtype, value.name, options=options) if create else None


@rule("convolution_grad_data")
class ConvolutionGradData(Convolving):
    """The gradient of a convolution by its input, which is a transposed convolution; that may have a bias."""

    by_input = "convolution"
    turned = True

    def types(self, op: NetworkOp) -> Types:
        """Input of the convolution."""
        params: ConvParams = op.attrs["params"]
        _fit(op, (params.output_shape, params.weights_shape, (params.in_channels,)))
        return [(params.input_shape, op.output.dtype)]

    def evaluate(self, op: NetworkOp, grad: Array, weight: Array, *bias: Array) -> Array:
        """Every product added where its window read."""
        params = op.attrs["params"]
        field, kernel = _letters(len(params.field))
        spread = np.einsum(
            f"bgn{field},gni{kernel}->bgi{field}{kernel}",
            _grouped(grad, params.groups, 1),
            _grouped(weight, params.groups, 0),
            optimize=True,
        )
        # The windows of an array of numbers tell which element each product belongs to; 0, which padding gives, takes
        # what falls outside.
        places = _windows(np.arange(1, 1 + np.prod(op.output.shape)).reshape(op.output.shape), params)
        result = np.zeros(op.output.size + 1, spread.dtype)
        np.add.at(result, places.reshape(-1), spread.reshape(-1))
        made = result[1:].reshape(op.output.shape)
        return np.asarray(made + bias[0].reshape(-1, *[1] * len(params.field)) if bias else made)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One convolution by the gradient's parameters, then the bias added in place."""
        grad, weight = to[op.inputs[0]], to[op.inputs[1]]
        options = to.planned(op, grad.dtype)
        result = poplin.convolution_backward_data(to.graph, grad, weight, op.attrs["params"], to.prog, options=options)
        if len(op.inputs) == 3:
            poplin.add_bias(to.graph, result, to[op.inputs[2]], to.prog)
        return result

    def layout(self, to: Lowering, op: NetworkOp, operand: int) -> Tensor | None:
        """Input and weights as the planner of the convolution that is run wants them."""
        if operand > 1:
            return None
        value, params = op.inputs[operand], op.attrs["params"]
        run, options = params.gradient_params(), to.planned(op, value.dtype)
        if operand == 0:
            return poplin.create_input(to.graph, run, value.dtype, value.name, options=options)
        return turned_weights(poplin.create_weights(to.graph, run, value.dtype, value.name, options=options), params)


def turned_weights(made: Tensor, params: ConvParams) -> Tensor:
    """Weights of the convolution that is run for a gradient, with their channels as the convolution itself has them."""
    # They are exchanged within each group.
    of, into = params.out_channels // params.groups, params.in_channels // params.groups
    turned = made.reshape((params.groups, into, of, -1)).transpose((0, 2, 1, 3))
    return turned.reshape(params.weights_shape)


@rule("convolution_grad_weight")
class ConvolutionGradWeight(OpRule):
    """The gradient of a convolution by its weights."""

    operands = 2
    attributes: ClassVar = {"params": ConvParams}
    planned = True

    def types(self, op: NetworkOp) -> Types:
        """Weights of the convolution."""
        params: ConvParams = op.attrs["params"]
        _fit(op, (params.output_shape, params.input_shape))
        return [(params.weights_shape, op.output.dtype)]

    def evaluate(self, op: NetworkOp, grad: Array, x: Array) -> Array:
        """Windows times gradients, summed over the batch and the field."""
        params = op.attrs["params"]
        field, kernel = _letters(len(params.field))
        windows = _grouped(_windows(x, params), params.groups, 1)
        grads = _grouped(grad, params.groups, 1)
        result = np.einsum(f"bgi{field}{kernel},bgn{field}->gni{kernel}", windows, grads, optimize=True)
        return np.asarray(result.reshape(op.output.shape))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One calculation of weight deltas."""
        grad, x = to[op.inputs[0]], to[op.inputs[1]]
        return poplin.calculate_weight_deltas(
            to.graph, grad, x, op.attrs["params"], to.prog, like=to.like(op.output), options=to.planned(op, x.dtype)
        )
