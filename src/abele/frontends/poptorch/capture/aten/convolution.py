"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.parallel import Value
from abele.parallel.ops import build

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
    if isinstance(padding, str):
        padding = _named_padding(call, padding, weight, per_dim(dilation, rank))
    samples = x if x.ndim == weight.ndim else build.reshape(call.net, x, (1, *x.shape))
    result = build.convolution(
        call.net,
        samples,
        weight,
        bias,
        stride=per_dim(stride, rank),
        padding=per_dim(padding, rank),
        dilation=per_dim(dilation, rank),
        groups=groups,
    )
    return build.reshape(call.net, result, call.shape)


def _named_padding(call: OperatorCall, name: str, weight: Value, dilation: Sequence[int]) -> tuple[int, ...]:
    if name == "valid":
        return (0,) * len(dilation)
    spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(s % 2 for s in spans):
        raise call.refuse("with padding='same' and an even kernel has no lowering", "pad explicitly")
    return tuple(s // 2 for s in spans)
