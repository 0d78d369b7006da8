"""Random tensors: uniform, log-uniform and Bernoulli.

Numbers depend on the seed, the modifier and the row-major index of the element alone, not on tiles or threads.
Source of the costs: machine reference §4.11; the uniform generator is costed at the rate of the normal one, whose unit
is not in doubt there.
"""

from __future__ import annotations

import math

import numpy as np

import abele.expr as language
from abele.errors import InvalidOptionError
from abele.expr import element_type
from abele.expr.derivative import substitute
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32, i32, u32
from abele.poplibs.popops.expr import Cast, Const, Expr, Op, converted, random_bits, select
from abele.poplibs.poprand.draw import DrawCycles, generate, unit_interval
from abele.poplibs.poprand.seed import seed_or_own
from abele.poplibs.poputil.layout import clone

VECTOR_CYCLES = 4.0
"""Cycles of a vector of two f32 or four f16 numbers. Source: machine reference §4.11 (4·n/u)."""
INTEGER_CYCLES = 6.0
"""Cycles of two integers. Source: machine reference §4.11 (uniform INT: 3n)."""
EXACT_FLOAT_BITS = 24
"""Bits above which integer ranges are drawn in integer arithmetic: an f32 does not hold more than 2²⁴ numbers."""


def uniform(
    graph: Graph,
    seed: Tensor | None,
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
        graph: Graph in which vertices and the result are made.
        seed: u32[2]; None for the graph's own seed, which moves on with every use.
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
        InvalidOptionError: ``high`` below ``low``, or bounds that the integer type does not hold.
    """
    source = seed_or_own(graph, seed, prog, name)
    if not math.isfinite(high - low):
        raise InvalidOptionError(f"{name}: [{low}, {high}] is no range of numbers")
    if high < low:
        raise InvalidOptionError(f"{name}: the upper bound {high} is below the lower bound {low}")
    out = clone(graph, reference, f"{name}/out", out_type)
    if out.dtype.is_float:
        value = as_output(unit_interval(random_bits(1, modifier)) * (high - low) + low, out)
        cycles = DrawCycles(4, 22, VECTOR_CYCLES, out.dtype)
    else:
        value = _integers(random_bits(1, modifier), low, high, out, name)
        cycles = DrawCycles(4, 22, INTEGER_CYCLES, out.dtype)
    generate(graph, value, [source], out=out, prog=prog, name=name, cycles=cycles)
    return out


def log_uniform(
    graph: Graph,
    seed: Tensor | None,
    modifier: int,
    reference: Tensor,
    prog: Sequence,
    *,
    low: float = 1.0,
    high: float = math.e,
    base: float = math.e,
    out_type: ElementType | None = None,
    name: str = "log_uniform",
) -> Tensor:
    """Numbers whose logarithm to ``base`` is uniform between those of ``low`` and ``high``; integers round down.

    Other arguments as for :func:`uniform`.

    Raises:
        InvalidOptionError: ``low`` not above 0, ``high`` below ``low``, or a base not above 1.
    """
    source = seed_or_own(graph, seed, prog, name)
    if base <= 1:
        raise InvalidOptionError(f"{name}: the base {base} is not above 1")
    if low <= 0:
        raise InvalidOptionError(f"{name}: the lower bound {low} is not above 0", because="it has no logarithm")
    if high < low:
        raise InvalidOptionError(f"{name}: the upper bound {high} is below the lower bound {low}")
    out = clone(graph, reference, f"{name}/out", out_type)
    least, most = math.log(low), math.log(high)
    drawn = Op("exp", unit_interval(random_bits(1, modifier)) * (most - least) + least)
    bounded = Op("clamp", drawn, low, high)
    value = as_output(bounded if out.dtype.is_float else Op("floor", bounded), out)
    generate(graph, value, [source], out=out, prog=prog, name=name, cycles=DrawCycles(4, 22, VECTOR_CYCLES, out.dtype))
    return out


def bernoulli(
    graph: Graph,
    seed: Tensor | None,
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
    source = seed_or_own(graph, seed, prog, name)
    out = clone(graph, reference, f"{name}/out", out_type)
    one, zero = (1.0, 0.0) if out.dtype.is_float else (1, 0)
    value = Cast(select(one, zero, happens(random_bits(1, modifier), probability, name)), out.dtype)
    prologue = 23 if out.dtype.bits == 32 else 21
    generate(
        graph, value, [source], out=out, prog=prog, name=name, cycles=DrawCycles(4, prologue, VECTOR_CYCLES, out.dtype)
    )
    return out


def draw(
    graph: Graph,
    seed: Tensor | None,
    modifier: int,
    expression: language.Expr,
    draws: int,
    prog: Sequence,
    *,
    shape: tuple[int, ...],
    dtype: ElementType,
    like: Tensor | None = None,
    name: str = "draw",
) -> Tensor:
    """A tensor whose elements are each an expression of random words of their own.

    Args:
        graph: Graph in which vertices and the result are made.
        seed: u32[2]; None for the graph's own seed, which moves on with every use.
        modifier: Chooses among independent streams of one seed.
        expression: Over loads of operands 0 to ``draws`` - 1: 32 random bits each.
        draws: Words of each element.
        prog: Sequence that the step is appended to.
        shape: Of the result.
        dtype: Of the result.
        like: Layout of the result; by default it is spread evenly.
        name: Name of the step.

    Raises:
        TensorError: A seed of another shape.
        TypeMismatchError: A seed of another type.
    """
    source = seed_or_own(graph, seed, prog, name)
    if like is not None and like.shape == shape and not like.contains_aliases:
        out = clone(graph, like, f"{name}/out", dtype)
    else:
        out = graph.map_linear(graph.variable(dtype, shape, name=f"{name}/out"))
    words = [random_bits(1, modifier, number, draws).node for number in range(draws)]
    value = Expr(substitute(expression, words.__getitem__))
    typed = value if element_type(value.node, (u32,)) == dtype else Cast(value, dtype)
    slots = INTEGER_CYCLES if not dtype.is_float else VECTOR_CYCLES
    cycles = DrawCycles(4, 22, slots * draws, dtype)
    generate(graph, typed, [source], out=out, prog=prog, name=name, cycles=cycles)
    return out


def happens(bits: Expr, probability: float, name: str) -> Expr:
    """A bool that is true with ``probability``, to the nearest of 2³² steps, from 32 random bits.

    Raises:
        InvalidOptionError: A probability outside [0, 1].
    """
    if not 0.0 <= probability <= 1.0:
        raise InvalidOptionError(f"{name}: the probability {probability} is not in [0, 1]")
    # The numbers below `steps` of 2³²: exact at both ends, where a comparison of floats would never give 1.
    steps = math.ceil(probability * 2.0**32)
    return bits <= steps - 1 if steps else bits < 0


def as_output(value: Expr, out: Tensor) -> Expr:
    """An f32 expression as the elements of ``out``."""
    return converted(value, f32, out.dtype)


def _integers(bits: Expr, low: float, high: float, out: Tensor, name: str) -> Expr:
    first, last = math.ceil(low), math.floor(high)
    if out.dtype.name != "bool":
        limits = np.iinfo(out.dtype.np)
        if first < limits.min or last > limits.max:
            raise InvalidOptionError(f"{name}: [{first}, {last}] does not fit {out.dtype}")
    count = last - first + 1
    if count < 1:
        raise InvalidOptionError(f"{name}: no integer lies in [{low}, {high}]")
    if out.dtype.bits > 32 and count > 2**32:
        raise InvalidOptionError(f"{name}: [{first}, {last}] has more than 2**32 integers")
    # 24 random bits tell all of them apart; scaling them costs less than integer products of 64 bits.
    if count <= 2**EXACT_FLOAT_BITS:
        position = Op("floor", unit_interval(bits) * float(count))
        wide = out.dtype if out.dtype.bits > 16 else i32
        return Cast(Cast(position, wide) + first, out.dtype)
    scaled = bits if count == 2**32 else _high_word(bits, count)
    return Cast(scaled, out.dtype) + first


def _high_word(bits: Expr, count: int) -> Expr:
    """bits · count / 2³² rounded down, in 32-bit arithmetic: the product of halves with their carries."""
    low_count, high_count = count & 0xFFFF, count >> 16
    low, high = bits & Const(0xFFFF), Op("shift_right", bits, 16)
    # Schoolbook product of 16-bit halves: no partial product or sum passes 32 bits.
    middle = high * low_count + Op("shift_right", low * low_count, 16)
    other = low * high_count + (middle & Const(0xFFFF))
    return high * high_count + Op("shift_right", middle, 16) + Op("shift_right", other, 16)
