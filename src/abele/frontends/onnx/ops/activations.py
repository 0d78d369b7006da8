"""Activations, softmaxes and dropout."""

from __future__ import annotations

import math

from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.registry import Item, Known, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.numerics import bool_, i32

x, y = arg(0), arg(1)


@op("Relu")
def relu(call: NodeCall, value: Value) -> Value:
    """Negative elements as zero."""
    if value.dtype.is_float:
        return build.nonlinearity(call.net, "relu", value)
    return call.map(apply("max", x, 0.0), value)


@op("LeakyRelu")
def leaky_relu(call: NodeCall, value: Value, *, alpha: float = 0.01) -> Value:
    """Negative elements times ``alpha``."""
    return call.map(select(x < 0.0, x * alpha, x), value)


@op("PRelu")
def prelu(call: NodeCall, value: Value, slope: Value) -> Value:
    """Negative elements times a slope, which is one for each channel or broadcasts."""
    if call.version < 7 and slope.size > 1:
        slope = build.reshape(call.net, slope, (slope.size, *(1,) * (value.ndim - 2)))
    return call.map(select(x < 0.0, x * y, x), value, slope)


@op("Elu")
def elu(call: NodeCall, value: Value, *, alpha: float = 1.0) -> Value:
    """Negative elements as α (eˣ - 1)."""
    return call.map(select(x < 0.0, apply("expm1", x) * alpha, x), value)


@op("Celu")
def celu(call: NodeCall, value: Value, *, alpha: float = 1.0) -> Value:
    """max(0, x) + min(0, α (e^(x/α) - 1))."""
    return call.map(select(x < 0.0, apply("expm1", x * (1.0 / alpha)) * alpha, x), value)


@op("Selu")
def selu(
    call: NodeCall, value: Value, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805
) -> Value:
    """γ x, and negative elements as γ α (eˣ - 1)."""
    return call.map(select(x <= 0.0, apply("expm1", x) * (alpha * gamma), x * gamma), value)


@op("Gelu")
def gelu(call: NodeCall, value: Value, *, approximate: str = "none") -> Value:
    """Gaussian error linear units, by the error function or by tanh."""
    if approximate not in ("none", "tanh"):
        raise call.wrong(f"has approximate={approximate!r}, which is neither 'none' nor 'tanh'")
    return build.nonlinearity(call.net, "gelu" if approximate == "tanh" else "gelu_erf", value)


@op("HardSigmoid")
def hard_sigmoid(call: NodeCall, value: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """max(0, min(1, α x + β))."""
    return call.map(apply("max", apply("min", x * alpha + beta, 1.0), 0.0), value)


@op("HardSwish")
def hard_swish(call: NodeCall, value: Value) -> Value:
    """X max(0, min(1, x / 6 + 1 / 2))."""
    return call.map(x * apply("max", apply("min", x * (1 / 6) + 0.5, 1.0), 0.0), value)


@op("Swish")
def swish(call: NodeCall, value: Value, *, alpha: float = 1.0) -> Value:
    """X σ(α x)."""
    return call.map(x * apply("sigmoid", x * alpha), value)


@op("Mish")
def mish(call: NodeCall, value: Value) -> Value:
    """X tanh(ln(1 + eˣ))."""
    return call.map(x * apply("tanh", apply("softplus", x)), value)


@op("Softplus")
def softplus(call: NodeCall, value: Value) -> Value:
    """ln(1 + eˣ)."""
    return call.map(apply("softplus", x), value)


@op("Softsign")
def softsign(call: NodeCall, value: Value) -> Value:
    """X / (1 + |x|)."""
    return call.map(x / (1.0 + apply("abs", x)), value)


@op("ThresholdedRelu")
def thresholded_relu(call: NodeCall, value: Value, *, alpha: float = 1.0) -> Value:
    """Elements up to ``alpha`` as zero."""
    return call.map(select(x > alpha, x, 0.0), value)


@op("Shrink")
def shrink(call: NodeCall, value: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    """Elements nearer to zero than λ as zero, others moved towards it."""
    if value.dtype.is_float:
        return call.map(select(x < -lambd, x + bias, select(x > lambd, x - bias, 0.0)), value)
    low, high = math.ceil(-lambd), math.floor(lambd)
    made = select(x < float(low), x + float(int(bias)), select(x > float(high), x - float(int(bias)), 0.0))
    return call.map(made, value)


# --- along an axis ----------------------------------------------------------------------------------------------------


def _softmax(call: NodeCall, value: Value, axis: int, *, log: bool) -> Value:
    """Along one axis; before version 13 over that axis and all after it."""
    if call.version >= 13:
        return build.softmax(call.net, value, call.axis(axis, value.ndim), log=log)
    begin = call.axis(axis, value.ndim) if axis != value.ndim else value.ndim
    rows = build.reshape(call.net, value, (math.prod(value.shape[:begin]), math.prod(value.shape[begin:])))
    return build.reshape(call.net, build.softmax(call.net, rows, 1, log=log), value.shape)


@op("Softmax")
def softmax(call: NodeCall, value: Value, *, axis: int | None = None) -> Value:
    """Exponentials as parts of their sum."""
    return _softmax(call, value, _default(call, axis), log=False)


@op("LogSoftmax")
def log_softmax(call: NodeCall, value: Value, *, axis: int | None = None) -> Value:
    """Logarithms of softmax."""
    return _softmax(call, value, _default(call, axis), log=True)


def _default(call: NodeCall, axis: int | None) -> int:
    if axis is None:
        return -1 if call.version >= 13 else 1
    return axis


@op("Hardmax")
def hardmax(call: NodeCall, value: Value, *, axis: int | None = None) -> Value:
    """One for the first of the largest elements along an axis, zero for the others."""
    net, chosen = call.net, _default(call, axis)
    if call.version < 13:
        begin = call.axis(chosen, value.ndim)
        rows = build.reshape(net, value, (math.prod(value.shape[:begin]), math.prod(value.shape[begin:])))
        return build.reshape(net, _first_of_largest(call, rows, 1), value.shape)
    return _first_of_largest(call, value, call.axis(chosen, value.ndim))


def _first_of_largest(call: NodeCall, value: Value, dim: int) -> Value:
    net, width = call.net, value.shape[dim]
    largest = build.reduce(net, value, [dim], "max", keep=True)
    places = build.positions(net, value.shape, dim)
    at = build.map_(net, select(arg(0).eq(arg(1)), arg(2), width), [value, largest, places], i32)
    first = build.reduce(net, at, [dim], "min", keep=True)
    hit = build.map_(net, arg(0).eq(arg(1)), [places, first], bool_)
    return build.cast(net, hit, value.dtype)


@op("Dropout")
def dropout(
    call: NodeCall,
    value: Item,
    ratio: Known | None = None,
    training_mode: Known | None = None,
    *,
    is_test: int = 0,
    seed: int = 0,
    consumed_inputs: tuple[int, ...] = (),
) -> tuple[Item | Value, Value | None]:
    """The operand; in training elements are left out at random, and the others scaled up.

    Models that are exported for inference leave it out of them, or say that it does not train: those are read as
    training where the model is trained.
    """
    share = 0.5 if ratio is None else float(ratio)
    trains = bool(training_mode) if training_mode is not None else call.reader.parts.training and call.version < 12
    mask = build.full(call.net, 1, value.shape, bool_) if call.wants(1) else None
    if not trains or share == 0:
        return value, mask
    given = call.reader.value(value)
    if mask is None:
        return build.dropout(call.net, given, share), None
    ones = build.full(call.net, 1.0, value.shape, given.dtype)
    kept = build.dropout(call.net, ones, share)
    return call.map(x * y, given, kept), call.map(x.ne(0.0), kept, dtype=bool_)
