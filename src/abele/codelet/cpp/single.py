"""Arithmetic in double, done in float: on the machine ``double`` is ``float``.

``0.1 * x``, ``std::pow(x, 2)`` and ``std::sqrt(n)`` compute in double because C++ says so, and the tile's compiler
makes 32-bit instructions of them. Here the front end's doubles have 64 bits: no target whose doubles are short has
the 64-bit pointers that fields are. So its code is rewritten, once calls are put in place and locals are values:
whatever gives a double is computed in float from operands that are rounded to float, and widened again.

Every double value ``%x`` gets a twin ``%s.x`` of type float. Operations take and give twins. ``%x`` is the twin
widened, for whatever knows doubles alone: memory, ``printf``, and moves of 64 bits that the host's calling convention
writes as doubles (structures, vectors of halves), which are not touched. What is read from memory is rounded, so that
a table of doubles counts as one of floats. Chains of operations never leave float, since rounding takes widening back
exactly; and neither do variables of loops, since phis of numbers are made of twins.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_WIDE = r"(?:<\d+ x )?\b(?:double|x86_fp80|fp128)\b>?"
_NAME = r'%(?:"[^"]*"|[-\w$.]+)'
_FLAGS = r"(?:(?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|nneg) )*"
_TYPE = r"(?:<[^>]*>|\w+)"
_RESULT = re.compile(rf"^  (?P<name>{_NAME}) = (?P<rest>.*)$")
_FUNCTION = re.compile(r"^define [^\n]*\{\n(?P<body>.*?)^\}$", re.M | re.S)
_COMPUTE = re.compile(
    rf"(?P<op>fadd|fsub|fmul|fdiv|frem|fneg|freeze) (?P<flags>{_FLAGS})(?P<type>{_WIDE}) (?P<args>.*)$"
)
_COMPARE = re.compile(rf"(?P<head>fcmp {_FLAGS}\w+) (?P<type>{_WIDE}) (?P<args>.*)$")
_CONVERT = re.compile(
    rf"(?P<op>fpext|fptrunc|[su]itofp|fpto[su]i) (?P<flags>{_FLAGS})(?P<from>{_TYPE}) (?P<value>.+?) to (?P<to>{_TYPE})"
    r"(?P<tail>.*)$"
)
_PHI = re.compile(rf"phi (?P<flags>{_FLAGS})(?P<type>{_WIDE}) (?P<args>\[.*\])(?P<tail>[^\]]*)$")
_SELECT = re.compile(
    rf"select (?P<head>{_FLAGS}(?:i1|<\d+ x i1>) [^,]+), (?P<type>{_WIDE}) (?P<a>.+), {_WIDE} (?P<b>.+)$"
)
_CALL = re.compile(
    r"^  (?:%\S+ = )?(?P<head>(?:tail |notail )?call )(?P<result>[^@]*)@(?P<callee>[-\w$.]+)\((?P<args>.*)\)"
    r"(?P<tail>[^)]*)$"
)
_INCOMING = re.compile(rf"\[ (?P<value>.+?), (?P<block>{_NAME}) \]")
_NUMBER = r"0x[KL]?[0-9A-Fa-f]+|[-+]?\d+\.\d+(?:e[-+]?\d+)?|[-+]?(?:inf|nan)\b"
_TOKEN = re.compile(rf"(?P<name>{_NAME})|(?P<number>{_NUMBER})|(?P<type>\b(?:double|x86_fp80|fp128)\b)")
_USED = re.compile(_NAME)
_MENTIONED = re.compile(r"\b(?:double|x86_fp80|fp128)\b")
_COMPUTED = re.compile(rf"^  [^\n!]*(?:= f\w+ |itofp |call )[^\n!]*(?:{_MENTIONED.pattern})", re.M)
_SUFFIX = re.compile(r"\.(v\d+)?f(?:64|80|128)\b")


def computes_in_double(text: str) -> bool:
    """True if a module has operations that take or give doubles."""
    return _COMPUTED.search(text) is not None


def in_single_precision(text: str, has_function: Callable[[str], bool]) -> str:
    """A module whose arithmetic in double is done in float.

    Args:
        text: Its text; locals are values, calls are put in place.
        has_function: True if the C library has a function of a name: ``powf``.
    """
    declared: dict[str, str] = {}

    def rewritten(function: re.Match[str]) -> str:
        begin, end = (at - function.start() for at in function.span("body"))
        whole = function[0]
        return whole[:begin] + _FunctionBlocks(whole[begin:end], has_function, declared).text() + whole[end:]

    text = _FUNCTION.sub(rewritten, text)
    known = set(re.findall(r"^(?:declare|define) [^\n]*?@([-\w$.]+)\(", text, re.M))
    return "\n".join([text, *(line for name, line in declared.items() if name not in known), ""])


@dataclass
class _FunctionBlocks:
    """Blocks of one function.

    Attributes:
        body: Their text.
        has_function: See :func:`in_single_precision`.
        declared: Declarations of functions for float, by name; new ones are added.
        numbers: Phis, selects and freezes of numbers, which are done in float.
        wanted: Values whose twin is used, each with its type.
        made: Values that have a twin by what makes them.
    """

    body: str
    has_function: Callable[[str], bool]
    declared: dict[str, str]
    numbers: set[str] = field(default_factory=set)
    wanted: dict[str, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    def text(self) -> str:
        """The blocks, rewritten."""
        if not _COMPUTED.search(self.body):
            return self.body
        self.numbers = self._numbers()
        return "\n".join(self._with_twins(list(self._lines())))

    def _lines(self) -> Iterator[str]:
        after: list[str] = []  # what follows the phis of a block
        for line in self.body.split("\n"):
            is_phi = " = phi " in line
            # LLVM wants all phis of a block first: what widens a twin of one has to wait for the last of them.
            if after and not is_phi and not line.startswith("    #dbg"):
                yield from after
                after = []
            first, *more = self._line(line)
            yield first
            if is_phi:
                after += more
            else:
                yield from more

    def _with_twins(self, lines: list[str]) -> Iterator[str]:
        """Lines with float twins of values that are given as doubles: read, moved, or passed in."""
        missing = {
            n: f"  {_twin(n)} = fptrunc {t} {n} to {_float(t)}" for n, t in self.wanted.items() if n not in self.made
        }
        defined = {m["name"] for line in lines if (m := _RESULT.match(line))}
        # Parameters are made by no line: their twins come first in the function.
        given = [line for name, line in missing.items() if name not in defined]
        waiting: list[str] = []
        for number, line in enumerate(lines):
            found = _RESULT.match(line)
            if waiting and " = phi " not in line and not line.startswith("    #dbg"):
                yield from waiting
                waiting = []
            if given and not (number == 0 and line.endswith(":")):
                yield from given
                given = []
            yield line
            if found and found["name"] in missing:
                waiting.append(missing[found["name"]])

    def _numbers(self) -> set[str]:
        """Phis, selects and freezes of numbers; others only move 64 bits."""
        links: dict[str, set[str]] = {}
        known, moved = set(), set()
        for line in self.body.split("\n"):
            found = _RESULT.match(line)
            rest = found["rest"] if found else line
            joins = _PHI.match(rest) or _SELECT.match(rest) or (rest.startswith("freeze") and _COMPUTE.match(rest))
            if found and joins:
                # Phis, selects and freezes take the kind of what they join: linked into groups, a group is of numbers
                # if arithmetic touches one of its members, and stays as it is if a bit cast makes one.
                values = _joined(joins)
                for name in _USED.findall(values):
                    links.setdefault(name, set()).add(found["name"])
                    links.setdefault(found["name"], set()).add(name)
                links.setdefault(found["name"], set())
                if any(t["number"] for t in _TOKEN.finditer(values)):
                    known.add(found["name"])
            elif _COMPUTE.match(rest) or _COMPARE.match(rest) or _CONVERT.match(rest) or self._function(line):
                known.update(_USED.findall(line))
            elif found and re.match(rf"bitcast .* to {_WIDE}", rest):
                moved.add(found["name"])
        return {n for group in _groups(links) if group & known and not group & moved for n in group}

    def _function(self, line: str) -> tuple[str, re.Match[str]] | None:
        """The function for float in place of one for double that a line calls, and the call."""
        call = _CALL.match(line)
        if call is None or "{" in call["result"] or not _MENTIONED.search(line):
            return None
        callee = call["callee"]
        if callee.startswith("llvm."):
            name = _SUFFIX.sub(r".\1f32", callee)
            return (name, call) if name != callee else None
        # `powl` has `powf` for f32, and so has `pow`.
        names = [f"{callee}f", f"{callee[:-1]}f"] if callee.endswith("l") else [f"{callee}f"]
        return next(((n, call) for n in names if self.has_function(n)), None)

    def _line(self, line: str) -> list[str]:
        if not _MENTIONED.search(line):
            return [line]
        found = _RESULT.match(line)
        name, rest = (found["name"], found["rest"]) if found else ("", line)
        function = self._function(line)
        if function is not None:
            return self._call(name, *function)
        if (op := _COMPUTE.match(rest)) and (op["op"] != "freeze" or name in self.numbers):
            return self._made(name, op["type"], f"{op['op']} {op['flags']}{_float(op['type'])} {self._single(op)}")
        if op := _COMPARE.match(rest):
            return [f"  {name} = {op['head']} {_float(op['type'])} {self._single(op)}"]
        if op := _CONVERT.match(rest):
            return self._converted(name, op)
        if name in self.numbers and (op := _PHI.match(rest)):
            parts = (
                f"[ {self._single(i, 'value', op['type'])}, {i['block']} ]" for i in _INCOMING.finditer(op["args"])
            )
            return self._made(name, op["type"], f"phi {op['flags']}{_float(op['type'])} {', '.join(parts)}{op['tail']}")
        if name in self.numbers and (op := _SELECT.match(rest)):
            first, second = (f"{_float(op['type'])} {self._single(op, which)}" for which in "ab")
            return self._made(name, op["type"], f"select {op['head']}, {first}, {second}")
        return [line]

    def _made(self, name: str, type_: str, instruction: str) -> list[str]:
        """Twin by its own instruction, and the double."""
        self.made.add(name)
        twin = _twin(name)
        return [f"  {twin} = {instruction}", f"  {name} = fpext {_float(type_)} {twin} to {type_}"]

    def _converted(self, name: str, op: re.Match[str]) -> list[str]:
        source, target = _float(op["from"]), _float(op["to"])
        value = self._single(op, "value", op["from"]) if source != op["from"] else op["value"]
        kind = f"{op['op']} {op['flags']}"
        if source == target:
            kind = "bitcast "
        # Truncation from double to half is an instruction still; from a half, whose double became a float, it is an
        # extension.
        elif op["op"] == "fptrunc" and "half" in source:
            kind = "fpext "
        instruction = f"{kind}{source} {value} to {target}{op['tail']}"
        return [f"  {name} = {instruction}"] if target == op["to"] else self._made(name, op["to"], instruction)

    def _call(self, name: str, callee: str, call: re.Match[str]) -> list[str]:
        arguments = [self._argument(a) for a in _split(call["args"])]
        result = _float(call["result"])
        types = ", ".join(match[0] for a in arguments if (match := re.match(_TYPE, a)))
        returned = re.findall(_TYPE, result)[-1]
        self.declared.setdefault(callee, f"declare {returned} @{callee}({types})")
        instruction = f"{call['head']}{result}@{callee}({', '.join(arguments)}){call['tail']}"
        wide = re.search(_WIDE, call["result"])
        if wide:
            return self._made(name, wide[0], instruction)
        return [f"  {name} = {instruction}" if name else f"  {instruction}"]

    def _argument(self, text: str) -> str:
        found = re.match(rf"(?P<type>{_WIDE})(?P<args>.*)$", text)
        return f"{_float(found['type'])}{self._single(found)}" if found else text

    def _single(self, op: re.Match[str], part: str = "args", type_: str = "") -> str:
        """Operands: values by their twins, constants rounded; metadata after them stays."""
        operands, mark, metadata = op[part].partition(", !")

        def single(token: re.Match[str]) -> str:
            if token["name"]:
                self.wanted[token["name"]] = type_ or op["type"]
                return _twin(token["name"])
            return _rounded(token["number"]) if token["number"] else "float"

        return _TOKEN.sub(single, operands) + mark + metadata


def _joined(joins: re.Match[str]) -> str:
    """Operands of a phi, a select or a freeze, without blocks and conditions."""
    if "block" not in joins[0] and joins.re is _SELECT:
        return f"{joins['a']} {joins['b']}".partition(", !")[0]
    args = joins["args"]
    return " ".join(i["value"] for i in _INCOMING.finditer(args)) if joins.re is _PHI else args.partition(", !")[0]


def _groups(links: dict[str, set[str]]) -> Iterator[set[str]]:
    """Values that are linked with each other."""
    seen: set[str] = set()
    for name in links:
        group, waiting = set(), [name]
        while waiting and name not in seen:
            value = waiting.pop()
            if value not in group:
                group.add(value)
                waiting += links[value]
        seen |= group
        yield group


def _twin(name: str) -> str:
    return f'%"s.{name[2:]}' if name.startswith('%"') else f"%s.{name[1:]}"


def _float(type_: str) -> str:
    return _MENTIONED.sub("float", type_)


def _rounded(number: str) -> str:
    """A constant as that of a float."""
    value = _value(number)
    try:
        value = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"


def _value(number: str) -> float:
    if number.startswith("0xK"):  # sign and exponent, significand
        return _scaled(int(number[3:7], 16), int(number[7:], 16), 63)
    if number.startswith("0xL"):  # the low half first
        bits = int(number[19:] + number[3:19], 16)
        return _scaled(bits >> 112, bits & ((1 << 112) - 1) | 1 << 112, 112)
    if number.startswith("0x"):
        return float(struct.unpack("d", struct.pack("Q", int(number[2:], 16)))[0])
    return float(number)


def _scaled(sign_exponent: int, significand: int, fraction_bits: int) -> float:
    """The value of a float of 80 or 128 bits; denormal ones are zero."""
    sign, exponent = (-1.0 if sign_exponent & 0x8000 else 1.0), sign_exponent & 0x7FFF
    if exponent == 0x7FFF:
        return sign * float("nan" if significand & ((1 << fraction_bits) - 1) else "inf")
    try:
        return sign * math.ldexp(significand, exponent - 16383 - fraction_bits) if exponent else sign * 0.0
    except OverflowError:
        return sign * float("inf")


def _split(text: str) -> list[str]:
    """Arguments of a call; commas in brackets do not divide."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "<({[") - (char in ">)}]")
        if char == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts
