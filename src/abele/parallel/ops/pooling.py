"""Maximum and average pooling over field dimensions, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from abele.graph import Tensor
from abele.parallel.network import Network, Op, Value
from abele.parallel.registry import Array, Gradients, OpRule, rule
from abele.poplibs import popnn
from abele.poplibs.popnn.pool_params import PoolParams

if TYPE_CHECKING:
    from abele.parallel.lowering import Lowering


def pool(net: Network, value: Value, pooling: PoolParams) -> Value:
    """``value`` [batch, channels, *field] pooled over its field."""
    return net.emit("pool", [value], pooling.out_shape, value.dtype, pooling=pooling)


def _windows(x: Array, pooling: PoolParams, fill: float) -> Array:
    """[batch, channels, *output_field, *kernel], with ``fill`` for padding."""
    around = [(0, 0), (0, 0), *zip(pooling.padding_lower, pooling.padding_upper, strict=True)]
    padded = np.pad(x, around, constant_values=fill)
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, pooling.kernel, axis=axes)
    return windows[(slice(None), slice(None), *(slice(None, None, s) for s in pooling.stride))]


def _kernel_axes(pooling: PoolParams) -> tuple[int, ...]:
    return tuple(range(-len(pooling.kernel), 0))


@rule("pool")
class Pool(OpRule):
    """The maximum, sum or average of every window."""

    def evaluate(self, op: Op, x: Array) -> Array:
        """Windows reduced in NumPy."""
        pooling: PoolParams = op.attrs["pooling"]
        axes = _kernel_axes(pooling)
        if pooling.kind == "max":
            return np.asarray(_windows(x, pooling, -math.inf).max(axes))
        total = _windows(x, pooling, 0).sum(axes)
        if pooling.kind == "sum":
            return np.asarray(total)
        return np.asarray(total / np.maximum(_windows(np.ones_like(x), pooling, 0).sum(axes), 1))

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """One popnn pooling."""
        return popnn.pool(to.graph, to[op.inputs[0]], op.attrs["pooling"], to.prog)

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """One gradient op; that of a maximum needs input and output."""
        pooling, (x,) = op.attrs["pooling"], op.inputs
        saved = [x, op.output] if pooling.kind == "max" else []
        return [net.emit_like("pool_grad", [grad, *saved], x, pooling=pooling)]


@rule("pool_grad")
class PoolGrad(OpRule):
    """The gradient of pooling; that of a maximum goes to every element equal to it, as in PopLibs."""

    def evaluate(self, op: Op, grad: Array, *saved: Array) -> Array:
        """Every window's gradient added where it read."""
        pooling: PoolParams = op.attrs["pooling"]
        wide = (..., *(None,) * len(pooling.kernel))
        places = _windows(np.arange(1, 1 + op.output.size).reshape(op.output.shape), pooling, 0)
        if pooling.kind == "max":
            x, best = saved
            spread = np.where(_windows(x, pooling, -math.inf) == best[wide], grad[wide], 0)
        elif pooling.kind == "avg":
            count = np.maximum((places > 0).sum(_kernel_axes(pooling)), 1)
            spread = np.broadcast_to((grad / count)[wide], places.shape)
        else:
            spread = np.broadcast_to(grad[wide], places.shape)
        result = np.zeros(op.output.size + 1, spread.dtype)
        np.add.at(result, places.reshape(-1), spread.reshape(-1))
        return result[1:].reshape(op.output.shape)

    def lower(self, to: Lowering, op: Op) -> Tensor:
        """One popnn pooling gradient."""
        grad, *saved = (to[v] for v in op.inputs)
        return popnn.pool_input_gradient(to.graph, op.attrs["pooling"], grad, *saved, prog=to.prog)
