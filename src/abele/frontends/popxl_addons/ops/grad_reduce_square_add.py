"""The sum of squares over many tensors, as the global norm of gradients needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from abele.expr import apply
from abele.expr.derivative import arg
from abele.frontends.popxl import float32
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import checked, emit, tensor_of
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import f32

x, y = arg(0), arg(1)


def grad_reduce_square_add(ts: Iterable[Tensor], loss_scale: Any = 1.0) -> Tensor:
    """The sum of (t / loss_scale)² over all elements of all tensors, in float32.

    Each tensor is divided before it is squared, so that squares of float16 do not overflow.

    Args:
        ts: Tensors, of any float types and shapes.
        loss_scale: A number, or a tensor of one element.
    """
    tensors = list(ts)
    if not tensors:
        raise GraphArgumentError("grad_reduce_square_add takes at least one tensor")
    scale = _one("loss_scale", loss_scale)
    checked("grad_reduce_square_add", *tensors, scale)

    def meaning(net: BlockBuilder, *values: Value) -> Value:
        by = build.cast(net, build.reshape(net, values[-1], ()), f32)
        parts = []
        for value in values[:-1]:
            share = build.map_(net, x / y, [build.cast(net, value, f32), by], f32)
            parts.append(build.reduce(net, build.map_(net, x * x, [share]), range(value.ndim)))
        return build.total(net, parts)

    return emit("grad_reduce_square_add", meaning, *tensors, scale)


def clip_factor(square_sum: Tensor, max_norm: float | Tensor) -> Tensor:
    """Factor of gradients with which their norm is ``max_norm`` at most: 1 for smaller ones.

    Args:
        square_sum: Sum of their squares, one element of float32.
        max_norm: The largest norm.
    """
    largest = _one("max_norm", max_norm)
    checked("clip_factor", square_sum, largest)

    def meaning(net: BlockBuilder, total: Value, norm: Value) -> Value:
        flat = [build.cast(net, build.reshape(net, v, ()), f32) for v in (total, norm)]
        return build.map_(net, apply("min", 1.0, y / (apply("sqrt", x) + 1e-6)), flat, f32)

    return emit("clip_factor", meaning, square_sum, largest)


def _one(what: str, value: Any) -> Tensor:
    made = tensor_of(value, float32)
    if made.nelms != 1:
        raise GraphArgumentError(f"{what} has one element, not {list(made.shape)}")
    return made


__all__ = ["clip_factor", "grad_reduce_square_add"]
