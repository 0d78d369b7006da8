"""Code of one vertex out of an optimised module: its function, its declarations, and no debug information."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from abele.codelet.cpp.early_exits import with_ends
from abele.codelet.cpp.entry import entry_name
from abele.codelet.cpp.metadata import global_name
from abele.codelet.early_exits import EndPlace

_NAME = r'@(?:"[^"]*"|[-\w$.]+)'
_NAMES = re.compile(_NAME)
_FUNCTION = re.compile(rf"^define [^\n]*?({_NAME})\([^\n]*\{{\n(.*?)^\}}$", re.M | re.S)
_DECLARED = re.compile(rf"^declare [^\n]*?({_NAME})\([^\n]*$", re.M)
_GLOBAL = re.compile(rf"^({_NAME}) = [^\n]*$", re.M)
_TYPE = re.compile(r'^%(?:"[^"]*"|[-\w$.]+) = type [^\n]*$', re.M)
_GROUP = re.compile(r"^attributes (#\d+) = [^\n]*$", re.M)
_GROUPS = re.compile(r"#\d+")
_METADATA = re.compile(r"^(!\d+) = ([^\n]*)$", re.M)
_REFERENCES = re.compile(r"!\d+")
_DEBUG = re.compile(r"^    #dbg_[^\n]*\n|, !dbg !\d+| !dbg !\d+(?= \{)|(?<=^declare) !dbg !\d+|, !srcloc !\d+", re.M)
_WORKER = re.compile(r"= (?:tail )?call [^@\n]*@abele_worker_id\(\)[^\n]*")
_RANDOM = re.compile(r"call [^@\n]*@abele_urand32\(\)")


@dataclass(frozen=True)
class VertexSource:
    """Code of one vertex class.

    Attributes:
        body: Basic blocks of its function, as text; see :mod:`~abele.codelet.cpp.entry` for the parameters.
        around: Declarations that the body refers to: types, globals, declarations, attributes, metadata.
        places: Places where it may end before its time, by their numbers.
    """

    body: str
    around: str
    places: tuple[EndPlace, ...] = ()

    @property
    def draws(self) -> bool:
        """True if it draws random numbers."""
        return "@abele.urand32" in self.body


class Module:
    """An optimised module in pieces.

    Args:
        text: Its text, debug information included.

    Attributes:
        functions: Bodies of functions by symbol, debug information included.
        places: Places where the vertex may end before its time.
    """

    def __init__(self, text: str) -> None:
        self.functions = {m[1]: m[2] for m in _FUNCTION.finditer(text)}
        self._lines = {m[1]: m[0] for m in _DECLARED.finditer(text)} | {m[1]: m[0] for m in _GLOBAL.finditer(text)}
        self.places: tuple[EndPlace, ...] = ()
        self._types = "\n".join(m[0] for m in _TYPE.finditer(text))
        self._groups = {m[1]: m[0] for m in _GROUP.finditer(text)}
        self._metadata = {m[1]: m[2] for m in _METADATA.finditer(text)}

    def entry(self, number: int) -> str:
        """Body of the function of vertex class ``number``, debug information included."""
        return self.functions[f"@{entry_name(number)}"]

    def end_calls(self, line_of: Callable[[str], str], is_known: Callable[[str], bool]) -> None:
        """Let calls that end a program end the vertex.

        Args:
            line_of: Gives ``file:line`` of a line of code.
            is_known: True for the symbol of a function that a tile has.
        """

        def stays(name: str) -> bool:  # what has to be refused is no part of what a vertex does before it ends
            return is_known(name) or name.startswith("abele") or global_name(name) in self.functions

        text, places = with_ends(self.entry(0), self.string, line_of, stays)
        self.functions[f"@{entry_name(0)}"], self.places = text, tuple(places)

    def string(self, name: str) -> str:
        """Text of a constant that is one, by the name of its global; else empty."""
        found = re.search(r'c"((?:[^"\\]|\\..)*)\\00"', self._lines.get(name, ""))
        return "" if found is None else re.sub(r"\\(..)", lambda m: chr(int(m[1], 16)), found[1])

    def code(self, number: int) -> VertexSource:
        """Code of vertex class ``number``."""
        body = _DEBUG.sub("", self.entry(number))
        # As an addition, since LLVM's text has no plain assignment.
        body = _WORKER.sub("= add i32 %worker, 0", body)
        body = _RANDOM.sub("call i32 @abele.urand32(ptr %random)", body)
        lines = self._referred(body)
        everything = "\n".join([body, *lines])
        groups = [self._groups[g] for g in dict.fromkeys(_GROUPS.findall(everything)) if g in self._groups]
        return VertexSource(
            body, "\n".join([self._types, *lines, *groups, *self._kept_metadata(everything)]), self.places
        )

    def _referred(self, body: str) -> list[str]:
        found: dict[str, str] = {}
        waiting = _NAMES.findall(body)
        # Whatever is referred to, and what that refers to in turn; each name once.
        while waiting:
            name = waiting.pop()
            if name not in found and name in self._lines:
                found[name] = _DEBUG.sub("", self._lines[name])
                waiting += _NAMES.findall(found[name])
        return list(found.values())

    def _kept_metadata(self, text: str) -> list[str]:
        found: dict[str, str] = {}
        waiting = _REFERENCES.findall(text)
        while waiting:
            name = waiting.pop()
            if name in found or name not in self._metadata:
                continue
            content = self._metadata[name]
            if content.removeprefix("distinct ").startswith("!{"):  # a list: facts of loops, with their source lines
                content = _without_places(content, self._metadata)
            found[name] = f"{name} = {content}"
            waiting += [r for r in _REFERENCES.findall(content) if r != name]  # a loop's facts name themselves first
        return list(found.values())


def _without_places(content: str, metadata: dict[str, str]) -> str:
    """A list of metadata without source lines, which loops carry along."""
    head, _, items = content.partition("!{")
    parts = [p.strip() for p in _split(items.rpartition("}")[0])]
    kept = [p for p in parts if not metadata.get(p, "").removeprefix("distinct ").startswith("!DI")]
    return f"{head}!{{{', '.join(kept)}}}"


def _split(items: str) -> list[str]:
    """Items of a list; commas in quotes do not divide."""
    return re.findall(r'(?:[^,"]|"[^"]*")+', items)
