"""Operations left undefined by LLVM, with the results of Python codelets.

Integer division by zero ends a process on the host, and an optimiser may delete whatever leads to it. On the tile it is
a function of the run-time library, which does not trap. So the front end's divisions become calls of functions without
side effects before anything is optimised. They are costed as divisions, and get their bodies where native code is made.
A division by a number that is known to be neither 0 nor -1 stays an instruction, which the optimiser understands; calls
whose divisor the optimiser has found out become such instructions afterwards.

``x / 0`` and ``x % 0`` are 0; the lowest number by -1 is itself, and leaves 0. Floats become integers towards zero,
held at the ends of the range, and NaN becomes 0. Shift counts are modulo the width.
"""

from __future__ import annotations

import re

from abele.llvm import ir as ll
from abele.llvm.emit import Value, constant

PREFIXES = tuple(f"abele_{op}." for op in ("sdiv", "udiv", "srem", "urem"))
"""Prefixes of the symbols of divisions; the rest is the type, as intrinsics have it."""
CALLED = re.compile(r"@(abele_([su](?:div|rem))\.((?:v\d+)?i\d+))(?=\()")
"""Finds the symbols of divisions in code: whole, the instruction's name, the type."""
_TYPE = r"i\d+|<\d+ x i\d+>"
_VALUE = r'%(?:"[^"]*"|[-\w$.]+)|-?\d+|poison|undef|zeroinitializer|splat \([^)]*\)|<[^>]*>'
_DIVISION = re.compile(rf"= ([su](?:div|rem)) (?:exact )?({_TYPE}) ({_VALUE}), ({_VALUE})")
_CALL = re.compile(
    rf"= (?:tail )?call ({_TYPE}) @abele_([su](?:div|rem))\.\S+?\((?:{_TYPE}) (?:noundef )?({_VALUE}), "
    rf"(?:{_TYPE}) (?:noundef )?({_VALUE})\)(?: #\d+)?"
)
_CONVERSION = re.compile(rf"= (fpto[su]i) (\w+|<\d+ x \w+>) ({_VALUE}|[-+.\w]+) to ({_TYPE})")
_SHIFT = re.compile(rf"^( *\S+ = )(shl|lshr|ashr)(?: nuw| nsw| exact)* ({_TYPE}) ({_VALUE}), (%[^,\n]+)", re.M)
_POISON = re.compile(r"^(?!.*\b(?:insertelement|shufflevector|phi|freeze)\b)(.*\bi\d+ )poison\b", re.M)
_ATTRIBUTES = "nounwind willreturn nosync nofree nocallback memory(none)"
_FLOATS = {"float": "f32", "half": "f16", "double": "f64"}


def with_calls(text: str) -> str:
    """The front end's module with calls in place of divisions and conversions that may be undefined."""
    declared: dict[str, str] = {}

    def division(found: re.Match[str]) -> str:
        op, type_, x, y = found.groups()
        if _is_harmless(y):
            return found[0]
        name = f"abele_{op}.{_suffix(type_)}"
        declared[name] = f"declare {type_} @{name}({type_}, {type_}) {_ATTRIBUTES}"
        return f"= call {type_} @{name}({type_} {x}, {type_} {y})"

    def conversion(found: re.Match[str]) -> str:
        op, have, x, wanted = found.groups()
        name = f"llvm.{op}.sat.{_suffix(wanted)}.{_suffix(have)}"
        declared[name] = f"declare {wanted} @{name}({have})"
        return f"= call {wanted} @{name}({have} {x})"

    # Integers without a value are 0, so that results do not depend on the optimiser's choice.
    text = _POISON.sub(r"\g<1>0", text)
    text = _CONVERSION.sub(conversion, _DIVISION.sub(division, text))
    known = [name for name in declared if re.search(rf"^declare .*@{re.escape(name)}\(", text, re.M)]
    return "\n".join([text, *(line for name, line in declared.items() if name not in known), ""])


def with_known_divisors(text: str) -> str | None:
    """The optimised module with instructions in place of divisions by numbers that have become known; None if there
    are none."""

    def instruction(call: re.Match[str]) -> str:
        type_, op, x, y = call.groups()
        return f"= {op} {type_} {x}, {y}" if _is_harmless(y) else call[0]

    found = _CALL.sub(instruction, text)
    return None if found == text else found


def with_counts_modulo_width(body: str) -> str:
    """Blocks of code whose shifts by unknown counts take them modulo the width."""
    number = 0

    def shift(found: re.Match[str]) -> str:
        nonlocal number
        number += 1
        begin, op, type_, x, count = found.groups()
        width = int(re.findall(r"i(\d+)", type_)[0]) - 1
        mask = f"splat (i{width + 1} {width})" if type_.startswith("<") else str(width)
        # LLVM's shift by the width or more is undefined: with the mask it is by the rest.
        masked = f"%abele.count.{number}"
        return f"  {masked} = and {type_} {count}, {mask}\n{begin}{op} {type_} {x}, {masked}"

    return _SHIFT.sub(shift, body)


def define_division(module: ll.Module, symbol: str, op: str, suffix: str) -> None:
    """Give a division its body, if it has none yet."""
    if symbol in module.globals:
        return
    width = re.fullmatch(r"(?:v(\d+))?i(\d+)", suffix)
    assert width is not None
    scalar = ll.IntType(int(width[2]))
    type_ = ll.VectorType(scalar, int(width[1])) if width[1] else scalar
    function = ll.Function(module, ll.FunctionType(type_, [type_, type_]), symbol)
    function.linkage = "internal"
    b = ll.IRBuilder(function.append_basic_block())
    b.ret(_signed(b, op, *function.args) if op[0] == "s" else _unsigned(b, op, *function.args))


def _signed(b: ll.IRBuilder, op: str, x: Value, y: Value) -> Value:
    zero, one = constant(x.type, 0), constant(x.type, 1)
    by_zero = b.icmp_signed("==", y, zero)
    special = b.or_(by_zero, b.icmp_signed("==", y, constant(x.type, -1)))
    # Divided by 1 where the machine's instruction would trap; both special cases are replaced afterwards.
    safe = b.select(special, one, y)
    if op == "srem":
        return b.select(special, zero, b.srem(x, safe))
    return b.select(special, b.select(by_zero, zero, b.neg(x)), b.sdiv(x, safe))


def _unsigned(b: ll.IRBuilder, op: str, x: Value, y: Value) -> Value:
    zero = constant(x.type, 0)
    by_zero = b.icmp_unsigned("==", y, zero)
    safe = b.select(by_zero, constant(x.type, 1), y)
    return b.select(by_zero, zero, b.udiv(x, safe) if op == "udiv" else b.urem(x, safe))


def _is_harmless(divisor: str) -> bool:
    """True if a divisor is a number (or numbers) other than 0 and -1."""
    numbers = re.findall(r"(?<![\w%.])-?\d+\b", re.sub(r"i\d+ ", "", divisor)) if divisor[0] != "%" else []
    return bool(numbers) and not {"0", "-1"} & set(numbers)


def _suffix(type_: str) -> str:
    """Name of a type in intrinsics."""
    lanes = re.fullmatch(r"<(\d+) x (\w+)>", type_)
    if lanes:
        return f"v{lanes[1]}{_suffix(lanes[2])}"
    return _FLOATS.get(type_, type_)
