"""Calls through pointers, made calls of the functions that the pointers may be to.

No pointer to a function comes into a vertex from outside, so whatever a pointer is to, its address is taken somewhere
in the module. A call through a pointer becomes one of a function that compares the pointer with all candidates: those
whose address is taken and whose type is that of the call. Where the pointer was read from a constant table of
functions, the place in the table decides instead, by a switch: a table of 256 integrals costs eight comparisons, not
128. Both are put in place afterwards, and what the optimiser knows of the pointer then leaves a single call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from abele.codelet.cpp.entry import VIRTUAL

_QUOTED = r'(?:"[^"]*"|[-\w$.]+)'
_INDIRECT = re.compile(
    rf"^(?P<head>  (?:%{_QUOTED} = )?(?:tail |musttail |notail )?call (?:fastcc )?)(?P<result>[^@%\n]*?)"
    rf"(?P<callee>%{_QUOTED})\((?P<args>[^\n]*?)\)(?P<tail>(?: #\d+)?(?:, ![^\n]*)?)$",
    re.M,
)
_FUNCTION = re.compile(
    rf"^define [^\n]*?(?P<result>[\w<>{{}}\[\]%., ]+?) (?P<name>@{_QUOTED})\((?P<args>[^\n]*)\) [^\n()]*\{{$", re.M
)
_TABLE = re.compile(rf"^(@{_QUOTED}) = [^\n]*\bconstant (\[[^\n]*?\]+) (?P<value>\[[^\n]*\])", re.M)
_POINTED = re.compile(rf"\bptr (@{_QUOTED}|null)")
_TYPE = re.compile(r"^(?:<[^>]*>|\{[^}]*\}|\[[^\]]*\]|%[\w.:\"]+|\w+)(?: \([^)]*\))?")
_WORDS = re.compile(
    r"\b(?:noundef|nonnull|signext|zeroext|inreg|noalias|nocapture|readonly|writeonly|readnone|returned|immarg|fastcc"
    r"|align \d+|dereferenceable(?:_or_null)?\(\d+\)|captures\([^)]*\)|range\([^)]*\)|initializes\(.*?\)\)?"
    r"|(?:nofpclass|sret|byval)\([^)]*\)|hidden|internal|private|unnamed_addr|local_unnamed_addr|dso_local"
    r"|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)\s*"
)
_POINTER_BYTES = 8
OUTSIDE = "abele.outside"
"""Function that is called where a pointer is to no function: it ends the vertex."""


_NONE = f"none:\n  call void @{OUTSIDE}()\n  unreachable\n"


@dataclass(frozen=True)
class _Signature:
    result: str
    arguments: tuple[str, ...]


def with_direct_calls(text: str) -> str | None:
    """The module with calls of functions in place of calls through pointers, and numbers in place of addresses of
    functions; None if it has none of either."""
    functions = {m["name"]: _Signature(_bare(m["result"]), _types(m["args"])) for m in _FUNCTION.finditer(text)}
    # An address is taken wherever a function is named and neither defined nor called, nor described.
    called = re.sub(rf"\bcall ([^@\n]*)@{_QUOTED}\(", r"call \1(", re.sub(r"^(?:define |!).*$", "", text, flags=re.M))
    named = set(re.findall(rf"@{_QUOTED}", called))
    taken = [name for name in functions if name in named]
    if not taken:
        return None
    made: list[str] = []

    def direct(call: re.Match[str]) -> str:
        signature = _Signature(_bare(call["result"]), _types(call["args"]))
        candidates = [name for name in taken if functions[name] == signature]
        read = re.search(rf"^  {re.escape(call['callee'])} = load [^\n]*@{re.escape(VIRTUAL)}\b", text, re.M)
        if not candidates or read is not None:  # a virtual function of the vertex itself, whose table nothing makes
            return call[0]
        name = f"@abele.way.{len(made)}"
        table = _table(text, call)
        if table is None:
            pointer, way = call["callee"], _compared(name, signature, candidates)
        else:
            pointer, base, entries = table
            way = _switched(name, signature, base, [e if e in candidates else "" for e in entries])
        made.append(way)
        arguments = ", ".join(filter(None, [f"ptr {pointer}", call["args"]]))
        return f"{call['head']}{call['result']}{name}({arguments}){call['tail']}"

    found = _INDIRECT.sub(direct, text)
    declared = "" if f"@{OUTSIDE}(" in text else f"declare void @{OUTSIDE}() noreturn\n"
    return _with_numbers(f"{found}\n{''.join(made)}{declared}", taken)


def _with_numbers(text: str, taken: list[str]) -> str:
    """Module with numbers for addresses of functions; they compare as the addresses do."""
    numbers = {name: f"inttoptr (i64 {_POINTER_BYTES * n} to ptr)" for n, name in enumerate(taken, 1)}
    address = re.compile(rf"@{_QUOTED}(?!\()")

    def line(found: str) -> str:
        if found.startswith(("define ", "declare ", "!")) or "@" not in found:
            return found
        return address.sub(lambda m: numbers.get(m[0], m[0]), found)

    return "\n".join(map(line, text.split("\n")))


def _bare(text: str) -> str:
    return _WORDS.sub("", text).strip()


def _types(arguments: str) -> tuple[str, ...]:
    """Types of the arguments of a function or a call."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(arguments + ","):
        depth += character in "(<[{"
        depth -= character in ")>]}"
        if character == "," and not depth:
            parts.append(arguments[begin:at].strip())
            begin = at + 1
    found = [_TYPE.match(_bare(part)) for part in parts if part]
    return tuple(m[0] if m else "?" for m in found)


def _table(text: str, call: re.Match[str]) -> tuple[str, str, list[str]] | None:
    """Constant table of functions that a called pointer was read from: the address, the table's name, its functions."""
    before = text[text.rfind("\ndefine ", 0, call.start()) : call.start()]
    read = re.search(rf"^  {re.escape(call['callee'])} = load ptr, ptr (%{_QUOTED}),", before, re.M)
    if read is None:
        return None
    pointer = name = read[1]
    while (
        step := re.search(rf"^  {re.escape(name)} = getelementptr [^\n]*?ptr ([%@]{_QUOTED}),", before, re.M)
    ) is not None:
        name = step[1]
    for table in _TABLE.finditer(text):
        # Arrays of pointers alone, of any number of dimensions: what lies where is known by counting.
        if table[1] == name and re.fullmatch(r"(?:\[\d+ x )+ptr\]+", table[2]):
            return pointer, name, _POINTED.findall(table["value"])
    return None


def _parameters(signature: _Signature) -> tuple[str, str]:
    """Parameters of a function that finds the target, and its arguments for the target."""
    given = [f"{type_} %a{n}" for n, type_ in enumerate(signature.arguments)]
    return ", ".join(["ptr %to", *given]), ", ".join(given)


def _branch(signature: _Signature, name: str, label: str) -> str:
    _, given = _parameters(signature)
    if signature.result == "void":
        return f"{label}:\n  call void {name}({given})\n  ret void\n"
    return f"{label}:\n  %r.{label} = call {signature.result} {name}({given})\n  ret {signature.result} %r.{label}\n"


def _compared(name: str, signature: _Signature, candidates: list[str]) -> str:
    """Function that calls the candidate at a given pointer."""
    parameters, _ = _parameters(signature)
    blocks = ["  br label %test0\n"]
    for n, candidate in enumerate(candidates):
        other = f"test{n + 1}" if n + 1 < len(candidates) else "none"
        blocks.append(
            f"test{n}:\n  %is{n} = icmp eq ptr %to, {candidate}\n  br i1 %is{n}, label %to{n}, label %{other}\n"
        )
        blocks.append(_branch(signature, candidate, f"to{n}"))
    return f"define internal {signature.result} {name}({parameters}) alwaysinline {{\n{''.join(blocks)}{_NONE}}}\n"


def _switched(name: str, signature: _Signature, table: str, entries: list[str]) -> str:
    """Function that calls, of some functions, the one at an address in a table."""
    parameters, _ = _parameters(signature)
    known = {n: e for n, e in enumerate(entries) if e}
    first: dict[str, str] = {}
    cases = []
    for n, entry in known.items():
        label = first.setdefault(entry, f"to{n}")
        cases.append(f"i64 {n * _POINTER_BYTES}, label %{label}")
    blocks = [
        f"  %at = ptrtoint ptr %to to i64\n  %from = ptrtoint ptr {table} to i64\n  %place = sub i64 %at, %from\n",
        f"  switch i64 %place, label %none [ {' '.join(cases)} ]\n{_NONE}",
        *(_branch(signature, entry, label) for entry, label in first.items()),
    ]
    return f"define internal {signature.result} {name}({parameters}) alwaysinline {{\n{''.join(blocks)}}}\n"
