"""Scopes of a C++ source, by its braces: namespaces, classes, functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SKIPPED = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"([^()\\\s]*)\(.*?\)\1\"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+'"
    r"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*",
    re.S | re.M,
)
_CONDITION = re.compile(r"\s*#\s*(ifn?(?:def)?|elif|else|endif)\b")
_ATTRIBUTES = re.compile(
    r"\[\[.*?\]\]|__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|alignas\s*\([^)]*\)|\bWORKER_\w+|^\s*\w+\s*:(?!:)", re.S
)
_TEMPLATE = re.compile(r"^\s*(?:template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*)*")
_CLASS = re.compile(r"(?:typedef\s+)?(?:class|struct|union)\b")
_SCOPE = re.compile(r"(?:inline\s+)?namespace\b|extern\s*\"")


_Heads = list[tuple[int, int]]
"""Heads that end with one brace, those of both sides of an ``#if``: where each starts, and where its brace opens."""


@dataclass(frozen=True)
class Region:
    """Part of a source that a pair of braces encloses.

    Attributes:
        kind: ``scope`` (a namespace), ``class``, ``function`` or ``other``.
        head: Text before the braces, attributes and template parameters left out.
        start: Place at which its head may begin, attributes and template parameters included.
        begin: Place of its opening brace.
        end: Place of its closing brace.
    """

    kind: str
    head: str
    start: int
    begin: int
    end: int


def code_alone(text: str, *, directives: bool = False) -> str:
    """A source with blanks for comments and strings; all else stays where it is.

    Args:
        text: The source.
        directives: True to keep the preprocessor's lines, as macros have code in them.
    """

    def blank(skipped: re.Match[str]) -> str:
        keeps = directives and skipped[0].lstrip().startswith("#")
        return skipped[0] if keeps else re.sub(r"[^\n]", " ", skipped[0])

    return _SKIPPED.sub(blank, text)


def strings(text: str, begin: int, end: int) -> Iterator[str]:
    """Contents of the strings in a stretch of a source."""
    return (m[0][1:-1] for m in _SKIPPED.finditer(text, begin, end) if m[0][0] == '"')


def directives_alone(text: str, begin: int, end: int) -> str:
    """The preprocessor's lines of a stretch of a source; of all else the ends of lines, so that each stays where it
    is."""
    found, at = "", begin
    for skipped in _SKIPPED.finditer(text, begin, end):
        if skipped[0].lstrip().startswith("#"):
            found += "\n" * text.count("\n", at, skipped.start()) + skipped[0]
            at = skipped.end()
    return found + "\n" * text.count("\n", at, end)


def regions(text: str) -> Iterator[Region]:
    """Regions of a source, inner ones first; unclosed ones are left out.

    Which side of an ``#if`` is compiled is not known here. Each side is read with the braces that were open at the
    ``#if``. Where both sides open as many, as in ``#ifdef A … f() { #else … g() { #endif … }``, the end is that of both
    heads; what follows stays in place.
    """
    plain = code_alone(text)
    opened: list[_Heads] = []
    conditions: list[_Condition] = []
    start = 0  # of what may be the head of the next region
    for at, mark in sorted([*_conditions(text), *((m.start(), m[0]) for m in re.finditer(r"[{};]", plain))]):
        if mark not in "{};":
            opened = _at_condition(mark, opened, conditions)
            continue
        if mark == "{":
            opened.append([(start, at)])
        elif mark == "}" and opened:
            for head_at, begin in opened.pop():
                head = _TEMPLATE.sub("", _ATTRIBUTES.sub(" ", plain[head_at:begin]).strip(), count=1).strip()
                yield Region(_kind(head, text[head_at:begin]), head, head_at, begin, at)
        start = at + 1


@dataclass(frozen=True)
class _Condition:
    """An ``#if`` that is being read: open regions before it, and after each of its sides so far."""

    before: list[_Heads]
    sides: list[list[_Heads]]


def _at_condition(word: str, opened: list[_Heads], conditions: list[_Condition]) -> list[_Heads]:
    """Open regions after a line of the preprocessor."""
    if word.startswith("if"):
        conditions.append(_Condition(list(opened), []))
    elif conditions and word != "endif":
        conditions[-1].sides.append(opened)
        return list(conditions[-1].before)
    elif conditions:
        for side in conditions.pop().sides:
            if len(side) == len(opened):
                opened = [heads + [h for h in more if h not in heads] for heads, more in zip(opened, side, strict=True)]
    return opened


def _conditions(text: str) -> Iterator[tuple[int, str]]:
    """Places of the preprocessor's conditions: ``if``, ``ifdef``, ``ifndef``, ``elif``, ``else`` and ``endif``."""
    for skipped in _SKIPPED.finditer(text):
        found = _CONDITION.match(skipped[0])
        if found is not None:
            yield skipped.start(), found[1]


def _kind(head: str, written: str) -> str:
    if _SCOPE.match(head) or _SCOPE.match(written.strip()):
        return "scope"
    if _CLASS.match(head) and not head.endswith(")"):
        return "class"
    ends = re.sub(r"\b(?:const|noexcept|override|final|volatile|mutable|&&?)\s*$|->[^()]*$", "", head).strip()
    ends = re.sub(r"\b(?:const|noexcept|override)\s*$", "", ends).strip()
    return "function" if ends.endswith(")") and not ends.startswith(("=", ",")) else "other"
