"""Random numbers: an expression of random bits at every element.

Bits are a hash of (seed, modifier, element), so nothing depends on tiles, threads or the order of ops: a backward pass
that reads the value reads what the forward pass drew, and one that computes it again draws the same. The seed moves on
with every micro-batch, and inside a loop with every trip.

Distributions with parameters are made of standard ones: ``mean + std · normal`` is a map, through which gradients flow
to both (the reparametrisation of samples), while the draw itself has no operand to differentiate by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.arrays import Array
from abele.expr import Cast, Const, Expr, apply, derivative, evaluate
from abele.expr.derivative import arg
from abele.graph import Tensor
from abele.llvm.random import hash_u32
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.registry import Gradients, OpRule, Types, require, rule
from abele.numerics import ElementType, f32, i32, u32
from abele.poplibs import poprand

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

_SIGNIFICANT = {"f32": 24, "f16": 11, "bf16": 8}
"""Bits of numbers in [0, 1) that the type holds without rounding, so that none becomes 1."""


def unit(bits: Expr, digits: int = 24) -> Expr:
    """The high bits of a random word as an f32 in [0, 1)."""
    return Cast(f32, apply("shr", bits, 32 - digits)) * 2.0**-digits


def unit_above_zero(bits: Expr) -> Expr:
    """Number drawn in (0, 1], where logarithms are finite."""
    return unit(bits) + 2.0**-24


def unit_inside(bits: Expr) -> Expr:
    """The high 23 bits as an odd multiple of 2⁻²⁴: in (0, 1), symmetric about 1/2, and neither end."""
    return Cast(f32, apply("shr", bits, 9)) * 2.0**-23 + 2.0**-24


def standard_normal(first: Expr, second: Expr) -> Expr:
    """Box and Muller's transform of two random words."""
    return apply("sqrt", apply("log", unit_above_zero(first)) * -2.0) * apply("cos", unit(second) * (2.0 * math.pi))


def standard_exponential(bits: Expr) -> Expr:
    """−log u: never infinite, and never below 0."""
    return -apply("log", unit_above_zero(bits))


def draw(net: BlockBuilder, expression: Expr, shape: Sequence[int], dtype: ElementType, *, draws: int = 1) -> Value:
    """A value whose elements are each an expression of random words of their own.

    Args:
        net: The network to extend.
        expression: Over ``arg(0)`` to ``arg(draws - 1)``: u32, all 32 bits uniform.
        shape: Of the value.
        dtype: Of the value.
        draws: Random words of each element.
    """
    seed, modifier = net.random_state(), net.next_random()
    return net.emit("draw", [seed], tuple(shape), dtype, expr=expression, draws=draws, modifier=modifier)


def uniform(net: BlockBuilder, shape: Sequence[int], dtype: ElementType = f32) -> Value:
    """Numbers uniform in [0, 1)."""
    return draw(net, unit(arg(0), _SIGNIFICANT.get(dtype.name, 24)), shape, dtype)


def normal(net: BlockBuilder, shape: Sequence[int], dtype: ElementType = f32) -> Value:
    """Numbers of mean 0 and deviation 1, normally distributed."""
    return draw(net, standard_normal(arg(0), arg(1)), shape, dtype, draws=2)


def exponential(net: BlockBuilder, shape: Sequence[int], dtype: ElementType = f32) -> Value:
    """Exponentially distributed numbers of rate 1."""
    return draw(net, standard_exponential(arg(0)), shape, dtype)


def integers(net: BlockBuilder, shape: Sequence[int], low: int, high: int, dtype: ElementType = i32) -> Value:
    """Whole numbers uniform in [low, high).

    A share of 2³² words more falls on some numbers than on others where their count is no power of two: less than
    count / 2³², which a remainder of the word costs in exchange for never drawing twice.
    """
    count = high - low
    word: Expr = arg(0)
    if count == 2**32:
        return draw(net, Cast(i32, word), shape, dtype)
    place = Cast(i32, unit(word) * float(count) if count <= 2**24 else _high_word(word, count))
    number: Expr = place + low if low else place
    return draw(net, number if dtype == i32 else Cast(dtype, number), shape, dtype)


def _high_word(bits: Expr, count: int) -> Expr:
    """bits · count / 2³² rounded down, in 32-bit arithmetic: the product of halves with their carries."""

    def const(value: int) -> Const:
        return Const(value, u32)

    def shifted(value: Expr) -> Expr:
        return apply("shr", value, const(16))

    low_count, high_count = count & 0xFFFF, count >> 16
    low, high = apply("and", bits, const(0xFFFF)), shifted(bits)
    middle = high * const(low_count) + shifted(low * const(low_count))
    other = low * const(high_count) + apply("and", middle, const(0xFFFF))
    return high * const(high_count) + shifted(middle) + shifted(other)


@rule("draw")
class Draw(OpRule):
    """An expression of random words at every element; word k of element i is that numbered i · draws + k."""

    attributes: ClassVar = {"expr": Expr, "draws": int, "modifier": int}
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """Shape and type that were chosen."""
        require(op.inputs[0].type == ((2,), u32), f"the seed is {op.inputs[0]}, it has to be u32[2]")
        known = set(range(op.attrs["draws"]))
        require(derivative.operands(op.attrs["expr"]) <= known, f"the expression reads more than {len(known)} words")
        return [op.output.type]

    def evaluate(self, op: NetworkOp, seed: Array) -> Array:
        """The counter hash and the expression in NumPy."""
        draws, index = op.attrs["draws"], np.arange(op.output.size).reshape(op.output.shape)
        words = [hash_u32(seed[0], seed[1], op.attrs["modifier"], index * draws + k) for k in range(draws)]
        return np.asarray(evaluate(op.attrs["expr"], words))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One poprand draw."""
        out, attrs = op.output, op.attrs
        return poprand.draw(
            to.graph,
            to[op.inputs[0]],
            attrs["modifier"],
            attrs["expr"],
            attrs["draws"],
            to.prog,
            shape=out.shape,
            dtype=out.dtype,
            like=to.like(out),
        )

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradients: bits have no derivative."""
        return [None]
