"""Maximum and average pooling over field dimensions, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.graph import Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Shape, Value
from abele.network.ir.part import ValuePart
from abele.network.ops.convolution import SlidingWindows
from abele.network.registry import Gradients, OpRule, Types, only, require, rule
from abele.poplibs import popnn
from abele.poplibs.popnn.pool_params import PoolParams

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def pool(net: BlockBuilder, value: Value, pooling: PoolParams) -> Value:
    """``value`` [batch, channels, *field] pooled over its field."""
    return net.emit("pool", [value], pooling.out_shape, value.dtype, pooling=pooling)


def _windows(x: Array, pooling: PoolParams, fill: float) -> Array:
    """[batch, channels, *output_field, *kernel], with ``fill`` for padding."""
    around = [(0, 0), (0, 0), *zip(pooling.padding_lower, pooling.padding_upper, strict=True)]
    padded = np.pad(x, around, constant_values=fill)
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, pooling.kernel, axis=axes)
    return windows[(slice(None), slice(None), *(slice(None, None, s) for s in pooling.stride))]


def _chosen(windows: Array, best: Array, pooling: PoolParams, inside: Array) -> Array:
    """The share that each element of each window has of its gradient."""
    equal = (windows == best) & inside
    axes = _kernel_axes(pooling)
    if pooling.ties == "shared":
        return np.asarray(equal / np.maximum(equal.sum(axes, keepdims=True), 1))
    if pooling.ties == "all":
        return np.asarray(equal)
    # The first that equals the maximum; of NaN, which equal nothing, the last.
    none = math.prod(pooling.kernel)
    number = np.arange(none).reshape(pooling.kernel)
    place = np.where(equal, number, np.where(np.isnan(windows), -1 - number, none)).min(axes, keepdims=True)
    return np.asarray(np.maximum(place, -1 - place) == number)


def _windows_over(pooling: PoolParams) -> SlidingWindows:
    return SlidingWindows(pooling.field, pooling.kernel, pooling.stride, pooling.padding_lower, pooling.padding_upper)


def _kernel_axes(pooling: PoolParams) -> tuple[int, ...]:
    return tuple(range(-len(pooling.kernel), 0))


def _fit(value: Value, shape: Shape) -> None:
    require(value.shape == shape, f"{value} does not fit its parameters, which say {list(shape)}")


@rule("pool")
class Pool(OpRule):
    """The maximum, sum or average of every window."""

    attributes: ClassVar = {"pooling": PoolParams}

    def types(self, op: NetworkOp) -> Types:
        """Output of the parameters, which the input fits."""
        pooling: PoolParams = op.attrs["pooling"]
        _fit(op.inputs[0], pooling.in_shape)
        return [(pooling.out_shape, op.inputs[0].dtype)]

    def needs(self, op: NetworkOp, part: ValuePart) -> tuple[ValuePart, Sequence[ValuePart | None]]:
        """The same samples and channels, and what the windows read."""
        under = _windows_over(op.attrs["pooling"]).part(part.dims[2:])
        return ValuePart((*part.dims[:2], *under.made)), [ValuePart((*part.dims[:2], *under.read))]

    def emit_part(self, net: BlockBuilder, op: NetworkOp, part: ValuePart, inputs: Sequence[Value]) -> Value:
        """The pooling of fewer samples and channels, over less of the field."""
        pooling: PoolParams = op.attrs["pooling"]
        under = _windows_over(pooling).part(part.dims[2:])
        fewer = replace(
            pooling,
            batch=part.shape[0],
            channels=part.shape[1],
            field=under.field,
            padding_lower=under.padding_lower,
            padding_upper=under.padding_upper,
        )
        return pool(net, inputs[0], fewer)

    def evaluate(self, op: NetworkOp, x: Array) -> Array:
        """Windows reduced in NumPy."""
        pooling: PoolParams = op.attrs["pooling"]
        axes = _kernel_axes(pooling)
        if pooling.kind == "max":
            return np.asarray(_windows(x, pooling, -math.inf).max(axes))
        total = _windows(x, pooling, 0).sum(axes)
        if pooling.kind == "sum":
            return np.asarray(total)
        return np.asarray(total / np.maximum(_windows(np.ones_like(x), pooling, 0).sum(axes), 1))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn pooling."""
        return popnn.pool(to.graph, to[op.inputs[0]], op.attrs["pooling"], to.prog)

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """One gradient op; that of a maximum needs input and output."""
        grad = only(grads)
        pooling, (x,) = op.attrs["pooling"], op.inputs
        saved = [x, op.output] if pooling.kind == "max" else []
        return [net.emit_like("pool_grad", [grad, *saved], x, pooling=pooling)]


@rule("pool_grad")
class PoolGrad(OpRule):
    """The gradient of pooling; that of a maximum goes to the elements that the parameters' rule for ties names."""

    operands = (1, 3)
    attributes: ClassVar = {"pooling": PoolParams}

    def types(self, op: NetworkOp) -> Types:
        """Input of the pooling."""
        pooling: PoolParams = op.attrs["pooling"]
        require(
            len(op.inputs) == (3 if pooling.kind == "max" else 1),
            "only the gradient of a maximum needs what was pooled",
        )
        for value, shape in zip(op.inputs, (pooling.out_shape, pooling.in_shape, pooling.out_shape), strict=False):
            _fit(value, shape)
        return [(pooling.in_shape, op.output.dtype)]

    def evaluate(self, op: NetworkOp, grad: Array, *saved: Array) -> Array:
        """Every window's gradient added where it read."""
        pooling: PoolParams = op.attrs["pooling"]
        wide = (..., *(None,) * len(pooling.kernel))
        places = _windows(np.arange(1, 1 + op.output.size).reshape(op.output.shape), pooling, 0)
        if pooling.kind == "max":
            x, best = saved
            chosen = _chosen(_windows(x, pooling, -math.inf), best[wide], pooling, places > 0)
            spread = chosen * np.where(chosen, grad[wide], 0)
        elif pooling.kind == "avg":
            count = np.maximum((places > 0).sum(_kernel_axes(pooling)), 1)
            spread = np.broadcast_to((grad / count)[wide], places.shape)
        else:
            spread = np.broadcast_to(grad[wide], places.shape)
        result = np.zeros(op.output.size + 1, spread.dtype)
        np.add.at(result, places.reshape(-1), spread.reshape(-1))
        return result[1:].reshape(op.output.shape)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One popnn pooling gradient."""
        grad, *saved = (to[v] for v in op.inputs)
        return popnn.pool_input_gradient(to.graph, op.attrs["pooling"], grad, *saved, prog=to.prog)
