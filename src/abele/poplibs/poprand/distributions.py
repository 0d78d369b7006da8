"""Random tensors: uniform, normal and Bernoulli.

Numbers depend on the seed, the modifier and the row-major index of the element alone, not on tiles or threads.
Source of the costs: machine reference §4.11; the uniform generator is costed at the rate of the normal one, whose unit
is not in doubt there.
"""

from __future__ import annotations

import math

from abele.errors import InvalidOptionError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32
from abele.poplibs.popops.expr import Cast, Expr, Op, random_bits, select
from abele.poplibs.poprand.draw import UNIT, check_seed, generate, generator_cycles, unit_interval
from abele.poplibs.poputil.layout import clone

VECTOR_CYCLES = 4.0
"""Cycles of a vector of two f32 or four f16 numbers. Source: machine reference §4.11 (4·n/u)."""


def uniform(
    graph: Graph,
    seed: Tensor,
    modifier: int,
    reference: Tensor,
    prog: Sequence,
    *,
    low: float = 0.0,
    high: float = 1.0,
    out_type: ElementType | None = None,
    name: str = "uniform",
) -> Tensor:
    """Numbers uniform in [low, high); integers uniform in [low, high], both ends included.

    Args:
        graph: Where vertices and the result are made.
        seed: u32[2].
        modifier: Chooses among independent streams of one seed.
        reference: Shape and layout of the result.
        prog: Sequence that the step is appended to.
        low: Smallest number.
        high: Upper bound.
        out_type: Element type of the result; that of the reference by default.
        name: Name of the step.

    Raises:
        TensorError: A seed of another shape.
        TypeMismatchError: A seed of another type.
        InvalidOptionError: ``high`` below ``low``.
    """
    check_seed(seed, name)
    if high < low:
        raise InvalidOptionError(f"{name}: the upper bound {high} is below the lower bound {low}")
    out = clone(graph, reference, f"{name}/out", out_type)
    unit = unit_interval(random_bits(1, modifier))
    if out.dtype.is_float:
        value = _as(unit * (high - low) + low, out)
    else:
        count = int(high) - int(low) + 1
        value = Cast(Op("floor", unit * float(count)), out.dtype) + int(low)
    generate(graph, value, [seed], out, prog, name, generator_cycles(4, 22, VECTOR_CYCLES, out))
    return out


def normal(
    graph: Graph,
    seed: Tensor,
    modifier: int,
    reference: Tensor,
    prog: Sequence,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    out_type: ElementType | None = None,
    name: str = "normal",
) -> Tensor:
    """Normally distributed numbers, by Box and Muller's transform; arguments as for :func:`uniform`."""
    check_seed(seed, name)
    out = clone(graph, reference, f"{name}/out", out_type)
    radius = unit_interval(random_bits(1, modifier, 0, 2)) + UNIT
    angle = unit_interval(random_bits(1, modifier, 1, 2)) * (2.0 * math.pi)
    value = Op("sqrt", Op("log", radius) * -2.0) * Op("cos", angle) * std + mean
    generate(graph, _as(value, out), [seed], out, prog, name, generator_cycles(4, 22, VECTOR_CYCLES, out))
    return out


def bernoulli(
    graph: Graph,
    seed: Tensor,
    modifier: int,
    reference: Tensor,
    probability: float,
    prog: Sequence,
    *,
    out_type: ElementType | None = None,
    name: str = "bernoulli",
) -> Tensor:
    """Ones with ``probability``, zeros otherwise; arguments as for :func:`uniform`.

    Raises:
        InvalidOptionError: A probability outside [0, 1].
    """
    check_seed(seed, name)
    out = clone(graph, reference, f"{name}/out", out_type)
    one, zero = (1.0, 0.0) if out.dtype.is_float else (1, 0)
    value = Cast(select(one, zero, happens(random_bits(1, modifier), probability, name)), out.dtype)
    generate(graph, value, [seed], out, prog, name, generator_cycles(4, 23, VECTOR_CYCLES, out))
    return out


def happens(bits: Expr, probability: float, name: str) -> Expr:
    """A bool that is true with ``probability``, to the nearest of 2³² steps, from 32 random bits.

    Raises:
        InvalidOptionError: A probability outside [0, 1].
    """
    if not 0.0 <= probability <= 1.0:
        raise InvalidOptionError(f"{name}: the probability {probability} is not in [0, 1]")
    steps = math.ceil(probability * 2.0**32)
    return bits <= steps - 1 if steps else bits < 0


def _as(value: Expr, out: Tensor) -> Expr:
    return value if out.dtype == f32 else Cast(value, out.dtype)
