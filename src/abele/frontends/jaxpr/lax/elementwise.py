"""Primitives of every element: arithmetic, functions, comparisons and choices.

Integers mean what they mean to XLA: sums and products wrap around, division truncates, by zero it gives -1 and leaves
the dividend as the remainder. Narrow ones are computed in 32 bits and cut where they are stored.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from abele.expr import Apply, Cast, Const, Expr, apply, functions, select
from abele.expr.derivative import arg
from abele.expr.types import compute_type
from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type
from abele.network import Value
from abele.network.ops import build
from abele.numerics import ElementType, bf16, bool_, f16, f32, i32, u8, u16, u32

x, y, z = arg(0), arg(1), arg(2)

# --- expressions ------------------------------------------------------------------------------------------------------


def _sign_of_float() -> Expr:
    """-1, 0 or 1; zero of either sign and NaN stay."""
    return select(apply("abs", x) > 0.0, apply("copysign", 1.0, x), x)


def _zeta() -> Expr:
    """Hurwitz's function, with XLA's values at poles: infinity for even powers, NaN for others."""
    pole = apply("and", y <= 0.0, y.eq(apply("floor", y)))
    even = (apply("floor", x * 0.5) * 2.0).eq(x)
    value = select(x.eq(math.inf), math.nan, select(pole, select(even, math.inf, math.nan), apply("zeta", x, y)))
    return select(x.eq(1.0), math.inf, value)


_FLOATS: dict[str, Expr] = {
    "exp": apply("exp", x),
    "exp2": apply("exp2", x),
    "expm1": apply("expm1", x),
    "log": apply("log", x),
    "log1p": apply("log1p", x),
    "sqrt": apply("sqrt", x),
    "rsqrt": apply("rsqrt", x),
    "cbrt": apply("cbrt", x),
    "sin": apply("sin", x),
    "cos": apply("cos", x),
    "tan": apply("tan", x),
    "asin": apply("asin", x),
    "acos": functions.arc_cosine(x),
    "atan": functions.arc_tangent(x),
    "sinh": functions.hyperbolic_sine(x),
    "cosh": functions.hyperbolic_cosine(x),
    "tanh": apply("tanh", x),
    "asinh": functions.arc_sinh(x),
    "acosh": functions.arc_cosh(x),
    "atanh": functions.arc_tanh(x),
    "logistic": apply("sigmoid", x),
    "erf": apply("erf", x),
    "erfc": apply("erfc", x),
    "erf_inv": apply("erfinv", x),
    "lgamma": apply("lgamma", x),
    "digamma": select(x.eq(0.0), math.nan, apply("digamma", x)),
    "bessel_i0e": apply("i0e", x),
    "bessel_i1e": apply("i1e", x),
    "atan2": apply("atan2", x, y),
    "pow": apply("pow", x, y),
    "igamma": apply("igamma", x, y),
    "igammac": apply("igammac", x, y),
    "igamma_grad_a": select(x > 0.0, apply("igamma_grad_a", x, y), math.nan),
    "zeta": _zeta(),
    "regularized_incomplete_beta": apply("betainc", x, y, z),
    "floor": apply("floor", x),
    "ceil": apply("ceil", x),
}
"""Functions of floats by name."""

_NUMBERS: dict[str, Expr] = {
    "add": x + y,
    "sub": x - y,
    "mul": x * y,
    "neg": -x,
    "abs": apply("abs", x),
    "square": x * x,
}
"""Functions of numbers by name."""

_BITS: dict[str, Expr] = {
    "and": apply("and", x, y),
    "or": apply("or", x, y),
    "xor": apply("xor", x, y),
    "not": apply("not", x),
}
"""Functions of the bits of integers, and of bools."""


def _register(name: str, expression: Expr) -> None:
    @primitive(name)
    def function(call: PrimitiveCall, *operands: Value) -> Value:
        return call.map(expression, *operands)


for _name, _expression in (_FLOATS | _NUMBERS | _BITS).items():
    _register(_name, _expression)


@primitive("sign")
def sign(call: PrimitiveCall, value: Value) -> Value:
    """-1, 0 or 1; zero of either sign and NaN stay."""
    return call.map(_sign_of_float() if call.dtype.is_float else apply("signum", x), value)


def _register_extreme(name: str, of_bools: str) -> None:
    @primitive(name)
    def extreme(call: PrimitiveCall, first: Value, second: Value) -> Value:
        return call.map(apply(of_bools if call.dtype == bool_ else name, x, y), first, second)


_register_extreme("max", "or")
_register_extreme("min", "and")


@primitive("div")
def divide(call: PrimitiveCall, value: Value, by: Value) -> Value:
    """The quotient; of integers truncated towards zero, and -1 where it is by zero."""
    if call.dtype.is_float:
        return call.map(x / y, value, by)
    return call.map(select(y.eq(0.0), _ones(call.dtype), x / y), value, by)


def _ones(dtype: ElementType) -> Const:
    """An integer of ones alone."""
    return Const(-1, i32) if dtype.kind == "int" else Const(2**32 - 1, u32)


@primitive("rem")
def remainder(call: PrimitiveCall, value: Value, by: Value) -> Value:
    """The rest of a truncating division, with the sign of the dividend."""
    rest = apply("rem", x, y)
    return call.map(rest if call.dtype.is_float else select(y.eq(0.0), x, rest), value, by)


@primitive("mulhi")
def high_product(call: PrimitiveCall, first: Value, second: Value) -> Value:
    """The upper half of the product of integers."""
    if call.dtype.bits < 32:
        wide = i32 if call.dtype.kind == "int" else u32
        return call.map(apply("shr", Cast(wide, x) * Cast(wide, y), call.dtype.bits), first, second)
    low_x, low_y = apply("and", Cast(u32, x), 0xFFFF), apply("and", Cast(u32, y), 0xFFFF)
    high_x, high_y = (Cast(call.dtype, apply("shr", v, 16)) for v in (x, y))
    low = apply("shr", low_x * low_y, 16)
    first_part = high_x * Cast(call.dtype, low_y) + Cast(call.dtype, low)
    second_part = Cast(call.dtype, low_x) * high_y + apply("and", first_part, 0xFFFF)
    return call.map(high_x * high_y + apply("shr", first_part, 16) + apply("shr", second_part, 16), first, second)


@primitive("integer_pow")
def integer_power(call: PrimitiveCall, value: Value, *, y: int) -> Value:
    """A power with a known whole exponent, by squaring."""
    if y == 0:
        return build.full(call.net, 1, call.shape, call.dtype)
    result: Expr | None = None
    square: Expr = x
    left = abs(y)
    while left:
        if left & 1:
            result = square if result is None else result * square
        left >>= 1
        if left:
            square = apply("square", square)
    assert result is not None
    return call.map(result if y > 0 else 1.0 / result, value)


@primitive("polygamma")
def polygamma(call: PrimitiveCall, order: Value, value: Value) -> Value:
    """Derivative number ``order`` of digamma; NaN where that is no whole number from 0 on."""
    factor = apply("exp", apply("lgamma", x + 1.0))
    odd = (apply("floor", x * 0.5) * 2.0).ne(x)
    size = factor * apply("zeta", x + 1.0, y)
    known = apply("and", x >= 0.0, x.eq(apply("floor", x)))
    derivative = select(x.eq(0.0), apply("digamma", y), select(odd, size, -size))
    return call.map(select(known, derivative, math.nan), order, value)


@primitive("round")
def round_(call: PrimitiveCall, value: Value, *, rounding_method: Any) -> Value:
    """The nearest whole number; halves away from zero, or to the even one."""
    if int(rounding_method) == 1:
        return call.map(apply("round", x), value)
    whole = apply("trunc", x)
    # Adding one half first would carry what is just below it.
    return call.map(select(apply("abs", x - whole) >= 0.5, whole + apply("copysign", 1.0, x), whole), value)


@primitive("clamp")
def clamp(call: PrimitiveCall, low: Value, value: Value, high: Value) -> Value:
    """The value, kept between two others."""
    return call.map(apply("min", apply("max", y, x), z), low, value, high)


@primitive("copy")
def same(call: PrimitiveCall, *values: Value) -> Any:
    """The values as they are."""
    return values


@primitive("tie")
def tie(call: PrimitiveCall, before: Any, value: Value) -> Value:
    """The second value as it is; in XLA it waits for the first."""
    return value


@primitive("stop_gradient")
def stop_gradient(call: PrimitiveCall, value: Value) -> Value:
    """The value, through which no gradient flows."""
    return build.detach(call.net, value)


@primitive("add_any")
def add_any(call: PrimitiveCall, first: Value, second: Value) -> Value:
    """The sum of two gradients; those of neighbouring slices lie beside each other."""
    return build.total(call.net, [first, second])


# --- comparisons and choices ------------------------------------------------------------------------------------------

_COMPARISONS: dict[str, Expr] = {
    "eq": x.eq(y),
    "ne": x.ne(y),
    "lt": x < y,
    "le": x <= y,
    "gt": x > y,
    "ge": x >= y,
}


def _register_comparison(name: str, expression: Expr) -> None:
    @primitive(name)
    def compared(call: PrimitiveCall, first: Value, second: Value) -> Value:
        ordered = name not in ("eq", "ne") and first.dtype == bool_
        return call.map(expression, first, second, common=i32 if ordered else first.dtype, dtype=bool_)


for _name, _expression in _COMPARISONS.items():
    _register_comparison(_name, _expression)


def _rank(value: Expr) -> Expr:
    """A float's bits as an integer of the same order: -NaN, -∞, … -0, 0, … ∞, NaN."""
    return select(value < 0, apply("xor", value, 2**31 - 1), value)


def _register_total_order(name: str, comparison: str) -> None:
    @primitive(name)
    def compared(call: PrimitiveCall, first: Value, second: Value) -> Value:
        if not first.dtype.is_float:
            return call.map(apply(comparison, x, y), first, second, common=first.dtype, dtype=bool_)
        bits = [build.bitcast(call.net, build.cast(call.net, v, f32), i32) for v in (first, second)]
        return call.map(apply(comparison, _rank(x), _rank(y)), *bits, common=i32, dtype=bool_)


for _name, _comparison in (("eq_to", "eq"), ("lt_to", "lt"), ("le_to", "le")):
    _register_total_order(_name, _comparison)


@primitive("is_finite")
def is_finite(call: PrimitiveCall, value: Value) -> Value:
    """True for numbers, false for infinities and NaN."""
    if not value.dtype.is_float:
        return build.full(call.net, 1, call.shape, bool_)
    return call.map(apply("is_finite", x), value, common=value.dtype, dtype=bool_)


@primitive("select_n")
def select_n(call: PrimitiveCall, which: Value, *cases: Value) -> Value:
    """The case whose number ``which`` holds; a bool chooses the second where it is true."""
    known = call.net.scalar(which)
    if len(cases) == 1 or known is not None:
        # A condition that is known, such as `where` of a count of elements in a variance, decides here.
        return cases[int(known or 0)]
    words = (1,) * (cases[0].ndim - which.ndim if which.ndim else 0)
    if words:  # which keys have
        which = build.reshape(call.net, which, (*which.shape, *words))
    if which.dtype == bool_:
        return call.map(select(z, y, x), cases[0], cases[1], which, masks={2})
    result: Expr = arg(0)
    number = arg(len(cases))
    for place in range(1, len(cases)):
        result = select(number >= place, arg(place), result)
    return call.map(result, *cases, which, masks={len(cases)})


# --- bits -------------------------------------------------------------------------------------------------------------


def _as(value: Expr, dtype: ElementType, word: ElementType) -> Expr:
    """An integer of a type as one of 32 bits, with copies of its sign above if it has one."""
    return value if compute_type(dtype) == word else Cast(word, value)


def _word(value: Expr, dtype: ElementType) -> Expr:
    """The bits of an integer in a word of 32, with zeros above."""
    word = _as(value, dtype, u32)
    return word if dtype.bits == 32 else apply("and", word, 2**dtype.bits - 1)


def _shift(call: PrimitiveCall, value: Value, by: Value, operation: str, word: Expr, kind: ElementType) -> Value:
    """A shift of words of a kind; from the width on all that was in them is gone, but for a sign."""
    dtype, known = call.dtype, call.net.scalar(by)
    if known is not None and 0 <= known < dtype.bits:
        shifted: Expr = apply(operation, word, int(known))
        return call.map(shifted if kind == dtype else Cast(dtype, shifted), value)
    beyond = apply("shr", word, 31) if kind == i32 and operation == "shr" else Const(0, kind)
    inside = _as(y, dtype, u32) < Const(dtype.bits, u32)
    return call.map(Cast(dtype, select(inside, apply(operation, word, _as(y, dtype, kind)), beyond)), value, by)


@primitive("shift_left")
def shift_left(call: PrimitiveCall, value: Value, by: Value) -> Value:
    """Bits moved up; zero from the width on."""
    return _shift(call, value, by, "shl", x, compute_type(call.dtype))


@primitive("shift_right_logical")
def shift_right_logical(call: PrimitiveCall, value: Value, by: Value) -> Value:
    """Bits moved down with zeros from above; zero from the width on."""
    return _shift(call, value, by, "shr", _word(x, call.dtype), u32)


@primitive("shift_right_arithmetic")
def shift_right_arithmetic(call: PrimitiveCall, value: Value, by: Value) -> Value:
    """Bits moved down with the highest from above; that alone from the width on."""
    signed: Expr = x
    if call.dtype.kind == "uint":  # whose highest bit is taken for a sign all the same
        unused = 32 - call.dtype.bits
        signed = apply("shr", Cast(i32, apply("shl", x, unused) if unused else x), unused)
    return _shift(call, value, by, "shr", signed, i32)


@primitive("population_count")
def population_count(call: PrimitiveCall, value: Value) -> Value:
    """Number of bits that are set."""
    if call.dtype == bool_:
        return value
    return call.map(Cast(call.dtype, apply("popcount", _word(x, call.dtype))), value)


@primitive("clz")
def count_leading_zeros(call: PrimitiveCall, value: Value) -> Value:
    """Number of zeros above the highest bit that is set."""
    zeros = apply("count_leading_zeros", _word(x, call.dtype))
    return call.map(Cast(call.dtype, zeros - Const(32 - call.dtype.bits, u32)), value)


@primitive("nextafter")
def next_after(call: PrimitiveCall, value: Value, towards: Value) -> Value:
    """The float beside one, on the way to another: one step of its bits as an integer."""
    net = call.net
    wide = build.cast(net, value, f32), build.cast(net, towards, f32)
    # Numbers of 16 bits are floats of fewer digits: a step is one of their last places.
    bits = call.dtype.bits
    word, target = (build.bitcast(net, v, u32 if bits == 32 else u16) for v in (value, towards))
    sign, rest = 2 ** (bits - 1), 2 ** (bits - 1) - 1
    a, b = Cast(u32, x), Cast(u32, y)
    size, other = apply("and", a, rest), apply("and", b, rest)
    same_side = apply("and", apply("xor", a, b), sign).eq(0)
    outwards = apply("and", same_side, other > size)
    step = select(outwards, a + 1, a - 1)
    step = select(size.eq(0), apply("or", apply("and", b, sign), 1), step)
    stepped = call.map(step, word, target, common=word.dtype, dtype=word.dtype)
    beside = build.bitcast(net, stepped, call.dtype)
    undefined = apply("or", x.ne(x), y.ne(y))
    chosen = select(undefined, math.nan, select(x.eq(y), y, z))
    return build.map_(net, chosen, [*wide, build.cast(net, beside, f32)], call.dtype)


@primitive("reduce_precision")
def reduce_precision(call: PrimitiveCall, value: Value, *, exponent_bits: int, mantissa_bits: int) -> Value:
    """The nearest number of a float with fewer bits; halves to even, infinity above, zero below its normal numbers.

    Source: the definition in XLA's operation semantics; what is lost of the mantissa is rounded in the integer.
    """
    net, dtype = call.net, call.dtype
    own_exponent, own_mantissa = {"f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}[dtype.name]
    infinity, sign_bit = (2**own_exponent - 1) << own_mantissa, 2 ** (dtype.bits - 1)
    word = build.bitcast(net, value, _UNSIGNED[dtype.bits])
    bits = Cast(u32, x)
    rounded: Expr = bits
    lost = own_mantissa - mantissa_bits
    if lost > 0:
        last = apply("and", apply("shr", bits, lost), 1)
        rounded = apply("and", bits + last + (2 ** (lost - 1) - 1), 2**32 - 2**lost)
    exponent, sign = apply("and", rounded, infinity), apply("and", bits, sign_bit)
    if exponent_bits < own_exponent:
        middle, reach = 2 ** (own_exponent - 1) - 1, 2 ** (exponent_bits - 1) - 1
        large, small = (middle + reach) << own_mantissa, (middle - reach) << own_mantissa
        rounded = select(exponent > large, apply("or", sign, infinity), rounded)
        rounded = select(exponent <= small, sign, rounded)
    is_nan = apply("and", bits, sign_bit - 1) > infinity
    found = build.map_(net, Cast(word.dtype, select(is_nan, bits, rounded)), [word], word.dtype)
    return build.bitcast(net, found, dtype)


# --- conversions ------------------------------------------------------------------------------------------------------

_UNSIGNED = {8: u8, 16: u16, 32: u32}


@primitive("convert_element_type")
def convert_element_type(call: PrimitiveCall, value: Value, *, new_dtype: Any) -> Value:
    """The value in another type: a number is true unless it is zero, floats are held within integers, NaN is zero."""
    dtype = element_type(new_dtype)
    if dtype == bool_ and value.dtype != bool_:
        return call.map(x.ne(0.0), value, common=value.dtype, dtype=bool_)
    return build.cast(call.net, value, dtype)


_ONE = {f32: (23, 0x3F800000), f16: (10, 0x3C00), bf16: (7, 0x3F80)}
"""Bits of the mantissa, and all bits of the number one."""


def _mantissa(call: PrimitiveCall, value: Value, dtype: ElementType) -> Value | None:
    """A float in [1, 2) from random bits in its mantissa, by arithmetic that is exact: part of an expression, as bits
    are not; None for other bits.
    """
    net, (digits, one) = call.net, _ONE.get(dtype, (0, 0))
    union = net.makers.get(value)
    if union is None or union.kind != "map" or union.attrs["expr"] != apply("or", x, Const(one, value.dtype)):
        return None
    shift = net.makers.get(union.inputs[0])
    if shift is None or shift.kind != "map" or shift.inputs[0].dtype.kind != "uint":
        return None
    # Bits of a narrow draw stay narrow where they are widened.
    drawn, widening = shift.inputs[0], net.makers.get(shift.inputs[0])
    if widening is not None and widening.kind == "cast" and widening.inputs[0].dtype.kind == "uint":
        drawn = widening.inputs[0]
    expression = shift.attrs["expr"]
    while isinstance(expression, Cast):
        expression = expression.arg
    match expression:
        case Apply(op="shr", args=(_, Const(value=count))) if drawn.dtype.bits - count <= digits:
            return build.map_(net, Cast(f32, x) * 2.0**-digits + 1.0, [union.inputs[0]], dtype)
    return None


@primitive("bitcast_convert_type")
def bitcast_convert_type(call: PrimitiveCall, value: Value, *, new_dtype: Any) -> Value:
    """The bits as another type; of another width, as a last dimension of parts, the lowest first."""
    net, dtype = call.net, element_type(new_dtype)
    if dtype == value.dtype:
        return value
    if bool_ in (dtype, value.dtype):
        if dtype.bits == value.dtype.bits:  # one byte, which is 0 or 1
            return call.map(x.ne(0), value, common=u8, dtype=bool_) if dtype == bool_ else build.cast(net, value, dtype)
        raise call.refuse(f"between {value.dtype} and {dtype} has no meaning", "use jnp.packbits or unpackbits")
    if dtype.bits == value.dtype.bits:
        drawn = _mantissa(call, value, dtype)
        return build.bitcast(net, value, dtype) if drawn is None else drawn
    words = build.bitcast(net, value, _UNSIGNED[value.dtype.bits])
    narrow = _UNSIGNED[min(dtype.bits, value.dtype.bits)]
    if dtype.bits < value.dtype.bits:
        count = value.dtype.bits // dtype.bits
        part = net.constant(np.arange(count, dtype=np.uint32) * dtype.bits, u32)
        words = build.reshape(net, build.cast(net, words, u32), (*value.shape, 1))
        cut = apply("and", apply("shr", x, y), 2**dtype.bits - 1)
        return build.bitcast(net, build.cast(net, build.map_(net, cut, [words, part], u32), narrow), dtype)
    count = dtype.bits // value.dtype.bits
    wide = build.cast(net, words, u32)
    parts = [build.slice_(net, wide, wide.ndim - 1, n, n + 1) for n in range(count)]
    joined: Expr = x
    for number in range(1, count):
        joined = apply("or", joined, apply("shl", arg(number), number * value.dtype.bits))
    whole = build.reshape(net, build.map_(net, joined, parts, u32), value.shape[:-1])
    return build.bitcast(net, build.cast(net, whole, _UNSIGNED[dtype.bits]), dtype)
