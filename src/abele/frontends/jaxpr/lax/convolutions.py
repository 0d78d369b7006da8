"""Convolutions of any layout, with JAX's forms of their gradients.

JAX has one primitive for a convolution, for a transposed one and for both gradients. Here they are told apart, so that
a network captured from JAX has the ops, and with them the plans, that differentiating a convolution makes:

- a kernel that was turned round, or an input with gaps, is the gradient by the input (``convolution_grad_data``);
- samples that are summed over, as where the array's first dimension is that of channels, make one by the weights
  (``convolution_grad_weight``).

For ``x`` f32[2, 8, 8, 3], a kernel f32[3, 3, 3, 4] and strides of two, the gradient by the kernel comes as a
convolution of three samples of two channels with a kernel of 4 by 4, dilated by two. It becomes
``convolution_grad_weight`` with the parameters of the convolution itself.

An operand in NHWC is read through a view, channels first. The result is a view as well, so that between two
convolutions the views cancel and elements lie as the convolutions want them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from abele.frontends.jaxpr.lax.whole import PartialProducts, multiplied_type, pieces, whole_product
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.poplibs.poplin.conv_params.params import ConvParams

_Dims = Sequence[int]


@primitive("conv_general_dilated")
def conv_general_dilated(
    call: PrimitiveCall,
    x: Value,
    kernel: Value,
    *,
    dimension_numbers: Any,
    window_strides: _Dims,
    padding: Sequence[tuple[int, int]],
    lhs_dilation: _Dims,
    rhs_dilation: _Dims,
    feature_group_count: int,
    batch_group_count: int,
) -> Value:
    """A convolution: windows of the dilated and padded input times the dilated kernel, for each group of channels.

    Groups of the batch, ``batch_group_count``, are samples that meet only their own part of the output's channels.
    """
    net, (x_order, kernel_order, order) = call.net, dimension_numbers
    if 0 in (*call.shape, x.size, kernel.size):
        return build.full(net, 0.0 if call.dtype.is_float else 0, call.shape, call.dtype)
    x, kernel = build.permute(net, x, x_order), build.permute(net, kernel, kernel_order)
    if x.ndim == 2:  # without a field
        x, kernel = (build.reshape(net, v, (*v.shape, 1)) for v in (x, kernel))
        window_strides, padding, lhs_dilation, rhs_dilation = (1,), ((0, 0),), (1,), (1,)
    groups = feature_group_count * batch_group_count
    batch, channels, *field = x.shape
    by_weights = x_order[1] == 0 and kernel_order[1] == 0 and feature_group_count == 1
    if batch_group_count > 1 and not by_weights:
        apart = build.reshape(net, x, (batch_group_count, batch // batch_group_count, channels, *field))
        together = (batch // batch_group_count, batch_group_count * channels, *field)
        x = build.reshape(net, build.permute(net, apart, (1, 0, *range(2, apart.ndim))), together)
    params = ConvParams(
        batch=x.shape[0],
        in_channels=x.shape[1] * (groups if by_weights else 1),
        out_channels=kernel.shape[0],
        field=tuple(field),
        kernel=kernel.shape[2:],
        stride=tuple(window_strides),
        dilation=tuple(rhs_dilation),
        padding_lower=tuple(low for low, _ in padding),
        padding_upper=tuple(high for _, high in padding),
        input_dilation=tuple(lhs_dilation),
        groups=groups,
    )
    if call.dtype.is_float:
        computed = multiplied_type(call.dtype)
        made = _convolved(net, build.cast(net, x, computed), build.cast(net, kernel, computed), params, by_weights)
        result = build.cast(net, made, call.dtype)
    else:
        result = whole_product(net, x, kernel, call.dtype, _in_pieces(call, params, by_weights))
    field_made = result.shape[2:] if len(call.shape) > 2 else ()
    result = build.reshape(net, result, (*result.shape[:2], *field_made))
    return build.permute(net, result, sorted(range(result.ndim), key=lambda d: order[d]))


def _in_pieces(call: PrimitiveCall, params: ConvParams, by_weights: bool) -> PartialProducts:
    """Convolutions of some of the channels at a time."""
    net = call.net

    def partial(x: Value, kernel: Value, most: int) -> list[Value]:
        channels, taps = kernel.shape[1], math.prod(kernel.shape[2:])
        if channels * taps <= most:
            return [_convolved(net, x, kernel, params, by_weights)]
        if taps > most or params.groups > 1:
            raise call.refuse(
                f"of integers sums up {channels * taps} products",
                "convert to float32, or use fewer channels for each group",
                f"sums of more than {most} are not exact",
            )
        made = []
        for begin, end in pieces(channels, most // taps):
            some = replace(params, in_channels=end - begin)
            some_x, some_kernel = (build.slice_(net, v, 1, begin, end) for v in (x, kernel))
            made.append(_convolved(net, some_x, some_kernel, some, by_weights))
        return made

    return partial


def _convolved(net: BlockBuilder, x: Value, kernel: Value, params: ConvParams, by_weights: bool) -> Value:
    """The convolution as the kind of op that it is: [batch, out_channels, *output_field]."""
    dtype = x.dtype
    if by_weights:
        forward = _forward_of_weight_gradient(params)
        pair = build.transpose(net, kernel, 0, 1), build.transpose(net, x, 0, 1)
        made = net.emit("convolution_grad_weight", pair, forward.weights_shape, dtype, params=forward)
        return build.transpose(net, made, 0, 1)
    turned = [d for d, n in enumerate(kernel.shape) if d > 1 and n > 1]
    straight = _unturned(net, kernel, turned) if all(n == 1 for n in params.stride) else None
    if straight is None and (all(n == 1 for n in params.input_dilation) or any(n > 1 for n in params.stride)):
        return net.emit("convolution", [x, kernel], params.output_shape, dtype, params=params)
    if straight is None:
        straight = build.reverse(net, kernel, turned)
    forward = replace(replace(params, flip=(True,) * len(params.field)).gradient_params(), flip=())
    weights = _exchanged(net, straight, params.groups)
    return net.emit("convolution_grad_data", [x, weights], forward.input_shape, dtype, params=forward)


def _unturned(net: BlockBuilder, kernel: Value, dims: _Dims) -> Value | None:
    """The kernel before it was turned round, as JAX's gradient by the input does; None where it was not."""
    moved: list[tuple[str, Any]] = []
    value = kernel
    while dims and (maker := net.makers.get(value)) is not None:
        if maker.kind == "permute":
            moved.append(("permute", maker.attrs["order"]))
            dims = sorted(maker.attrs["order"][d] for d in dims)
        elif maker.kind == "cast":
            moved.append(("cast", maker.output.dtype))
        elif maker.kind == "reverse" and sorted(maker.attrs["dims"]) == sorted(dims):
            value = maker.inputs[0]
            for kind, how in reversed(moved):
                value = build.permute(net, value, how) if kind == "permute" else build.cast(net, value, how)
            return value
        else:
            return None
        value = maker.inputs[0]
    return None


def _exchanged(net: BlockBuilder, kernel: Value, groups: int) -> Value:
    """The kernel of the convolution whose gradient by the input one with this kernel is: channels exchanged."""
    if groups == 1:
        return build.transpose(net, kernel, 0, 1)
    of, into, *field = kernel.shape
    apart = build.reshape(net, kernel, (groups, of // groups, into, *field))
    return build.reshape(net, build.transpose(net, apart, 1, 2), (groups * into, of // groups, *field))


def _forward_of_weight_gradient(params: ConvParams) -> ConvParams:
    """The convolution of which one with samples for channels, and channels for samples, is the gradient by weights."""
    rank = range(len(params.field))
    made = params.output_field
    inner = params.kernel  # extents of the gradient of what the forward convolution made
    upper = []
    for d in rank:
        covered = (inner[d] - 1) * params.dilation[d] + (made[d] - 1) * params.stride[d] + 1
        least = covered - ((params.field[d] - 1) * params.input_dilation[d] + 1) - params.padding_lower[d]
        # A stride may leave some of the input unread: padding is then said as it probably was, none or as below.
        likely = (params.padding_lower[d], 0)
        upper.append(next((n for n in likely if least <= n < least + params.dilation[d]), least))
    return replace(
        params,
        batch=params.in_channels // params.groups,
        in_channels=params.batch,
        kernel=made,
        stride=params.dilation,
        dilation=params.stride,
        padding_upper=tuple(upper),
    )
