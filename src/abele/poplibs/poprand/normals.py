"""Normally distributed tensors, and truncated ones."""

from __future__ import annotations

import math
from collections.abc import Sequence as Numbers

from abele.errors import InvalidOptionError, TypeMismatchError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, as_element_type, f32
from abele.poplibs.popops.expr import Cast, Expr, Op, as_expr, random_bits, select
from abele.poplibs.poprand.distributions import VECTOR_CYCLES, as_output
from abele.poplibs.poprand.draw import UNIT, DrawCycles, generate, unit_interval
from abele.poplibs.poprand.seed import seed_or_own
from abele.poplibs.poputil.layout import clone

REJECTED = 1e-4
"""Share of elements that the machine's rejection loop may leave over; it decides the number of its rounds.
Source: PopLibs ``truncatedNormal``, whose rest follows a triangular distribution. Here every element is exact."""


def normal(
    graph: Graph,
    seed: Tensor | None,
    modifier: int,
    reference: Tensor,
    prog: Sequence,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    out_type: ElementType | None = None,
    name: str = "normal",
) -> Tensor:
    """Normally distributed numbers, by Box and Muller's transform.

    Other arguments as for :func:`~abele.poplibs.poprand.uniform`.

    Raises:
        TensorError: A seed of another shape.
        TypeMismatchError: A seed of another type, or a result that is not floating point.
        InvalidOptionError: ``std`` is negative.
    """
    check_floating(out_type or reference.dtype, std, name)
    source = seed_or_own(graph, seed, prog, name)
    out = clone(graph, reference, f"{name}/out", out_type)
    # In (0, 1] instead of [0, 1): the logarithm of 0 is infinite.
    radius = unit_interval(random_bits(1, modifier, 0, 2)) + UNIT
    angle = unit_interval(random_bits(1, modifier, 1, 2)) * (2.0 * math.pi)
    value = Op("sqrt", Op("log", radius) * -2.0) * Op("cos", angle) * std + mean
    generate(
        graph,
        as_output(value, out),
        [source],
        out=out,
        prog=prog,
        name=name,
        cycles=DrawCycles(4, 22, VECTOR_CYCLES, out.dtype),
    )
    return out


def truncated_normal(
    graph: Graph,
    seed: Tensor | None,
    modifier: int,
    reference: Tensor,
    prog: Sequence,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    alpha: float = 2.0,
    out_type: ElementType | None = None,
    name: str = "truncated_normal",
) -> Tensor:
    """Normally distributed numbers in [mean − alpha·std, mean + alpha·std], by the inverse of their distribution.

    Other arguments as for :func:`~abele.poplibs.poprand.uniform`.

    Raises:
        TypeMismatchError: A result that is not floating point.
        InvalidOptionError: ``alpha`` is not above 0, or ``std`` is negative.
    """
    check_floating(out_type or reference.dtype, std, name)
    source = seed_or_own(graph, seed, prog, name)
    if not alpha > 0:
        raise InvalidOptionError(f"{name}: alpha is {alpha}, it must be above 0")
    out = clone(graph, reference, f"{name}/out", out_type)
    # Odd multiples of 2⁻²³ in (−1, 1), symmetric about 0: neither end, where the inverse is infinite, is ever drawn.
    odd = Cast(Op("shift_right", random_bits(1, modifier), 9), f32) * 2.0 + (1.0 - 2.0**23)
    within = odd * (2.0**-23 * math.erf(alpha / math.sqrt(2.0)))
    deviation = Op("clamp", _inverse_erf(within) * math.sqrt(2.0), -alpha, alpha)
    slots = truncated_normal_slots(alpha)
    cycles = DrawCycles(4, 26 if out.dtype.bits == 32 else 28, slots, out.dtype)
    generate(graph, as_output(deviation * std + mean, out), [source], out=out, prog=prog, name=name, cycles=cycles)
    return out


def check_floating(out_type: ElementType, std: float, name: str) -> None:
    """Refuse results that are no floats, and negative deviations.

    Raises:
        TypeMismatchError: Elements of ``out_type`` are no floats.
        InvalidOptionError: ``std`` is below 0.
    """
    if not as_element_type(out_type).is_float:
        raise TypeMismatchError(f"{name}: normally distributed numbers are f16 or f32, not {out_type}")
    if not std >= 0:
        raise InvalidOptionError(f"{name}: std is {std}, it must be at least 0")


def truncated_normal_slots(alpha: float) -> float:
    """Cycles of a vector: rounds until no more than :data:`REJECTED` are outside, and the rest.

    Source: machine reference §4.11 (TruncatedNormal: (11·rounds + 5)·n/v).
    """
    outside = math.erfc(alpha / math.sqrt(2.0))
    rounds = max(1, math.ceil(math.log(REJECTED) / math.log(outside))) if 0 < outside < 1 else 1
    return 11.0 * rounds + 5.0


_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503),
    *(-0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613),
    *(0.00943887047, 1.00167406, 2.83297682),
)


def _inverse_erf(x: Expr) -> Expr:
    """The inverse of the error function. Source: Giles, Approximating the erfinv function (2010), single precision."""
    # (1 − x)(1 + x) keeps the digits that 1 − x² loses near 1.
    w = Op("neg", Op("log", (1.0 - x) * (1.0 + x)))
    tail = Op("sqrt", Op("max", w, 5.0)) - 3.0
    return select(_polynomial(w - 2.5, _CENTRE), _polynomial(tail, _TAIL), w < 5.0) * x


def _polynomial(x: Expr, coefficients: Numbers[float]) -> Expr:
    value = as_expr(coefficients[0])
    for c in coefficients[1:]:
        value = value * x + c
    return value
