"""Text of a module in pieces, and the pieces that some of its functions need.

A file of hundreds of vertex classes is one module. To optimise one class, only the functions that its ``compute``
reaches are wanted, and only the types, attributes and debug information that these mention. References are names of
four kinds, each told by its first character: ``@`` functions and globals, ``%`` types, ``#`` attributes, ``!``
metadata. Values of functions begin with ``%`` too, and are no definition of any name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from abele.codelet.cpp.metadata import global_name

_QUOTED = r'(?:"[^"]*"|[-\w$.]+)'
_FUNCTION = re.compile(rf"^define [^\n]*?(@{_QUOTED})\([^\n]*\{{\n.*?^\}}$", re.M | re.S)
_LINE = re.compile(
    rf"^(?:declare [^\n]*?(?P<declared>@{_QUOTED})\(|(?P<named>[@%]{_QUOTED}|!\d+) = |attributes (?P<group>#\d+) = )"
    r"[^\n]*$",
    re.M,
)
_MODULE = re.compile(r"^!llvm\.(?:dbg\.cu|module\.flags) = [^\n]*$", re.M)
_REFERENCE = re.compile(rf"[@%]{_QUOTED}|#\d+|!\d+")
_RECORDS = re.compile(r"^ +#dbg_[^\n]*\n", re.M)
_LISTS = re.compile(r", (?:retainedTypes|globals|imports|enums|macros|retainedNodes): !\d+")
"""Entries that lead from a compile unit to everything in it, and from a function to its local variables."""


class Fragments:
    """The text of a module as its front end wrote it.

    Args:
        text: The text.
    """

    def __init__(self, text: str) -> None:
        self._functions = {m[1]: m.span() for m in _FUNCTION.finditer(text)}
        self._lines = {m["declared"] or m["named"] or m["group"]: m.span() for m in _LINE.finditer(text)}
        self._module = _MODULE.findall(text)
        self._text = text

    def around(self, symbols: Iterable[str]) -> str:
        """Text of a module with these functions and all that they refer to; variables are no longer described.

        Args:
            symbols: Symbols without the ``@``.
        """
        functions: list[str] = []
        lines: list[str] = []
        waiting = [global_name(s) for s in symbols]
        waiting += _REFERENCE.findall("\n".join(self._module))  # without a compile unit debug information is dropped
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            # Metadata with a cut entry no longer leads to the whole file; names of values lead nowhere.
            if name in self._functions:
                begin, end = self._functions[name]
                text = _RECORDS.sub("", self._text[begin:end])
                functions.append(text)
            elif name in self._lines:
                begin, end = self._lines[name]
                text = _LISTS.sub("", self._text[begin:end])
                lines.append(text)
            else:
                continue
            for found in _REFERENCE.findall(text):
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)
        # A global's type has to be known where it stands; all else may come in any order.
        types_first = sorted(lines, key=lambda line: line[0] != "%")
        return "\n".join([*types_first, *functions, *self._module, ""])
