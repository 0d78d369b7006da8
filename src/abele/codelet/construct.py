"""Typed values of the vertex language, made from their parts: the rules that hold however code comes about.

Reading source and writing code in Python (:mod:`abele.codelet.write`) both go through these, so that the same code has
the same tree, and with it the same bits and issue slots.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from abele.codelet.functions import VertexFunction
from abele.codelet.rules import cast, common_type, fold, is_weak
from abele.codelet.tree import BinaryExpr, Choice, Compare, ConstExpr, Logic, Math, UnaryExpr, VertexExpr
from abele.numerics import ElementType, bool_, f32, i64, u32

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
"""Infix operations, and their Python operators."""
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Comparisons by their signs."""
_BITS = ("and", "or", "xor", "shl", "shr")
_LARGEST_POWER = 16
_KEEP_INTEGERS = ("floor", "ceil", "rint")
"""Functions that give an integer unchanged."""


class RuleError(Exception):
    """Parts that make no value.

    Args:
        message: Error, in words.
        remedy: Code to write instead.
    """

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


def number(value: float | int | bool, line: int = 0) -> ConstExpr:
    """Number in source: all but bools take the type of the other operand."""
    type_ = bool_ if isinstance(value, bool) else (i64 if isinstance(value, int) else f32)
    return ConstExpr(type=type_, value=value, weak=type_ != bool_, line=line)


def truth(value: VertexExpr, line: int = 0) -> VertexExpr:
    """``value`` as a condition: whether it is not zero."""
    if value.type == bool_:
        return value
    if isinstance(value, ConstExpr):
        return ConstExpr(type=bool_, value=bool(value.value), line=line)
    zero = ConstExpr(type=value.type, value=fold(0, value.type), line=line)
    return Compare(op="!=", left=value, right=zero, line=line)


def converted(value: VertexExpr, wanted: ElementType, line: int = 0) -> VertexExpr:
    """``value`` as ``wanted``, as a call of the type does it."""
    return truth(value, line) if wanted == bool_ and value.type != bool_ else cast(value, wanted)


def infix(
    name: str, left: VertexExpr, right: VertexExpr, line: int = 0, products: tuple[bool, bool] = (False, False)
) -> VertexExpr:
    """``left`` operator ``right``; an f32 product that is added or subtracted where it is written is fused with that.

    Args:
        name: Name of the operator, of :data:`OPERATORS`.
        left: First operand.
        right: Second operand.
        line: Source line.
        products: True if each operand is written as a product in the operation itself.

    Raises:
        RuleError: Operands that the operator does not take.
    """
    if is_weak(left) and is_weak(right):
        return _folded(name, left, right, line)
    if name == "pow":
        return _power(left, right, line)
    if left.type == bool_ and right.type == bool_ and name in ("and", "or", "xor"):
        return BinaryExpr(type=bool_, op=name, left=left, right=right, line=line)
    type_ = common_type(left, right)
    if name in _BITS and type_.is_float:
        raise RuleError(f"bit operation on {left.type} and {right.type}", "convert to an integer first")
    if name == "div" and not type_.is_float:
        type_ = f32
    if name in ("floordiv", "mod") and type_.is_float:
        raise RuleError(f"// and % of {type_}", "use floor(x / y), or convert to integers")
    left, right = cast(left, type_), cast(right, type_)
    if name == "div" and isinstance(right, ConstExpr) and math.frexp(right.value)[0] in (0.5, -0.5):
        inverse = ConstExpr(type=type_, value=fold(1 / right.value, type_), line=line)
        if 1 / float(inverse.value) == right.value:  # exact, and a product is cheaper
            return BinaryExpr(type=type_, op="mul", left=left, right=inverse, line=line)
    if type_ == f32 and name in ("add", "sub"):
        fused = _fused(name, left, right, products, line)
        if fused is not None:
            return fused
    return BinaryExpr(type=type_, op=name, left=left, right=right, line=line)


def _folded(name: str, left: VertexExpr, right: VertexExpr, line: int) -> VertexExpr:
    assert isinstance(left, ConstExpr)
    assert isinstance(right, ConstExpr)
    if name == "div" and right.value == 0:
        value: Any = float("nan") if left.value == 0 else float("inf") * (1 if left.value > 0 else -1)
    else:
        try:
            value = OPERATORS[name](left.value, right.value)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise RuleError(f"constant expression: {error}") from error
    return ConstExpr(type=f32 if isinstance(value, float) else i64, value=value, weak=True, line=line)


def _power(base: VertexExpr, power: VertexExpr, line: int) -> VertexExpr:
    whole = isinstance(power, ConstExpr) and float(power.value).is_integer() and abs(power.value) <= _LARGEST_POWER
    if isinstance(power, ConstExpr) and whole and (power.value >= 0 or base.type.is_float):
        product = _product(base, abs(int(power.value)), line)
        if power.value >= 0:
            return product
        one = cast(ConstExpr(type=f32, value=1.0), base.type)
        return BinaryExpr(type=base.type, op="div", left=one, right=product, line=line)
    if not (base.type.is_float or power.type.is_float):
        raise RuleError(
            "an integer to a power that is not a small constant", f"write a constant from 0 to {_LARGEST_POWER}"
        )
    if isinstance(power, ConstExpr) and power.value == 0.5:
        return Math(type=base.type, function="sqrt", args=(base,), line=line)
    type_ = common_type(base, power)
    return Math(type=type_, function="pow", args=(cast(base, type_), cast(power, type_)), line=line)


def _fused(name: str, left: VertexExpr, right: VertexExpr, products: tuple[bool, bool], line: int) -> VertexExpr | None:
    """The fused form of ``left ± right`` when one of them is written as a product: the left one, if both are."""
    if products[0] and _is_product(left):
        assert isinstance(left, BinaryExpr)
        addend = right if name == "add" else _negated(right)
        return Math(type=f32, function="fma", args=(left.left, left.right, addend), line=line)
    if products[1] and _is_product(right):
        assert isinstance(right, BinaryExpr)
        factor = right.left if name == "add" else _negated(right.left)
        return Math(type=f32, function="fma", args=(factor, right.right, left), line=line)
    return None


def _is_product(value: VertexExpr) -> bool:
    return isinstance(value, BinaryExpr) and value.op == "mul" and value.type == f32


def _negated(value: VertexExpr) -> VertexExpr:
    if isinstance(value, ConstExpr):
        return ConstExpr(type=value.type, value=-value.value, line=value.line)
    return UnaryExpr(type=value.type, op="neg", arg=value, line=value.line)


def _product(base: VertexExpr, power: int, line: int) -> VertexExpr:
    """``base`` multiplied ``power`` times, by squaring."""
    if power == 0:
        return cast(ConstExpr(type=i64, value=1, line=line), base.type)
    if power == 1:
        return base
    half = _product(base, power // 2, line)
    squared = BinaryExpr(type=base.type, op="mul", left=half, right=half, line=line)
    return BinaryExpr(type=base.type, op="mul", left=squared, right=base, line=line) if power % 2 else squared


def inverted(condition: VertexExpr, line: int = 0) -> VertexExpr:
    """``not condition``."""
    if isinstance(condition, ConstExpr):
        return number(not condition.value, line)
    return UnaryExpr(type=bool_, op="not", arg=condition, line=line)


def negative(value: VertexExpr, line: int = 0) -> VertexExpr:
    """``-value``."""
    if isinstance(value, ConstExpr) and value.type != bool_:
        return ConstExpr(type=value.type, value=fold(-value.value, value.type), weak=value.weak, line=line)
    value = cast(value, i64) if value.type == bool_ else value
    return UnaryExpr(type=value.type, op="neg", arg=value, line=line)


def bits_inverted(value: VertexExpr, line: int = 0) -> VertexExpr:
    """``~value``.

    Raises:
        RuleError: Of a float or a bool.
    """
    if value.type.is_float or value.type == bool_:
        raise RuleError(f"~ of {value.type}", "write not for bools; ~ inverts integers")
    return UnaryExpr(type=value.type, op="invert", arg=value, line=line)


def absolute(value: VertexExpr, line: int = 0) -> VertexExpr:
    """``abs(value)``."""
    if isinstance(value, ConstExpr):
        return ConstExpr(type=value.type, value=abs(value.value), weak=value.weak, line=line)
    return value if value.type.kind in ("uint", "bool") else UnaryExpr(type=value.type, op="abs", arg=value, line=line)


def comparison(sign: str, left: VertexExpr, right: VertexExpr, line: int = 0) -> VertexExpr:
    """``left`` sign ``right``."""
    if isinstance(left, ConstExpr) and isinstance(right, ConstExpr) and left.weak and right.weak:
        return ConstExpr(type=bool_, value=COMPARISONS[sign](left.value, right.value), line=line)
    if left.type == bool_ and right.type == bool_:
        return Compare(op=sign, left=left, right=right, line=line)
    type_ = common_type(left, right)
    return Compare(op=sign, left=cast(left, type_), right=cast(right, type_), line=line)


def logic(op: str, values: Sequence[VertexExpr], line: int = 0) -> VertexExpr:
    """``and`` or ``or`` of conditions."""
    result, *rest = values
    for value in rest:
        result = Logic(op=op, left=result, right=value, line=line)
    return result


def choice(condition: VertexExpr, then: VertexExpr, otherwise: VertexExpr, line: int = 0) -> VertexExpr:
    """``then if condition else otherwise``."""
    if then.type == bool_ and otherwise.type == bool_:
        type_ = bool_
    elif is_weak(then) and is_weak(otherwise):
        type_ = f32 if f32 in (then.type, otherwise.type) else i64
    else:
        type_ = common_type(then, otherwise)
    then, otherwise = cast(then, type_), cast(otherwise, type_)
    return Choice(type=type_, condition=condition, then=then, otherwise=otherwise, line=line)


def extreme(name: str, values: Sequence[VertexExpr], line: int = 0) -> VertexExpr:
    """``min`` or ``max`` of values."""
    result, *rest = values
    for value in rest:
        if isinstance(result, ConstExpr) and isinstance(value, ConstExpr) and result.weak and value.weak:
            pick = min if name == "min" else max
            result = pick(result, value, key=lambda e: e.value)
            continue
        type_ = common_type(result, value)
        result = BinaryExpr(type=type_, op=name, line=line, left=cast(result, type_), right=cast(value, type_))
    return result


def call(function: VertexFunction, args: Sequence[VertexExpr], line: int = 0) -> VertexExpr:
    """A function of floats at ``args``.

    Args:
        function: The function.
        args: As many as it takes.
        line: Source line.
    """
    if function.name in _KEEP_INTEGERS and not args[0].type.is_float:
        return args[0]
    type_ = args[0].type
    for arg in args[1:]:
        type_ = common_type(ConstExpr(type=type_, value=0, weak=False), arg)
    if all(is_weak(a) for a in args) or not type_.is_float:
        type_ = next((a.type for a in args if a.type.is_float and not is_weak(a)), f32)
    wanted = tuple(cast(a, type_) for a in args)
    if all(isinstance(a, ConstExpr) for a in wanted):
        value = float(function(*(a.value for a in wanted if isinstance(a, ConstExpr))))
        return ConstExpr(type=type_, value=fold(value, type_), weak=all(is_weak(a) for a in args), line=line)
    return Math(type=type_, function=function.name, args=wanted, line=line)


def random_word(args: Sequence[VertexExpr], line: int = 0) -> VertexExpr:
    """``random_u32`` of two words of a seed, a modifier and an index."""
    return Math(type=u32, function="random_u32", args=tuple(cast(a, u32) for a in args), line=line)
