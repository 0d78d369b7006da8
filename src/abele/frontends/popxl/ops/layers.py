"""Ops of neural networks: products, norms, pools, losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.errors import UnsupportedOpError
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.popxl.dtypes import as_dtype
from abele.frontends.popxl.errors import GraphArgumentError, OperandError
from abele.frontends.popxl.ops.common import check_index, check_same_types, checked, emit, emit_many, mapped, one_dim
from abele.frontends.popxl.ops.convolutions import each, memory_hint, pads
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.autodiff.differentiate import gradients
from abele.network.ops import build
from abele.numerics import f32, i32
from abele.poplibs.popnn.pool_params import PoolKind, PoolParams

x, y, z = arg(0), arg(1), arg(2)


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
        with net.at(hint=memory_hint(available_memory_proportion, partials_type)):
            if b.ndim == 2 and a.ndim >= 2 and a.dtype.is_float:
                made = build.linear(net, a, build.transpose(net, b), None)
            elif a.dtype.is_float:
                made = build.matmul(net, a, b)
            else:
                made = build.cast(net, build.matmul(net, build.cast(net, a, f32), build.cast(net, b, f32)), a.dtype)
        return build.cast(net, made, result)

    return emit("matmul", meaning, lhs, rhs)


def _pool(
    kind: str,
    pooling: PoolKind,
    t: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    auto_pad: str,
    refused: Sequence[bool],
    ceil_mode: bool,
) -> Tensor:
    checked(kind, t)
    if any(refused):
        raise UnsupportedOpError(f"{kind} with dilation or out_pads has no lowering", remedy="pad its operand")
    rank = t.rank - 2
    window, strides = each(kernel, rank), each(stride, rank)
    low, high = (list(side) for side in pads(kind, padding, rank, t.shape[2:], window, strides, pad_type=auto_pad))
    if ceil_mode:
        # One more window where elements are left, if it begins at one of them or before.
        for d, (n, k, step) in enumerate(zip(t.shape[2:], window, strides, strict=True)):
            rest = (n + low[d] + high[d] - k) % step
            begin = n + low[d] + high[d] - k - rest + step
            high[d] += step - rest if rest and begin < n + low[d] else 0
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


def _not_plain(out_pads: Any, dilation: Any, in_dilations: Any) -> list[bool]:
    more = bool(out_pads) and any(each(out_pads, 1) if isinstance(out_pads, int) else out_pads)
    apart = [
        d is not None and any(n != 1 for n in each(d, len(d) if not isinstance(d, int) else 1))
        for d in (dilation, in_dilations)
    ]
    return [more, *apart]


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
    refused = _not_plain(out_pads, dilation, in_dilations)
    return _pool(
        "average_pool", "avg", t, kernel_size, stride, padding, auto_pad=auto_pad, refused=refused, ceil_mode=ceil_mode
    )


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
    refused = _not_plain(out_pads, dilation, in_dilations)
    return _pool(
        "max_pool", "max", t, kernel_size, stride, padding, auto_pad=auto_pad, refused=refused, ceil_mode=ceil_mode
    )


def softmax(t: Tensor, axis: int) -> Tensor:
    """The softmax over an axis."""
    checked("softmax", t)
    dim = one_dim("softmax", axis, t.rank)
    return emit("softmax", lambda net, v: build.softmax(net, v, dim), t)


def _check_parameters(kind: str, count: int, *parameters: Tensor) -> None:
    for parameter in parameters:
        if parameter.nelms != count:
            raise OperandError(f"{kind} takes {count} elements of {parameter.id!r}, which is {list(parameter.shape)}")


def layer_norm(t: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalisation over the last axis."""
    checked("layer_norm", t, weight, bias)
    _check_parameters("layer_norm", t.shape[-1], weight, bias)
    width = t.shape[-1]

    def meaning(net: BlockBuilder, v: Value, gain: Value, shift: Value) -> list[Value]:
        rows = build.reshape(net, v, (v.size // width, width))
        made, *statistics = build.norm(net, rows, 1, eps, gain, shift)
        return [build.reshape(net, made, v.shape), *statistics]

    return emit_many("layer_norm", meaning, t, weight, bias)[0]


def group_norm(t: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float = 1e-5) -> Tensor:
    """Normalisation of groups of channels of each sample."""
    checked("group_norm", t, weight, bias)
    if t.rank < 2 or t.shape[1] % num_groups:
        raise GraphArgumentError(f"group_norm makes {num_groups} groups of axis 1 of {list(t.shape)}")
    _check_parameters("group_norm", t.shape[1], weight, bias)
    return emit_many("group_norm", lambda net, v, g, s: build.norm(net, v, num_groups, eps, g, s), t, weight, bias)[0]


def batch_norm_inference(
    t: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float = 1e-5, momentum: float = 0.9
) -> Tensor:
    """Normalisation by statistics that are given."""
    checked("batch_norm_inference", t, scale, bias, mean, var)
    _check_parameters("batch_norm_inference", t.shape[1], scale, bias, mean, var)

    def meaning(net: BlockBuilder, v: Value, gain: Value, shift: Value, centre: Value, spread: Value) -> Value:
        factor = build.map_(net, apply("rsqrt", x + float(epsilon)) * y, [spread, gain], f32)
        addend = build.map_(net, y - z * x, [factor, shift, centre], f32)
        wide = [build.reshape(net, w, (w.size, *(1,) * (v.ndim - 2))) for w in (factor, addend)]
        return build.map_(net, x * y + z, [v, *wide], v.dtype)

    return emit("batch_norm_inference", meaning, *(t, scale, bias, mean, var))


def label_losses(net: BlockBuilder, logs: Value, labels: Value, ignored: int | None, reduction: str) -> Value:
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
    check_index(kind, labels)
    if labels.shape != probs.shape[:-1]:
        raise GraphArgumentError(f"{kind} has labels {list(labels.shape)} for {list(probs.shape)}")


def nll_loss(
    probs: Tensor, labels: Tensor, ignore_index: int | None = None, reduction: str = "mean", log_prob: bool = False
) -> Tensor:
    """Minus the logarithm of each label's probability, over the last axis."""
    _check_loss("nll_loss", probs, labels, reduction)

    def meaning(net: BlockBuilder, v: Value, label: Value) -> Value:
        logs = v if log_prob else mapped(apply("log", x))(net, v)
        return label_losses(net, logs, label, ignore_index, reduction)

    return emit("nll_loss", meaning, probs, labels)


def nll_loss_with_softmax_grad(
    probs: Tensor, labels: Tensor, loss_grad: Any = 1, reduction: str = "mean", ignore_index: int | None = None
) -> tuple[Tensor, Tensor]:
    """The loss of probabilities that a softmax made, and its gradient by what the softmax was of."""
    from abele.frontends.popxl.ops.common import tensor_of

    _check_loss("nll_loss_with_softmax_grad", probs, labels, reduction)

    def meaning(net: BlockBuilder, v: Value, label: Value, grad: Value) -> list[Value]:
        scores = mapped(apply("log", x))(net, v)
        made = label_losses(net, build.softmax(net, scores, v.ndim - 1, log=True), label, ignore_index, reduction)
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
    "group_norm",
    "layer_norm",
    "matmul",
    "max_pool",
    "nll_loss",
    "nll_loss_with_softmax_grad",
    "softmax",
]
