"""Special functions: gamma, error and Bessel functions and their inverses, with the slopes that they have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from abele.errors import UnsupportedOpError
from abele.expr.nodes import Expr, apply, as_expr, select
from abele.expr.operation import FLOAT, Code, InVertex, Operation, Slope, Slots, loop_cost
from abele.expr.special import algorithms, emitter, num_operations, on_arrays

_ERF_SLOPE = 2.0 / math.sqrt(math.pi)


def _special(name: str, algorithm: Callable[..., Any], *slopes: Slope, arity: int = 1) -> Operation:
    """Function with code of its own, at the cost of its algorithm."""
    slots = num_operations(algorithm, arity)
    return Operation(
        name,
        arity,
        FLOAT,
        on_arrays(algorithm),
        slopes=slopes or None,
        code=Code(emitter(algorithm)),
        in_vertex=InVertex("function", name),
        slots=Slots(aux=slots, source="§1.2 G: a slot for each operation of the algorithm, as if in f32"),
        cost=loop_cost((slots, 1), (slots, 1)),
    )


def _no_slope(name: str) -> Slope:
    def slope(*_: Expr) -> Expr:
        raise UnsupportedOpError(f"the element-wise operation {name!r} has no derivative by its first argument")

    return slope


def _sign(x: Expr) -> Expr:
    return apply("signum", x)


def _gamma_density(a: Expr, x: Expr) -> Expr:
    return apply("exp", (a - 1.0) * apply("log", x) - x - apply("lgamma", a))


def _over(value: Expr, x: Expr) -> Expr:
    """An odd function of slope 1/2 at zero over its argument."""
    return select(apply("abs", x) < 1e-3, as_expr(0.5), value / x)


def _scaled_slope(x: Expr) -> Expr:
    """That of erfcx; far out of its limit 1 / (√π·x), as the difference loses all digits there."""
    near = 2.0 * x * apply("erfcx", x) - _ERF_SLOPE
    return select(x > 50.0, -0.5 * _ERF_SLOPE / x / x, near)


OPERATIONS = (
    _special("lgamma", algorithms.log_gamma, lambda x: apply("digamma", x)),
    _special("digamma", algorithms.digamma, lambda x: apply("trigamma", x)),
    _special("trigamma", algorithms.trigamma, lambda x: -2.0 * apply("zeta", as_expr(3.0), x)),
    _special("zeta", algorithms.zeta, _no_slope("zeta"), lambda s, q: -s * apply("zeta", s + 1.0, q), arity=2),
    _special(
        "igamma",
        algorithms.gamma_lower,
        lambda a, x: apply("igamma_grad_a", a, x),
        _gamma_density,
        arity=2,
    ),
    _special(
        "igammac",
        algorithms.gamma_upper,
        lambda a, x: -apply("igamma_grad_a", a, x),
        lambda a, x: -_gamma_density(a, x),
        arity=2,
    ),
    _special("igamma_grad_a", algorithms.gamma_lower_slope, arity=2),
    _special("betainc", algorithms.beta_share, arity=3),
    _special("erfc", algorithms.complementary_error, lambda x: -_ERF_SLOPE * apply("exp", -apply("square", x))),
    _special("erfcx", algorithms.scaled_complementary_error, _scaled_slope),
    _special(
        "erfinv",
        algorithms.inverse_error,
        lambda x: (1.0 / _ERF_SLOPE) * apply("exp", apply("square", apply("erfinv", x))),
    ),
    _special(
        "ndtri",
        algorithms.inverse_normal,
        lambda p: math.sqrt(2.0 * math.pi) * apply("exp", 0.5 * apply("square", apply("ndtri", p))),
    ),
    _special("i0", algorithms.i0, lambda x: apply("i1", x)),
    _special("i0e", algorithms.scaled_i0, lambda x: apply("i1e", x) - _sign(x) * apply("i0e", x)),
    _special("i1", algorithms.i1, lambda x: apply("i0", x) - _over(apply("i1", x), x)),
    _special(
        "i1e",
        algorithms.scaled_i1,
        lambda x: apply("i0e", x) - _sign(x) * apply("i1e", x) - _over(apply("i1e", x), x),
    ),
    _special("bessel_j0", algorithms.j0, lambda x: -apply("bessel_j1", x)),
    _special("bessel_j1", algorithms.j1, lambda x: apply("bessel_j0", x) - _over(apply("bessel_j1", x), x)),
    _special("bessel_y0", algorithms.y0, lambda x: -apply("bessel_y1", x)),
    _special("bessel_y1", algorithms.y1, lambda x: apply("bessel_y0", x) - apply("bessel_y1", x) / x),
    _special("bessel_k0", algorithms.k0, lambda x: -apply("bessel_k1", x)),
    _special("bessel_k1", algorithms.k1, lambda x: -apply("bessel_k0", x) - apply("bessel_k1", x) / x),
    _special("bessel_k0e", algorithms.scaled_k0, lambda x: apply("bessel_k0e", x) - apply("bessel_k1e", x)),
    _special(
        "bessel_k1e",
        algorithms.scaled_k1,
        lambda x: apply("bessel_k1e", x) * (1.0 - 1.0 / x) - apply("bessel_k0e", x),
    ),
    _special("airy_ai", algorithms.airy),
)
"""Operations of this module."""
