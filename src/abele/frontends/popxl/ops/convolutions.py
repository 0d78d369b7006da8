"""Convolutions and their transposes, and the words in which PopXL sizes windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError, OperandError
from abele.frontends.popxl.ops.common import check_same_types, checked, emit
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ir import PlanHint
from abele.network.ops.convolution import convolution_of, transposed_convolution_of
from abele.poplibs.poplin.conv_params.params import ConvParams

Ints = Sequence[int]


def memory_hint(proportion: Any = None, partials: Any = None, dithering: Any = None) -> PlanHint | None:
    """Planning that a program asks for; of lists, which are for several passes, the first counts."""
    first, kind, dithered = (
        v[0] if isinstance(v, list | tuple) and v else v for v in (proportion, partials, dithering)
    )
    share = float(first) if isinstance(first, float | int) and not isinstance(first, bool) else None
    named = None if kind is None or isinstance(kind, list | tuple) else as_dtype(kind).element.name
    if share is None and named is None and not dithered:
        return None
    return PlanHint(proportion=share, partials=named, dithered=dithered is True)


def each(value: Any, rank: int) -> list[int]:
    """A number for each dimension of a field."""
    return [int(value)] * rank if isinstance(value, int) else [int(n) for n in value or [1] * rank][:rank]


def pads(
    kind: str, padding: Any, rank: int, field: Ints, spans: Ints, strides: Ints, pad_type: str
) -> tuple[list[int], list[int]]:
    """Padding before and after each dimension of a field.

    Raises:
        GraphArgumentError: An unknown ``pad_type``, or as many numbers as do not fit.
    """
    word = str(getattr(pad_type, "name", pad_type)).lower()
    if word in ("same_upper", "same_lower"):
        whole = [max(0, (-(-n // s) - 1) * s + k - n) for n, s, k in zip(field, strides, spans, strict=True)]
        small = [n // 2 for n in whole]
        large = [n - h for n, h in zip(whole, small, strict=True)]
        return (small, large) if word == "same_upper" else (large, small)
    if word == "valid":
        return [0] * rank, [0] * rank
    if word not in ("not_set", "notset"):
        raise GraphArgumentError(f"{kind} has pad_type {pad_type!r}: not_set, same_lower, same_upper or valid")
    if isinstance(padding, tuple) and not any(padding):
        padding = [0] * (2 * rank)
    given = [padding] * (2 * rank) if isinstance(padding, int) else list(padding) if padding else [0] * (2 * rank)
    if len(given) != 2 * rank:
        raise GraphArgumentError(f"{kind} has padding {given}: {rank} numbers before and {rank} after the field")
    return given[:rank], given[rank:]


def conv_params(
    kind: str,
    t: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    *,
    dilation: Any,
    groups: int,
    pad_type: str,
) -> ConvParams:
    """Sizes of a convolution of [batch, channels, *field] with [out, channels / groups, *kernel]."""
    _check_ranks(kind, t, weight)
    if t.shape[1] != weight.shape[1] * groups:
        raise OperandError(f"{kind} has {t.shape[1]} channels in {groups} groups for weights of {weight.shape[1]} each")
    rank = t.rank - 2
    strides, apart = each(stride, rank), each(dilation, rank)
    spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], apart, strict=True)]
    low, high = pads(kind, padding, rank, t.shape[2:], spans, strides, pad_type=pad_type)
    return ConvParams(
        batch=t.shape[0],
        in_channels=t.shape[1],
        out_channels=weight.shape[0],
        field=t.shape[2:],
        kernel=weight.shape[2:],
        stride=tuple(strides),
        dilation=tuple(apart),
        padding_lower=tuple(low),
        padding_upper=tuple(high),
        groups=groups,
    )


def turned_params(
    kind: str,
    t: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    *,
    dilation: Any,
    groups: int,
    pad_type: str,
    output_padding: Any,
    output_shape: Any,
) -> ConvParams:
    """Sizes of the convolution whose gradient by its operand a transposed one is.

    ``output_shape`` says the field of the result, and padding follows from it.
    """
    _check_ranks(kind, t, weight)
    rank = t.rank - 2
    strides, apart = each(stride, rank), each(dilation, rank)
    extra = each(output_padding, rank) if output_padding else [0] * rank
    spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], apart, strict=True)]
    whole = [(n - 1) * s + k + o for n, s, k, o in zip(t.shape[2:], strides, spans, extra, strict=True)]
    word = str(getattr(pad_type, "name", pad_type)).lower()
    wanted = None if not output_shape else [int(n) for n in output_shape][-rank:]
    if wanted is None and word in ("same_upper", "same_lower"):
        wanted = [n * s for n, s in zip(t.shape[2:], strides, strict=True)]
    if wanted is None:
        low, high = pads(kind, padding, rank, t.shape[2:], spans, strides, pad_type=pad_type)
    else:
        total = [n - w for n, w in zip(whole, wanted, strict=True)]
        small = [n // 2 for n in total]
        large = [n - h for n, h in zip(total, small, strict=True)]
        low, high = (large, small) if word == "same_lower" else (small, large)
    field = tuple(n - a - b for n, a, b in zip(whole, low, high, strict=True))
    if min(field) < 1:
        raise GraphArgumentError(f"{kind} makes a field of {list(field)}")
    return ConvParams(
        batch=t.shape[0],
        in_channels=weight.shape[1] * groups,
        out_channels=t.shape[1],
        field=field,
        kernel=weight.shape[2:],
        stride=tuple(strides),
        dilation=tuple(apart),
        padding_lower=tuple(low),
        # A convolution leaves less than a stride unread at the end by itself; more it has to cut.
        padding_upper=tuple(h if o < s else h - o for h, o, s in zip(high, extra, strides, strict=True)),
        groups=groups,
    )


def _check_ranks(kind: str, t: Tensor, weight: Tensor) -> None:
    if t.rank < 3 or weight.rank != t.rank:
        raise GraphArgumentError(
            f"{kind} takes [batch, channels, *field] and as many dimensions of weights, not "
            f"{list(t.shape)} and {list(weight.shape)}"
        )


def conv(
    t: Tensor,
    weight: Tensor,
    stride: Any = (1, 1),
    padding: Any = (0, 0, 0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    available_memory_proportions: Any = None,
    partials_types: Any = None,
    enable_conv_dithering: Any = None,
) -> Tensor:
    """The cross-correlation of [batch, channels, *field] with weights [out, channels / groups, *kernel]."""
    checked("conv", t, weight)
    check_same_types("conv", (t, weight))
    sizes = conv_params("conv", t, weight, stride, padding, dilation=dilation, groups=groups, pad_type=pad_type)

    def meaning(net: BlockBuilder, v: Value, w: Value) -> Value:
        with net.at(hint=memory_hint(available_memory_proportions, partials_types, enable_conv_dithering)):
            return convolution_of(net, v, w, sizes)

    return emit("conv", meaning, t, weight)


def conv_transpose(
    t: Tensor,
    weight: Tensor,
    stride: Any = (1, 1),
    padding: Any = (0, 0, 0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    output_padding: Any = None,
    output_shape: Any = None,
    available_memory_proportions: Any = None,
    partials_types: Any = None,
    enable_conv_dithering: Any = None,
) -> Tensor:
    """The gradient of a convolution by its operand: weights are [channels, out / groups, *kernel]."""
    checked("conv_transpose", t, weight)
    check_same_types("conv_transpose", (t, weight))
    sizes = turned_params(
        "conv_transpose",
        t,
        weight,
        stride,
        padding,
        dilation=dilation,
        groups=groups,
        pad_type=pad_type,
        output_padding=output_padding,
        output_shape=output_shape,
    )

    def meaning(net: BlockBuilder, v: Value, w: Value) -> Value:
        with net.at(hint=memory_hint(available_memory_proportions, partials_types, enable_conv_dithering)):
            return transposed_convolution_of(net, v, w, sizes)

    return emit("conv_transpose", meaning, t, weight)


__all__ = ["conv", "conv_transpose"]
