"""Norms, poolings and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.frontends.onnx.exporting.graph import GraphWriter, Written, writer
from abele.network.ir import NetworkOp, Shape, Value
from abele.network.ops.norm import BATCH
from abele.numerics import ElementType, f32
from abele.poplibs.popnn.pool_params import PoolParams

# --- norms ------------------------------------------------------------------------------------------------------------


def _per_channel(to: GraphWriter, name: str, x: Value) -> str:
    return to.reshape(name, (-1, *[1] * (x.ndim - 2)))


def _scaled(to: GraphWriter, white: str, sides: Sequence[str], op: NetworkOp) -> str:
    """Whitened activations in f32 times the gain plus the shift, in the type of the result."""
    if sides:
        gain, shift = (
            _per_channel(to, to.cast(n, v.dtype, f32), op.inputs[0]) for n, v in zip(sides, op.inputs[1:], strict=True)
        )
        white = to.node("Add", to.node("Mul", white, gain), shift)
    return to.cast(white, f32, op.output.dtype)


@writer("norm")
def _norm(to: GraphWriter, op: NetworkOp, x: str, *sides: str) -> Written:
    """One operator of ONNX where nothing but the result is read; else what it is made of, in f32."""
    value, groups, eps = op.inputs[0], op.attrs["groups"], op.attrs["eps"]
    if op.attrs["replicas"] > 1:
        raise to.unsupported("norm over the samples of several replicas")
    floats = all(v.dtype == f32 for v in op.inputs)
    alone = groups != BATCH and to.read.isdisjoint(op.outputs[1:])
    if alone and floats and value.ndim == 2 and groups == 1 and sides:
        return to.node("LayerNormalization", x, *sides, axis=-1, epsilon=eps), None, None, None
    if alone and floats and value.ndim > 2 and groups == value.shape[1] and sides:
        return to.node("InstanceNormalization", x, *sides, epsilon=eps), None, None, None
    given = to.cast(x, value.dtype, f32)
    shape, dims, flat = _statistics(value, groups)
    grouped = given if shape == value.shape else to.reshape(given, shape)
    mean = to.reduce("ReduceMean", grouped, dims, keep=True)
    away = to.node("Sub", grouped, mean)
    variance = to.reduce("ReduceMean", to.node("Mul", away, away), dims, keep=True)
    inverse = to.node("Reciprocal", to.node("Sqrt", to.node("Add", variance, to.number(eps, f32))))
    white = to.node("Mul", away, inverse)
    white = white if shape == value.shape else to.reshape(white, value.shape)
    out = _scaled(to, white, sides, op)
    return out, to.cast(white, f32, value.dtype), to.reshape(mean, flat), to.reshape(inverse, flat)


def _statistics(x: Value, groups: int) -> tuple[Shape, list[int], Shape]:
    """Activations with the dimensions of each statistic, these dimensions, and the shape of all statistics."""
    if groups == BATCH:
        return x.shape, [0, *range(2, x.ndim)], (x.shape[1],)
    return (x.shape[0], groups, x.size // (x.shape[0] * groups)), [2], (x.shape[0] * groups,)


@writer("whiten")
def _whiten(to: GraphWriter, op: NetworkOp, x: str, mean: str, inverse: str) -> Written:
    value, groups = op.inputs[0], op.attrs["groups"]
    shape, dims, _ = _statistics(value, groups)
    around = tuple(1 if d in dims else n for d, n in enumerate(shape))
    given = to.cast(x, value.dtype, f32)
    grouped = given if shape == value.shape else to.reshape(given, shape)
    made = to.node("Mul", to.node("Sub", grouped, to.reshape(mean, around)), to.reshape(inverse, around))
    return to.cast(made if shape == value.shape else to.reshape(made, value.shape), f32, op.output.dtype)


# --- poolings ---------------------------------------------------------------------------------------------------------


@writer("pool")
def _pool(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    """Padding by itself where it is as wide as a window, or counts."""
    pooling: PoolParams = op.attrs["pooling"]
    low, high, dtype = pooling.padding_lower, pooling.padding_upper, op.output.dtype
    wide = any(max(a, b) >= k for a, b, k in zip(low, high, pooling.kernel, strict=True))
    pads = [*low, *high]
    if pooling.pads and (wide or pooling.kind == "sum"):
        if pooling.kind == "avg":
            raise to.unsupported("average pooling with padding as wide as its window")
        fill = -math.inf if pooling.kind == "max" else 0.0
        name = to.pad(name, [0, 0, *low], [0, 0, *high], to.number(fill, dtype))
        pads = [0] * len(pads)
    sizes: dict[str, Any] = {"kernel_shape": list(pooling.kernel), "strides": list(pooling.stride), "pads": pads}
    if pooling.kind == "max":
        return to.node("MaxPool", name, **sizes)
    made = to.node("AveragePool", name, count_include_pad=0, **sizes)
    return made if pooling.kind == "avg" else to.node("Mul", made, to.number(math.prod(pooling.kernel), dtype))


# --- recurrent layers -------------------------------------------------------------------------------------------------


def _gates(to: GraphWriter, name: str, order: Sequence[int], units: int) -> str:
    """Rows of weights with their gates in ONNX's order, and its dimension of directions."""
    count = len(order)
    if list(order) != list(range(count)):
        parts = [to.slice(name, 0, gate * units, (gate + 1) * units) for gate in order]
        name = to.node("Concat", *parts, axis=0)
    return to.node("Unsqueeze", name, to.ints([0]))


def _layer(
    to: GraphWriter,
    op: NetworkOp,
    operator: str,
    order: Sequence[int],
    names: Sequence[str],
    states: int = 1,
    **attrs: Any,
) -> tuple[str, ...]:
    """A layer in one direction: the outputs of all steps, and the last states."""
    x, *rest = names
    before, (of_input, of_output, *biases) = rest[:states], rest[states:]
    units, dtype = op.inputs[1].shape[1], op.inputs[0].dtype
    weights = [_gates(to, n, order, units) for n in (of_input, of_output)]
    given = [_gates(to, n, order, units) for n in biases]
    if len(given) == 1:
        given.append(_zeros(to, (1, len(order) * units), dtype))
    bias = to.node("Concat", *given, axis=1)
    first = [to.node("Unsqueeze", n, to.ints([0])) for n in before]
    operands = [x, *weights, bias, "", *first]
    made = to.nodes_of(operator, operands, 1 + states, hidden_size=units, **attrs)
    return to.node("Squeeze", made[0], to.ints([1])), *(to.node("Squeeze", n, to.ints([0])) for n in made[1:])


def _zeros(to: GraphWriter, shape: Shape, dtype: ElementType) -> str:
    return to.constant(np.zeros(shape, dtype.np), "zeros")


def _beside(op: NetworkOp, *made: str) -> Written:
    """Results, and nothing for what a backward pass would read."""
    return (*made, *[None] * (len(op.outputs) - len(made)))


@writer("lstm")
def _lstm(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    """Gates are input, forget, cell, output here and input, output, forget, cell there."""
    outputs, _, cell = _layer(to, op, "LSTM", (0, 3, 1, 2), names, 2)
    return _beside(op, outputs, cell)


@writer("gru")
def _gru(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    """Gates are reset, update, candidate here and update, reset, candidate there."""
    return _beside(op, _layer(to, op, "GRU", (1, 0, 2), names, linear_before_reset=1)[0])


@writer("rnn")
def _rnn(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    function = {"tanh": "Tanh", "relu": "Relu"}[op.attrs["activation"]]
    return _beside(op, _layer(to, op, "RNN", (0,), names, activations=[function])[0])
