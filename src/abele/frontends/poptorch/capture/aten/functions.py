"""Functions of one operand, element by element, and those with a library op of their own."""

from __future__ import annotations

import math

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Expr, apply, select
from abele.network import Value
from abele.network.ops import build

x = arg(0)

_PLAIN = ("neg", "abs", "exp", "log", "erf", "sin", "cos", "sqrt", "rsqrt", "square")
_EXPRESSIONS: dict[str, Expr] = {f"aten.{name}.default": apply(name, x) for name in _PLAIN}
_EXPRESSIONS |= {
    "aten.reciprocal": apply("inv", x),
    "aten.silu": x * apply("sigmoid", x),
    "aten.exp2": apply("exp", x * math.log(2.0)),
    "aten.log2": apply("log", x) * (1 / math.log(2.0)),
    # At the meeting of pieces the gradient is that of the outer one, as in PyTorch.
    "aten.relu6": select(x <= 0.0, 0.0, select(x < 6.0, x, select(x >= 6.0, 6.0, x - x))),  # NaN stays, with slope 0
    "aten.hardsigmoid": select(x <= -3.0, 0.0, select(x < 3.0, x * (1 / 6) + 0.5, select(x >= 3.0, 1.0, math.nan))),
    "aten.hardswish": select(x >= 3.0, x, x * select(x <= -3.0, 0.0, x * (1 / 6) + 0.5)),
}


def _register(name: str, expression: Expr) -> None:
    @aten(name)
    def function(call: OperatorCall, value: Value) -> Value:
        return call.map(expression, value)


for _name, _expression in _EXPRESSIONS.items():
    _register(_name, _expression)


def _register_library(name: str, function: str) -> None:
    @aten(name)
    def library_function(call: OperatorCall, value: Value) -> Value:
        return build.nonlinearity(call.net, function, call.operand(value, call.dtype))


for _name in ("relu", "tanh", "sigmoid"):
    _register_library(f"aten.{_name}", _name)


@aten("aten.gelu")
def gelu(call: OperatorCall, value: Value, approximate: str = "none") -> Value:
    """x · Φ(x), exactly or by tanh."""
    return build.nonlinearity(call.net, "gelu" if approximate == "tanh" else "gelu_erf", value)


@aten("aten.leaky_relu")
def leaky_relu(call: OperatorCall, value: Value, negative_slope: float = 0.01) -> Value:
    """x, or slope · x where it is negative."""
    return call.map(select(x > 0.0, x, x * float(negative_slope)), value)


@aten("aten.elu")
def elu(call: OperatorCall, value: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    """scale · (x, or alpha · (exp(input_scale · x) − 1) where it is negative)."""
    below = apply("expm1", x * float(input_scale)) * float(alpha * scale)
    return call.map(select(x > 0.0, x * float(scale), below), value)


@aten("aten.softplus")
def softplus(call: OperatorCall, value: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(beta · x)) / beta, linear above the threshold."""
    scaled = x * float(beta)
    return call.map(select(scaled > float(threshold), x, apply("softplus", scaled) * (1 / beta)), value)


@aten("aten.log_sigmoid")
def log_sigmoid(call: OperatorCall, value: Value) -> Value:
    """log(1 / (1 + exp(−x)))."""
    return call.map(0.0 - apply("softplus", -x), value)


@aten("aten.softmax", "aten._softmax")
def softmax(call: OperatorCall, value: Value, dim: int, dtype: object = None) -> Value:
    """Exponentials over their sum along ``dim``."""
    if not value.ndim:
        return call.map(select(apply("is_finite", x), 1.0, math.nan), value)
    return build.softmax(call.net, call.operand(value, call.dtype), dim)


@aten("aten._safe_softmax")
def safe_softmax(call: OperatorCall, value: Value, dim: int, dtype: object = None) -> Value:
    """Exponentials over their sum along ``dim``; zeros where all are of minus infinity."""
    net, scores = call.net, call.operand(value, call.dtype)
    if not scores.ndim:
        return call.map(select(x.eq(-math.inf), 0.0, 1.0 + (x - x)), scores)
    return build.safe_softmax(net, scores, dim)


@aten("aten.log_softmax", "aten._log_softmax")
def log_softmax(call: OperatorCall, value: Value, dim: int, dtype: object = None) -> Value:
    """The logarithm of softmax along ``dim``."""
    if not value.ndim:
        return call.map(x - x, value)
    return build.softmax(call.net, call.operand(value, call.dtype), dim, log=True)


@aten("aten.native_dropout")
def native_dropout(call: OperatorCall, value: Value, p: float, train: bool | None = True) -> tuple[Value]:
    """Dropout; its mask has no value of its own."""
    return (build.dropout(call.net, value, p) if train and p > 0 else value,)


@aten("aten.dropout")
def dropout(call: OperatorCall, value: Value, p: float, train: bool) -> Value:
    """Dropout when training."""
    return build.dropout(call.net, value, p) if train and p > 0 else value


@aten("aten.detach", "abele.detached")
def detach(call: OperatorCall, value: Value) -> Value:
    """The value, through which no gradient flows."""
    return build.detach(call.net, value)


@aten("aten.clone", "aten.contiguous", "aten.alias", "aten.lift_fresh_copy", "aten.lift_fresh")
def clone(call: OperatorCall, value: Value, **kwargs: object) -> Value:
    """The value: networks are functional, so a copy is the original."""
    return value


@aten("aten._assert_tensor_metadata", "aten._assert_scalar", "aten._linalg_check_errors")
def assert_tensor_metadata(call: OperatorCall, *args: object, **kwargs: object) -> None:
    """Do nothing: shapes, which PyTorch checks, are fixed here, and checks of matrices do not raise here."""
