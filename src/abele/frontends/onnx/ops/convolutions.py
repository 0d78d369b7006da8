"""Convolutions, plain and transposed."""

from __future__ import annotations

from collections.abc import Sequence

from abele.expr.derivative import arg
from abele.frontends.onnx.ops.views import sliced
from abele.frontends.onnx.registry import NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bf16, f16, f32

Ints = Sequence[int]
AUTO = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def field_padding(
    call: NodeCall, auto_pad: str, pads: Ints | None, spans: Ints, strides: Ints, field: Ints
) -> tuple[list[int], list[int]]:
    """Padding before and after each field dimension.

    Args:
        call: The node.
        auto_pad: ``NOTSET``, ``VALID``, or ``SAME_UPPER`` or ``SAME_LOWER``: as many outputs as inputs by strides.
        pads: Padding before all dimensions, then after all.
        spans: Extent of the window along each, dilation included.
        strides: Steps of the window.
        field: Extents of the field.
    """
    rank = len(field)
    if auto_pad not in AUTO:
        raise call.wrong(f"has auto_pad={auto_pad!r}, which is none of {', '.join(AUTO)}")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        whole = [max((-(-n // s) - 1) * s + span - n, 0) for n, s, span in zip(field, strides, spans, strict=True)]
        small = [n // 2 for n in whole]
        large = [n - half for n, half in zip(whole, small, strict=True)]
        return (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    if pads is None or auto_pad == "VALID":
        return [0] * rank, [0] * rank
    if len(pads) != 2 * rank:
        raise call.wrong(f"has {len(pads)} numbers of padding for {rank} field dimensions")
    return list(pads[:rank]), list(pads[rank:])


def each(call: NodeCall, name: str, given: Ints | None, rank: int) -> list[int]:
    """An attribute with a number for each field dimension, which are 1 where it is left out."""
    if given is None:
        return [1] * rank
    if len(given) != rank:
        raise call.wrong(f"has {len(given)} {name} for {rank} field dimensions")
    return list(given)


def _for_units(call: NodeCall, value: Value, weight: Value, bias: Value | None) -> tuple[Value, Value, Value | None]:
    """Operands in a type that the units convolve: halves or floats, of which bfloat16 becomes the latter.

    Raises:
        ModelError: The operand is of no such type.
    """
    if value.dtype not in (f16, f32, bf16):
        raise call.wrong(f"convolves {value.dtype}, it takes float, float16 and bfloat16")
    kind = f32 if value.dtype == bf16 else value.dtype
    held = None if bias is None else build.cast(call.net, bias, kind)
    return build.cast(call.net, value, kind), build.cast(call.net, weight, kind), held


@op("Conv")
def conv(
    call: NodeCall,
    value: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """A cross-correlation over the field."""
    rank = value.ndim - 2
    if weight.ndim != value.ndim or rank < 1:
        raise call.wrong(f"convolves {list(value.shape)} with {list(weight.shape)}")
    if value.shape[1] != weight.shape[1] * group or weight.shape[0] % group:
        raise call.wrong(f"convolves {value.shape[1]} channels with weights {list(weight.shape)} in {group} groups")
    steps, apart = each(call, "strides", strides, rank), each(call, "dilations", dilations, rank)
    spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], apart, strict=True)]
    low, high = field_padding(call, auto_pad, pads, spans, steps, value.shape[2:])
    made = build.convolution(
        call.net,
        *_for_units(call, value, weight, bias),
        stride=steps,
        padding=low,
        padding_upper=high,
        dilation=apart,
        groups=group,
    )
    return build.cast(call.net, made, value.dtype)


@op("ConvTranspose")
def conv_transpose(
    call: NodeCall,
    value: Value,
    weight: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Value:
    """The gradient of a convolution by its operand."""
    net, rank = call.net, value.ndim - 2
    steps, apart = each(call, "strides", strides, rank), each(call, "dilations", dilations, rank)
    extra = list(output_padding or [0] * rank)
    if value.shape[1] != weight.shape[0]:
        raise call.wrong(f"convolves {value.shape[1]} channels with weights {list(weight.shape)}")
    whole = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(value.shape[2:], steps, weight.shape[2:], apart, strict=True)
    ]
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = (
            list(output_shape)[-rank:]
            if output_shape is not None
            else [n * s for n, s in zip(value.shape[2:], steps, strict=True)]
        )
        cut = [w + o - n for w, o, n in zip(whole, extra, wanted, strict=True)]
        small = [n // 2 for n in cut]
        large = [n - half for n, half in zip(cut, small, strict=True)]
        low, high = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    else:
        low, high = field_padding(call, auto_pad, pads, [1] * rank, [1] * rank, value.shape[2:])
    data, filters, _ = _for_units(call, value, weight, None)
    made = build.transposed_convolution(
        net,
        data,
        filters,
        None,
        stride=steps,
        padding=[0] * rank,
        output_padding=[0] * rank,
        dilation=apart,
        groups=group,
    )
    made = build.cast(net, made, value.dtype)
    for number in range(rank):
        dim, extent = number + 2, whole[number] + extra[number]
        before, after = low[number], extent - high[number]
        begin, end = max(before, 0), min(after, whole[number])
        part = sliced(call, made, dim, slice(begin, max(end, begin)))
        sides = [0] * part.ndim, [0] * part.ndim
        sides[0][dim], sides[1][dim] = max(-before, 0), max(after - whole[number], 0)
        made = build.pad(net, part, *sides) if sides[0][dim] or sides[1][dim] else part
    if bias is None:
        return made
    channel = build.reshape(net, bias, (bias.size, *(1,) * rank))
    return call.map(arg(0) + arg(1), made, channel)
