"""The non-linearities and their input gradients, as element-wise operations with their own costs.

Source of the costs: machine reference §4.10 (NonLinearity1D: slots of one vector and of the vectors around the loop).
Non-linearities that PopLibs composes have the cost of their parts.
"""

from __future__ import annotations

import math

from abele.kernels.nest import ir
from abele.poplibs.popops.expr import Types
from abele.poplibs.popops.expressions.op_table import define

K = ir.Expr
A = ir.apply

_TANH_SCALE = math.sqrt(2.0 / math.pi)
_CUBE = 0.044715
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)

SUPERVISOR_CYCLES = 9
"""Starting the workers of a non-linearity. Source: machine reference §4.10."""


def _start(single: int, vector: int) -> tuple[int, int]:
    """Supervisor cycles and worker slots outside the loop: the first and last vector are peeled off it."""
    return SUPERVISOR_CYCLES, 20 + 3 + 2 * single - vector


def _gelu_inner(x: K) -> K:
    return _TANH_SCALE * (x + _CUBE * (x * x * x))


def gelu(types: Types, x: K) -> K:
    """GELU by its tanh approximation."""
    return 0.5 * x * (1.0 + A("tanh", _gelu_inner(x)))


def gelu_gradient(types: Types, x: K, g: K) -> K:
    """Derivative of :func:`gelu` at ``x``, times ``g``."""
    t = A("tanh", _gelu_inner(x))
    slope = _TANH_SCALE * (1.0 + 3.0 * _CUBE * (x * x))
    return g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


def gelu_erf_gradient(types: Types, x: K, g: K) -> K:
    """Derivative of the exact GELU at ``x``, times ``g``."""
    cumulative = 0.5 * (1.0 + A("erf", x * math.sqrt(0.5)))
    return g * (cumulative + x * (_INV_SQRT_2PI * A("exp", -0.5 * (x * x))))


def swish(types: Types, x: K) -> K:
    """x · sigmoid(x)."""
    return x * A("sigmoid", x)


def swish_gradient(types: Types, x: K, g: K) -> K:
    """Derivative of :func:`swish` at ``x``, times ``g``."""
    s = A("sigmoid", x)
    return g * (s + x * s * (1.0 - s))


def hard_sigmoid(types: Types, x: K) -> K:
    """0.2·x + 0.5, limited to [0, 1]."""
    return A("min", A("max", 0.2 * x + 0.5, 0.0), 1.0)


def hard_sigmoid_gradient(types: Types, y: K, g: K) -> K:
    """0.2 · ``g`` where the output ``y`` is strictly inside (0, 1)."""
    return ir.select(A("and", y > 0.0, y < 1.0), 0.2 * g, ir.as_expr(0.0))


def relu_gradient(types: Types, y: K, g: K) -> K:
    """``g`` where the output ``y`` is positive."""
    return ir.select(y > 0.0, g, ir.as_expr(0.0))


def sigmoid_gradient(types: Types, y: K, g: K) -> K:
    """``g`` · y · (1 − y) for the output ``y``."""
    return g * y * (1.0 - y)


def tanh_gradient(types: Types, y: K, g: K) -> K:
    """``g`` · (1 − y²) for the output ``y``."""
    return g * (1.0 - y * y)


define("nl_relu", 1, "relu", (1, 2), (1, 4), start=_start(1, 1))
define("nl_sigmoid", 1, "sigmoid", (10, 2), (4, 4), start=_start(5, 10))
define("nl_tanh", 1, "tanh", (10, 2), (2, 4), start=_start(5, 10))
define("gelu", 1, gelu, (10, 2), (5, 4), start=_start(10, 10))
define("nl_gelu_erf", 1, lambda types, x: x * 0.5 * (1.0 + A("erf", x * math.sqrt(0.5))), (30, 2), (15, 4))
define("swish", 1, swish, (11, 2), (5, 4), start=_start(6, 11))
define("hard_sigmoid", 1, hard_sigmoid, (4, 2), (4, 4))

define("relu_gradient", 2, relu_gradient, (3, 2), (3, 4))
define("sigmoid_gradient", 2, sigmoid_gradient, (3, 2), (3, 4))
define("tanh_gradient", 2, tanh_gradient, (3, 2), (3, 4))
define("gelu_gradient", 2, gelu_gradient, (10, 2), (5, 4))
define("gelu_erf_gradient", 2, gelu_erf_gradient, (30, 2), (15, 4))
define("swish_gradient", 2, swish_gradient, (15, 2), (9, 4))
define("hard_sigmoid_gradient", 2, hard_sigmoid_gradient, (4, 2), (4, 4))
