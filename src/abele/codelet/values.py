"""LLVM code of expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from abele.codelet.functions import emit
from abele.codelet.memory import VertexMemory, value_type
from abele.codelet.tree import (
    BinaryExpr,
    CastExpr,
    Choice,
    Compare,
    ConstExpr,
    Element,
    HelperCall,
    Length,
    Local,
    Logic,
    Math,
    Scalar,
    UnaryExpr,
    VertexExpr,
)
from abele.llvm import ir as ll
from abele.llvm.arithmetic import larger, smaller
from abele.llvm.emit import F32, I1, POINTER, Value, constant, declared, intrinsic, suffix
from abele.llvm.random import emit_hash_u32
from abele.numerics import ElementType, bool_

# Integer arithmetic as the language defines it, for every operand: nothing traps and nothing is undefined.
#
# Sums, differences and products are modulo 2^bits. ``//`` and ``%`` round towards minus infinity, as in Python; by
# zero both give 0. Shift counts are modulo the width; ``>>`` keeps the sign of signed integers.


def integer_binary(b: ll.IRBuilder, op: str, x: Value, y: Value, type_: ElementType) -> Value:
    """``x op y`` of integers or bools of ``type_``."""
    signed = type_.kind == "int"
    match op:
        case "add":
            return b.add(x, y)
        case "sub":
            return b.sub(x, y)
        case "mul":
            return b.mul(x, y)
        case "and":
            return b.and_(x, y)
        case "or":
            return b.or_(x, y)
        case "xor":
            return b.xor(x, y)
        case "shl":
            return b.shl(x, b.and_(y, constant(y.type, type_.bits - 1)))
        case "shr":
            count = b.and_(y, constant(y.type, type_.bits - 1))
            return b.ashr(x, count) if signed else b.lshr(x, count)
        case "min" | "max":
            return intrinsic(b, f"llvm.{'s' if signed else 'u'}{op}", x, y)
    return _signed_division(b, op, x, y) if signed else _unsigned_division(b, op, x, y)


def saturated(b: ll.IRBuilder, x: Value, wanted: ElementType) -> Value:
    """A float as an integer: towards zero, limited to the range, 0 for NaN."""
    target = value_type(wanted)
    name = f"llvm.fpto{'s' if wanted.kind == 'int' else 'u'}i.sat.{suffix(target)}.{suffix(x.type)}"
    return b.call(declared(b, name, target, [x.type]), [x])


def _signed_division(b: ll.IRBuilder, op: str, x: Value, y: Value) -> Value:
    zero, one = constant(x.type, 0), constant(x.type, 1)
    divisor = y.constant if isinstance(y, ll.Constant) else None
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        shift = constant(x.type, divisor.bit_length() - 1)
        return b.ashr(x, shift) if op == "floordiv" else b.and_(x, constant(x.type, divisor - 1))
    guarded = divisor in (None, 0, -1)
    # the lowest number by -1 traps like a division by zero; as 1 both are harmless, and corrected below
    special = b.or_(b.icmp_signed("==", y, zero), b.icmp_signed("==", y, constant(x.type, -1))) if guarded else zero
    safe = b.select(special, one, y) if guarded else y
    quotient = b.sdiv(x, safe)
    rest = b.sub(x, b.mul(quotient, safe))
    inexact = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, safe), zero))
    if op == "mod":
        result = b.select(inexact, b.add(rest, safe), rest)
        return b.select(special, zero, result) if guarded else result
    result = b.select(inexact, b.sub(quotient, one), quotient)
    if not guarded:
        return result
    by_zero = b.icmp_signed("==", y, zero)
    return b.select(special, b.select(by_zero, zero, b.neg(x)), result)


def _unsigned_division(b: ll.IRBuilder, op: str, x: Value, y: Value) -> Value:
    by_zero = b.icmp_unsigned("==", y, constant(y.type, 0))
    safe = b.select(by_zero, constant(y.type, 1), y)
    result = b.udiv(x, safe) if op == "floordiv" else b.urem(x, safe)
    return b.select(by_zero, constant(y.type, 0), result)


FLOAT_BINARY: dict[str, Callable[..., Value]] = {
    "add": lambda b, x, y: b.fadd(x, y),
    "sub": lambda b, x, y: b.fsub(x, y),
    "mul": lambda b, x, y: b.fmul(x, y),
    "div": lambda b, x, y: b.fdiv(x, y),
    "max": larger,
    "min": smaller,
}
"""Operations on f32; the extremes the first, unless the second is beyond it, or not a number."""


EXACT = ("max", "min")
"""Operations whose results need no rounding."""


class Values:
    """Emits expressions into the function at hand.

    Attributes:
        builder: Builder that code is added to.
        memory: Fields of the vertex at hand.
        variables: Stack slots of local variables by name.
        rows: Stack slots of pointers to rows that have a name, by the variable that numbers them.
        certain: Elements that are there whether or not the source reads them; see ``neighbours``.
        shifted: Stack slots of elements that come from the iteration before; see ``neighbours``.
    """

    builder: ll.IRBuilder
    memory: VertexMemory
    variables: dict[str, Value]
    rows: dict[str, Value]
    certain: set[Element]
    shifted: dict[Element, Value]

    def call_helper(self, call: HelperCall) -> Value:
        """The result of a helper, whose code is put in place."""
        raise NotImplementedError

    def value(self, expression: VertexExpr) -> Value:
        """Code of ``expression``."""
        result: Value = _EMIT[type(expression)](self, expression)
        return result

    def _const(self, e: ConstExpr) -> Value:
        return constant(value_type(e.type), float(e.value) if e.type.is_float else int(e.value))

    def _local(self, e: Local) -> Value:
        return self.builder.load(self.variables[e.name], typ=value_type(e.type))

    def _scalar(self, e: Scalar) -> Value:
        return self.memory.load(e.field, [])

    def _element(self, e: Element) -> Value:
        if e in self.shifted:
            return self.builder.load(self.shifted[e], typ=value_type(e.type))
        return self.memory.load(e.field, [self.value(i) for i in e.index], self.row_of(e.index))

    def row_of(self, index: tuple[VertexExpr, ...]) -> Value | None:
        """Pointer to the row of an element, where the source gave the row a name."""
        first = index[0] if len(index) == 2 else None
        if not isinstance(first, Local) or first.name not in self.rows:
            return None
        return self.builder.load(self.rows[first.name], typ=POINTER)

    def _length(self, e: Length) -> Value:
        return self.memory.length(e.field, None if e.row is None else self.value(e.row))

    def _binary(self, e: BinaryExpr) -> Value:
        left, right = self.value(e.left), self.value(e.right)
        if e.type.is_float:
            return self._rounded(FLOAT_BINARY[e.op](self.builder, left, right), e)
        return integer_binary(self.builder, e.op, left, right, e.type)

    def _rounded(self, value: Value, e: VertexExpr) -> Value:
        exact = isinstance(e, BinaryExpr) and e.op in EXACT
        return value if e.type.bits == 32 or exact else self.memory.rounded(value, e.type)

    def _compare(self, e: Compare) -> Value:
        left, right = self.value(e.left), self.value(e.right)
        type_ = e.left.type
        if type_.is_float:
            compare = self.builder.fcmp_unordered if e.op == "!=" else self.builder.fcmp_ordered
            return compare(e.op, left, right)
        signed = type_.kind == "int"
        return (self.builder.icmp_signed if signed else self.builder.icmp_unsigned)(e.op, left, right)

    def _logic(self, e: Logic) -> Value:
        # Both sides without a branch where that is safe: branches keep LLVM from vectorising.
        if self._is_harmless(e.right):
            left, right = self.value(e.left), self.value(e.right)
            return self.builder.and_(left, right) if e.op == "and" else self.builder.or_(left, right)
        known = ConstExpr(type=bool_, value=e.op == "or")
        then, otherwise = (e.right, known) if e.op == "and" else (known, e.right)
        return self._choice(Choice(type=bool_, condition=e.left, then=then, otherwise=otherwise))

    def _unary(self, e: UnaryExpr) -> Value:
        arg = self.value(e.arg)
        match e.op:
            case "not":
                return self.builder.xor(arg, constant(I1, 1))
            case "invert":
                return self.builder.xor(arg, constant(arg.type, -1))
            case "neg":
                return self.builder.fneg(arg) if e.type.is_float else self.builder.neg(arg)
        if e.type.is_float:
            return intrinsic(self.builder, "llvm.fabs", arg)
        return intrinsic(self.builder, "llvm.abs", arg, constant(I1, 0))

    def _choice(self, e: Choice) -> Value:
        condition = self.value(e.condition)
        if self._is_harmless(e.then) and self._is_harmless(e.otherwise):
            # Who writes a choice of values, and no branch, expects that the processor cannot guess it. Without a word
            # LLVM makes a branch of it in loops of x86.
            chosen = self.builder.select(condition, self.value(e.then), self.value(e.otherwise))
            chosen.set_metadata("unpredictable", self.builder.module.add_metadata([]))
            return chosen
        ends, values = [], []
        after = self.builder.append_basic_block("chosen")
        sides = [self.builder.append_basic_block(n) for n in ("then", "otherwise")]
        self.builder.cbranch(condition, *sides)
        for side, part in zip(sides, (e.then, e.otherwise), strict=True):
            self.builder.position_at_end(side)
            values.append(self.value(part))
            ends.append(self.builder.block)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        result = self.builder.phi(value_type(e.type))
        for value, end in zip(values, ends, strict=True):
            result.add_incoming(value, end)
        return result

    def _cast(self, e: CastExpr) -> Value:
        return self.converted(self.value(e.arg), e.arg.type, e.type)

    def converted(self, value: Value, have: ElementType, wanted: ElementType) -> Value:
        """``value`` converted: floats rounded to nearest even, float to integer towards zero and saturated."""
        b, target = self.builder, value_type(wanted)
        if have == wanted:
            return value
        if wanted == bool_:
            zero = constant(value.type, 0)
            return b.fcmp_unordered("!=", value, zero) if have.is_float else b.icmp_unsigned("!=", value, zero)
        if wanted.is_float:
            if not have.is_float:
                value = (b.sitofp if have.kind == "int" else b.uitofp)(value, F32)
            return value if wanted.bits == 32 else self.memory.rounded(value, wanted)
        if have.is_float:
            return saturated(b, value, wanted)
        bits = 1 if have == bool_ else have.bits
        if bits == wanted.bits:
            return value
        if bits > wanted.bits:
            return b.trunc(value, target)
        return b.sext(value, target) if have.kind == "int" else b.zext(value, target)

    def _math(self, e: Math) -> Value:
        args = [self.value(a) for a in e.args]
        if e.function == "random_u32":
            return emit_hash_u32(self.builder, *args)
        return self._rounded(emit(e.function, self.builder, *args), e)

    def _helper(self, e: HelperCall) -> Value:
        return self.call_helper(e)

    def _is_harmless(self, expression: VertexExpr) -> bool:
        """True if evaluating it without need neither fails, nor costs much, nor draws random numbers."""
        parts = list(expression.walk())
        # Random rounding draws a number, so evaluating more than the source does would shift all later ones.
        if self.memory.draws is not None and any(p.type.is_narrow for p in parts):
            return False
        return not any(isinstance(p, HelperCall | Math) or _divides(p) or self._is_uncertain(p) for p in parts)

    def _is_uncertain(self, part: VertexExpr) -> bool:
        return isinstance(part, Element) and part not in self.certain


def _divides(part: VertexExpr) -> bool:
    return isinstance(part, BinaryExpr) and part.op in ("floordiv", "mod")


_EMIT: dict[type, Callable[[Values, Any], Value]] = {
    ConstExpr: Values._const,
    Local: Values._local,
    Scalar: Values._scalar,
    Element: Values._element,
    Length: Values._length,
    BinaryExpr: Values._binary,
    Compare: Values._compare,
    Logic: Values._logic,
    UnaryExpr: Values._unary,
    Choice: Values._choice,
    CastExpr: Values._cast,
    Math: Values._math,
    HelperCall: Values._helper,
}
