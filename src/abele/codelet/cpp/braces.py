"""What the braces of a C++ source enclose: namespaces, classes, functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SKIPPED = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"([^()\\\s]*)\(.*?\)\1\"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+'"
    r"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*",
    re.S | re.M,
)
_ATTRIBUTES = re.compile(
    r"\[\[.*?\]\]|__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|alignas\s*\([^)]*\)|\bWORKER_\w+|^\s*\w+\s*:(?!:)", re.S
)
_TEMPLATE = re.compile(r"^\s*(?:template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>\s*)*")
_CLASS = re.compile(r"(?:typedef\s+)?(?:class|struct|union)\b")
_SCOPE = re.compile(r"(?:inline\s+)?namespace\b|extern\s*\"")


@dataclass(frozen=True)
class Region:
    """What a pair of braces encloses.

    Attributes:
        kind: ``scope`` (a namespace), ``class``, ``function`` or ``other``.
        head: What stands before the braces, attributes and template parameters left out.
        begin: Where its opening brace is.
        end: Where its closing brace is.
    """

    kind: str
    head: str
    begin: int
    end: int


def regions(text: str) -> Iterator[Region]:
    """The regions of a source, those inside others first; none of what is not closed.

    Both sides of an ``#if`` are read as if they followed each other.
    """
    plain = _SKIPPED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    opened: list[tuple[int, int]] = []
    start = 0  # of what may be the head of the next region
    for found in re.finditer(r"[{};]", plain):
        at = found.start()
        if found[0] == "{":
            opened.append((start, at))
        elif found[0] == "}" and opened:
            head_at, begin = opened.pop()
            head = _TEMPLATE.sub("", _ATTRIBUTES.sub(" ", plain[head_at:begin]).strip(), count=1).strip()
            yield Region(_kind(head, text[head_at:begin]), head, begin, at)
        start = at + 1


def _kind(head: str, written: str) -> str:
    if _SCOPE.match(head) or _SCOPE.match(written.strip()):
        return "scope"
    if _CLASS.match(head) and not head.endswith(")"):
        return "class"
    ends = re.sub(r"\b(?:const|noexcept|override|final|volatile|mutable|&&?)\s*$|->[^()]*$", "", head).strip()
    ends = re.sub(r"\b(?:const|noexcept|override)\s*$", "", ends).strip()
    return "function" if ends.endswith(")") and not ends.startswith(("=", ",")) else "other"
