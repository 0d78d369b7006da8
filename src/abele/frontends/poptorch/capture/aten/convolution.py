"""Convolutions, plain and transposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from abele.frontends.poptorch.capture.conv_groups import group_hint
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops import build

Extents = int | Sequence[int]


def per_dim(value: Extents, rank: int) -> tuple[int, ...]:
    """One number per field dimension."""
    if isinstance(value, int):
        return (value,) * rank
    return tuple(value) * rank if len(value) == 1 else tuple(value)


@aten("aten.conv1d", "aten.conv2d", "aten.conv3d")
def convolution(
    call: OperatorCall,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Extents = 1,
    padding: Extents | str = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Value:
    """A cross-correlation; an input without a batch dimension is one sample."""
    rank = weight.ndim - 2
    apart = per_dim(dilation, rank)
    if isinstance(padding, str):
        lower, upper = _named_padding(padding, weight, apart)
    else:
        lower = upper = per_dim(padding, rank)
    return _of_samples(
        call,
        x,
        weight,
        lambda samples: build.convolution(
            call.net,
            samples,
            weight,
            bias,
            stride=per_dim(stride, rank),
            padding=lower,
            padding_upper=upper,
            dilation=apart,
            groups=groups,
        ),
    )


@aten("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
def transposed_convolution(
    call: OperatorCall,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Extents = 1,
    padding: Extents = 0,
    output_padding: Extents = 0,
    groups: int = 1,
    dilation: Extents = 1,
) -> Value:
    """A transposed convolution; an input without a batch dimension is one sample."""
    rank = weight.ndim - 2
    return _of_samples(
        call,
        x,
        weight,
        lambda samples: build.transposed_convolution(
            call.net,
            samples,
            weight,
            bias,
            stride=per_dim(stride, rank),
            padding=per_dim(padding, rank),
            output_padding=per_dim(output_padding, rank),
            dilation=per_dim(dilation, rank),
            groups=groups,
        ),
    )


@aten("aten.convolution", "aten._convolution", "aten._convolution.deprecated")
def either_convolution(
    call: OperatorCall,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Extents,
    padding: Extents,
    dilation: Extents,
    transposed: bool,
    output_padding: Extents,
    groups: int,
    *settings: bool,
) -> Value:
    """A plain or a transposed convolution; settings of libraries mean nothing here."""
    steps: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        made: Value = transposed_convolution(call, x, weight, bias, **steps, output_padding=output_padding)
    else:
        made = convolution(call, x, weight, bias, **steps)
    return made


def _of_samples(call: OperatorCall, x: Value, weight: Value, convolve: Callable[[Value], Value]) -> Value:
    """Result of ``convolve`` on the samples, in the shape of the operator's result."""
    samples = x if x.ndim == weight.ndim else build.reshape(call.net, x, (1, *x.shape))
    with call.net.at(hint=group_hint(call.node)):
        made = convolve(samples)
    return build.reshape(call.net, made, call.shape)


def _named_padding(name: str, weight: Value, dilation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after; where 'same' does not divide evenly, the rest is after."""
    if name == "valid":
        return (0,) * len(dilation), (0,) * len(dilation)
    spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    return tuple(s // 2 for s in spans), tuple(s - s // 2 for s in spans)
