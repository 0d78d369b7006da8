"""Special functions, element by element, and orthogonal polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from abele.expr.derivative import arg
from abele.frontends.poptorch.capture.aten.elementwise import sine_over
from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.kernels.nest.ir import Expr, apply, as_expr, select
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import bool_, f32

Operand = Value | float

x, y = arg(0), arg(1)

_ONE_OPERAND = {
    "aten.lgamma": "lgamma",
    "aten.digamma": "digamma",
    "aten.erfc": "erfc",
    "aten.erfinv": "erfinv",
    "aten.special_erfcx": "erfcx",
    "aten.special_ndtri": "ndtri",
    "aten.i0": "i0",
    "aten.special_i0e": "i0e",
    "aten.special_i1": "i1",
    "aten.special_i1e": "i1e",
    "aten.special_bessel_j0": "bessel_j0",
    "aten.special_bessel_j1": "bessel_j1",
    "aten.special_bessel_y0": "bessel_y0",
    "aten.special_bessel_y1": "bessel_y1",
    "aten.special_modified_bessel_i0": "i0",
    "aten.special_modified_bessel_i1": "i1",
    "aten.special_modified_bessel_k0": "bessel_k0",
    "aten.special_modified_bessel_k1": "bessel_k1",
    "aten.special_scaled_modified_bessel_k0": "bessel_k0e",
    "aten.special_scaled_modified_bessel_k1": "bessel_k1e",
    "aten.special_airy_ai": "airy_ai",
}
_TWO_OPERANDS = {"aten.igamma": "igamma", "aten.igammac": "igammac", "aten.special_zeta": "zeta"}


def _register(name: str, operation: str, arity: int) -> None:
    @aten(name)
    def function(call: OperatorCall, *operands: Operand) -> Value:
        return call.map(apply(operation, *(arg(n) for n in range(arity))), *operands)


for _name, _operation in _ONE_OPERAND.items():
    _register(_name, _operation, 1)
for _name, _operation in _TWO_OPERANDS.items():
    _register(_name, _operation, 2)


@aten("aten.polygamma")
def polygamma(call: OperatorCall, order: int, value: Value) -> Value:
    """Derivative number ``order`` of digamma."""
    if order < 2:
        return call.map(apply("trigamma" if order else "digamma", x), value)
    factor = (-1.0) ** (order + 1) * math.factorial(order)
    return call.map(apply("zeta", as_expr(order + 1.0), x) * factor, value)


@aten("aten.special_spherical_bessel_j0")
def spherical_bessel(call: OperatorCall, value: Value) -> Value:
    """sin x / x."""
    return call.map(select(apply("is_inf", x), 0.0, sine_over(x)), value)


@aten("aten.special_xlog1py")
def xlog1py(call: OperatorCall, a: Operand, b: Operand) -> Value:
    """a · log(1 + b), zero where a is."""
    return call.map(apply("xlog1py", x, y), a, b)


@aten("aten.special_entr")
def entropy(call: OperatorCall, value: Value) -> Value:
    """−x · log x, zero at zero and −∞ below."""
    return call.map(apply("entr", x), value)


@aten("aten.special_log_ndtr")
def log_normal_distribution(call: OperatorCall, value: Value) -> Value:
    """The logarithm of the normal distribution; far to the left by the scaled function, which does not vanish."""
    root = x * math.sqrt(0.5)
    left = apply("log", apply("erfcx", -root) * 0.5) - apply("square", root)
    right = apply("log1p", apply("erfc", root) * -0.5)
    return call.map(select(x < -1.0, left, right), value)


# --- orthogonal polynomials -------------------------------------------------------------------------------------------

Step = Callable[[Expr, Expr, Expr, Expr], Expr]
"""The next polynomial from x, the last one, the one before and the number of the last."""


@dataclass(frozen=True)
class _Family:
    """Polynomials by a recurrence of three terms; the first is 1.

    Attributes:
        second: The next.
        step: The recurrence.
        argument: Expression to put in for x.
    """

    second: Callable[[Expr], Expr]
    step: Step
    argument: Callable[[Expr], Expr] = lambda x: x


def _chebyshev(x: Expr, last: Expr, before: Expr, k: Expr) -> Expr:
    return 2.0 * x * last - before


_MOST_DEGREE = 2.0**24
"""Degrees from here on have no next one in f32."""

_KINDS: dict[str, Callable[[Expr], Expr]] = {
    "t": lambda x: x,
    "u": lambda x: 2.0 * x,
    "v": lambda x: 2.0 * x - 1.0,
    "w": lambda x: 2.0 * x + 1.0,
}
_FAMILIES = {f"chebyshev_polynomial_{kind}": _Family(second, _chebyshev) for kind, second in _KINDS.items()}
_FAMILIES |= {
    f"shifted_chebyshev_polynomial_{kind}": _Family(second, _chebyshev, lambda x: 2.0 * x - 1.0)
    for kind, second in _KINDS.items()
}
_FAMILIES |= {
    "hermite_polynomial_h": _Family(lambda x: 2.0 * x, lambda x, p, q, k: 2.0 * x * p - 2.0 * k * q),
    "hermite_polynomial_he": _Family(lambda x: x, lambda x, p, q, k: x * p - k * q),
    "laguerre_polynomial_l": _Family(
        lambda x: 1.0 - x, lambda x, p, q, k: ((2.0 * k + 1.0 - x) * p - k * q) / (k + 1.0)
    ),
    "legendre_polynomial_p": _Family(lambda x: x, lambda x, p, q, k: ((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0)),
}


def _register_family(name: str, family: _Family) -> None:
    @aten(f"aten.special_{name}")
    def polynomial(call: OperatorCall, value: Operand, degree: Operand) -> Value:
        net = call.net
        points = call.map(family.argument(x), _spread(call, value), common=f32, dtype=f32)
        # As PyTorch counts: no degree is below zero, and so is one that no integer holds.
        counted = select(x < _MOST_DEGREE, apply("trunc", x), -1.0)
        degrees = call.map(counted, _spread(call, degree), common=f32, dtype=f32)
        return build.cast(net, _by_recurrence(net, family, points, degrees), call.dtype)


def _spread(call: OperatorCall, operand: Operand) -> Value:
    if not isinstance(operand, Value):
        return build.full(call.net, operand, call.shape, f32)
    return build.expand(call.net, operand, call.shape)


def _by_recurrence(net: BlockBuilder, family: _Family, points: Value, degrees: Value) -> Value:
    """The polynomial of each element's own degree: steps for as long as some element needs another."""
    zero = build.full(net, 0.0, points.shape, f32)
    highest = build.reduce(net, degrees, range(degrees.ndim), "max")
    # Degree 0 is 1 and below is 0; each step replaces what has not reached its degree.
    first = build.map_(net, select(x < 0.0, 0.0, select(x < 1.0, 1.0, family.second(y))), [degrees, points])
    second = build.map_(net, family.second(x), [points])
    one = build.map_(net, x + 1.0, [zero])

    def unfinished(body: BlockBuilder, k: Value, *_: Value) -> Value:
        return build.map_(body, x < y, [k, highest], bool_)

    def step(body: BlockBuilder, trip: Value, k: Value, before: Value, last: Value, found: Value) -> list[Value]:
        following = build.map_(body, family.step(x, y, arg(2), arg(3)), [points, last, before, k])
        turn = build.map_(body, x + 1.0, [k])
        # An element keeps what it has once its degree is passed.
        kept = build.map_(body, select(x < y, arg(2), arg(3)), [degrees, turn, found, following])
        return [turn, last, following, kept]

    start = build.full(net, 1.0, (), f32)
    return build.while_(net, [start, one, second, first], unfinished, step)[3]


for _name, _family in _FAMILIES.items():
    _register_family(_name, _family)
