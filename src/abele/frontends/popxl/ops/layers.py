"""Ops of neural networks: products, convolutions, norms, pools, losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.errors import UnsupportedOpError
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import check_same_types, checked, emit, emit_many, mapped, one_dim
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.autodiff.differentiate import gradients
from abele.network.ir import PlanHint
from abele.network.ops import build
from abele.numerics import f32, i32
from abele.poplibs.popnn.pool_params import PoolKind, PoolParams

Ints = Sequence[int]
x, y, z = arg(0), arg(1), arg(2)


def _hint(proportion: Any) -> PlanHint | None:
    first = proportion[0] if isinstance(proportion, list | tuple) and proportion else proportion
    return PlanHint(proportion=float(first)) if isinstance(first, float | int) else None


def matmul(
    lhs: Tensor,
    rhs: Tensor,
    available_memory_proportion: float | None = None,
    output_type: Any = None,
    partials_type: Any = None,
) -> Tensor:
    """The product of matrices, or of stacks of them."""
    checked("matmul", lhs, rhs)
    check_same_types("matmul", (lhs, rhs))
    inner = rhs.shape[-2] if rhs.rank > 1 else rhs.nelms
    if not lhs.rank or not rhs.rank or lhs.shape[-1] != inner:
        raise GraphArgumentError(f"matmul of {list(lhs.shape)} and {list(rhs.shape)}: inner dimensions differ")
    result = lhs.dtype.element if output_type is None else as_dtype(output_type).element

    def meaning(net: BlockBuilder, a: Value, b: Value) -> Value:
        with net.at(hint=_hint(available_memory_proportion)):
            if b.ndim == 2 and a.ndim >= 2 and a.dtype.is_float:
                made = build.linear(net, a, build.transpose(net, b), None)
            elif a.dtype.is_float:
                made = build.matmul(net, a, b)
            else:
                made = build.cast(net, build.matmul(net, build.cast(net, a, f32), build.cast(net, b, f32)), a.dtype)
        return build.cast(net, made, result)

    return emit("matmul", meaning, lhs, rhs)


def _pads(kind: str, padding: Any, rank: int, field: Ints, spans: Ints, strides: Ints, pad_type: str) -> Any:
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
    given = [padding] * (2 * rank) if isinstance(padding, int) else list(padding) if padding else [0] * (2 * rank)
    if len(given) != 2 * rank:
        raise GraphArgumentError(f"{kind} has padding {given}: {rank} numbers before and {rank} after the field")
    return given[:rank], given[rank:]


def _each(value: Any, rank: int) -> list[int]:
    return [int(value)] * rank if isinstance(value, int) else [int(n) for n in value or [1] * rank][:rank]


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
    rank = t.rank - 2
    strides, apart = _each(stride, rank), _each(dilation, rank)
    spans = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], apart, strict=True)]
    if isinstance(padding, tuple) and not any(padding):
        padding = [0] * (2 * rank)
    low, high = _pads("conv", padding, rank, t.shape[2:], spans, strides, pad_type=pad_type)

    def meaning(net: BlockBuilder, v: Value, w: Value) -> Value:
        with net.at(hint=_hint(available_memory_proportions)):
            return build.convolution(
                net, v, w, stride=strides, padding=low, padding_upper=high, dilation=apart, groups=groups
            )

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
    rank = t.rank - 2
    if output_shape is not None:
        raise UnsupportedOpError("conv_transpose with output_shape has no lowering", remedy="give padding")
    if isinstance(padding, tuple) and not any(padding):
        padding = [0] * (2 * rank)
    low, high = _pads("conv_transpose", padding, rank, t.shape[2:], [1] * rank, [1] * rank, pad_type=pad_type)
    if low != high:
        raise UnsupportedOpError("conv_transpose with uneven padding has no lowering", remedy="slice its result")
    extra = _each(output_padding, rank) if output_padding else [0] * rank

    def meaning(net: BlockBuilder, v: Value, w: Value) -> Value:
        return build.transposed_convolution(
            net,
            v,
            w,
            stride=_each(stride, rank),
            padding=low,
            output_padding=extra,
            dilation=_each(dilation, rank),
            groups=groups,
        )

    return emit("conv_transpose", meaning, t, weight)


def _pool(
    kind: str,
    pooling: PoolKind,
    t: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    auto_pad: str,
    refused: Sequence[bool],
) -> Tensor:
    checked(kind, t)
    if any(refused):
        raise UnsupportedOpError(
            f"{kind} with dilation, out_pads or ceil_mode has no lowering", remedy="pad its operand"
        )
    rank = t.rank - 2
    window, strides = _each(kernel, rank), _each(stride, rank)
    low, high = _pads(kind, padding, rank, t.shape[2:], window, strides, pad_type=auto_pad)
    params = PoolParams(
        kind=pooling,
        field=t.shape[2:],
        kernel=tuple(window),
        stride=tuple(strides),
        padding_lower=tuple(low),
        padding_upper=tuple(high),
        channels=t.shape[1],
        batch=t.shape[0],
        ties="first" if pooling == "max" else "all",
    )
    return emit(kind, lambda net, v: build.pool(net, v, params), t)


def _not_plain(out_pads: Any, dilation: Any, in_dilations: Any, ceil_mode: bool) -> list[bool]:
    pads = bool(out_pads) and any(_each(out_pads, 1) if isinstance(out_pads, int) else out_pads)
    apart = [
        d is not None and any(n != 1 for n in _each(d, len(d) if not isinstance(d, int) else 1))
        for d in (dilation, in_dilations)
    ]
    return [pads, *apart, bool(ceil_mode)]


def average_pool(
    t: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = None,
    out_pads: Any = None,
    dilation: Any = None,
    in_dilations: Any = None,
    auto_pad: str = "not_set",
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window, of what is inside the field."""
    refused = _not_plain(out_pads, dilation, in_dilations, ceil_mode)
    return _pool("average_pool", "avg", t, kernel_size, stride, padding, auto_pad=auto_pad, refused=refused)


def max_pool(
    t: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = None,
    out_pads: Any = None,
    dilation: Any = None,
    in_dilations: Any = None,
    auto_pad: str = "not_set",
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window."""
    refused = _not_plain(out_pads, dilation, in_dilations, ceil_mode)
    return _pool("max_pool", "max", t, kernel_size, stride, padding, auto_pad=auto_pad, refused=refused)


def softmax(t: Tensor, axis: int) -> Tensor:
    """The softmax over an axis."""
    checked("softmax", t)
    dim = one_dim("softmax", axis, t.rank)
    return emit("softmax", lambda net, v: build.softmax(net, v, dim), t)


def layer_norm(t: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalisation over the last axis."""
    checked("layer_norm", t, weight, bias)
    width = t.shape[-1]

    def meaning(net: BlockBuilder, v: Value, gain: Value, shift: Value) -> Value:
        rows = build.reshape(net, v, (v.size // width, width))
        return build.reshape(net, build.norm(net, rows, 1, eps, gain, shift)[0], v.shape)

    return emit("layer_norm", meaning, t, weight, bias)


def group_norm(t: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float = 1e-5) -> Tensor:
    """Normalisation of groups of channels of each sample."""
    checked("group_norm", t, weight, bias)
    if t.rank < 2 or t.shape[1] % num_groups:
        raise GraphArgumentError(f"group_norm makes {num_groups} groups of axis 1 of {list(t.shape)}")
    return emit("group_norm", lambda net, v, g, s: build.norm(net, v, num_groups, eps, g, s)[0], t, weight, bias)


def batch_norm_inference(
    t: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float = 1e-5, momentum: float = 0.9
) -> Tensor:
    """Normalisation by statistics that are given."""
    checked("batch_norm_inference", t, scale, bias, mean, var)

    def meaning(net: BlockBuilder, v: Value, gain: Value, shift: Value, centre: Value, spread: Value) -> Value:
        factor = build.map_(net, apply("rsqrt", x + float(epsilon)) * y, [spread, gain], f32)
        addend = build.map_(net, y - z * x, [factor, shift, centre], f32)
        wide = [build.reshape(net, w, (w.size, *(1,) * (v.ndim - 2))) for w in (factor, addend)]
        return build.map_(net, x * y + z, [v, *wide], v.dtype)

    return emit("batch_norm_inference", meaning, *(t, scale, bias, mean, var))


def _likelihood(net: BlockBuilder, logs: Value, labels: Value, ignored: int | None, reduction: str) -> Value:
    """Losses of labels beside logarithms of [..., classes]."""
    classes = logs.shape[-1]
    numbers = net.constant(np.arange(classes), i32, "classes")
    label = build.reshape(net, build.cast(net, labels, i32), (*labels.shape, 1))
    share = select(x.eq(y), -z, 0.0)
    if ignored is not None:
        share = select(y.eq(ignored), 0.0, share)
    losses = build.map_(net, share, [numbers, label, logs], logs.dtype)
    if reduction == "none":
        return build.reduce(net, losses, [logs.ndim - 1])
    total = build.reduce(net, losses, range(logs.ndim))
    if reduction == "sum":
        return total
    if ignored is None:
        return mapped(x * (1.0 / max(1, math.prod(labels.shape))))(net, total)
    counted = build.map_(net, select(x.eq(ignored), 0.0, 1.0), [label], logs.dtype)
    return mapped(x / y)(net, total, build.reduce(net, counted, range(label.ndim)))


def _check_loss(kind: str, probs: Tensor, labels: Tensor, reduction: str) -> None:
    checked(kind, probs, labels)
    if reduction not in ("mean", "sum", "none"):
        raise GraphArgumentError(f"{kind} has the reduction {reduction!r}: mean, sum or none")
    if labels.shape != probs.shape[:-1]:
        raise GraphArgumentError(f"{kind} has labels {list(labels.shape)} for {list(probs.shape)}")


def nll_loss(
    probs: Tensor, labels: Tensor, ignore_index: int | None = None, reduction: str = "mean", log_prob: bool = False
) -> Tensor:
    """Minus the logarithm of each label's probability, over the last axis."""
    _check_loss("nll_loss", probs, labels, reduction)

    def meaning(net: BlockBuilder, v: Value, label: Value) -> Value:
        logs = v if log_prob else mapped(apply("log", x))(net, v)
        return _likelihood(net, logs, label, ignore_index, reduction)

    return emit("nll_loss", meaning, probs, labels)


def nll_loss_with_softmax_grad(
    probs: Tensor, labels: Tensor, loss_grad: Any = 1, reduction: str = "mean", ignore_index: int | None = None
) -> tuple[Tensor, Tensor]:
    """The loss of probabilities that a softmax made, and its gradient by what the softmax was of."""
    from abele.frontends.popxl.ops.common import tensor_of

    _check_loss("nll_loss_with_softmax_grad", probs, labels, reduction)

    def meaning(net: BlockBuilder, v: Value, label: Value, grad: Value) -> list[Value]:
        scores = mapped(apply("log", x))(net, v)
        made = _likelihood(net, build.softmax(net, scores, v.ndim - 1, log=True), label, ignore_index, reduction)
        given = build.expand(
            net, build.cast(net, build.reshape(net, grad, ()) if grad.size == 1 else grad, made.dtype), made.shape
        )
        return [made, *gradients(net, [made], [given], [scores])]

    grad = tensor_of(loss_grad, probs.dtype)
    loss, by = emit_many("nll_loss_with_softmax_grad", meaning, probs, labels, grad)
    return loss, by


__all__ = [
    "average_pool",
    "batch_norm_inference",
    "conv",
    "conv_transpose",
    "group_norm",
    "layer_norm",
    "matmul",
    "max_pool",
    "nll_loss",
    "nll_loss_with_softmax_grad",
    "softmax",
]
