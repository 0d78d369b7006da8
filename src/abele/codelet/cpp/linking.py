"""Modules of several files, linked into one, as a linker does: functions of one are called by the others.

Names that a file keeps to itself stay its own: functions that are ``static`` or in a namespace without a name, and
inline functions, of which C++ would take any one for all. An instance of a template that several files ask for is one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as binding

from abele.codelet.cpp.metadata import Metadata, global_name
from abele.codelet.cpp.optimise import COMDAT
from abele.codelet.cpp.reflect import VertexClass, vertex_classes
from abele.errors import CodeletLinkError, SymbolError

_INLINE = re.compile(r"^(define|@\S+ =) linkonce_odr ", re.M)
_TWICE = re.compile(r"'(?P<symbol>[^']+)': symbol multiply defined")
_REMEDY = "make it static, or put it in a namespace of each file; or load the files by calls of their own"


@dataclass(frozen=True)
class FrontEnd:
    """Result of the front end for one file, or for several.

    It keeps no module: one that outlives its context, as it may in a cycle of garbage, ends the process.

    Attributes:
        bitcode: The module, not optimised.
        text: Its text.
        signatures: Types of the functions that it has code for, by symbol.
        explicit: Those of templates that the source instantiates explicitly.
    """

    bitcode: bytes
    text: str
    signatures: dict[str, str]
    explicit: set[str]

    @classmethod
    def of(cls, module: Any, bitcode: bytes | None = None) -> FrontEnd:
        """Result of the front end in a module, whose bitcode may be known."""
        defined = [f for f in module.functions if not f.is_declaration]
        return cls(
            bytes(module.as_bitcode()) if bitcode is None else bitcode,
            str(module),
            {f.name: str(f.global_value_type) for f in defined},
            {f.name for f in defined if f.linkage.name == "weak_odr"},
        )

    def vertices(self) -> list[VertexClass]:
        """Its vertex classes.

        Raises:
            CodeletError: See :func:`~abele.codelet.cpp.reflect.vertex_classes`.
        """
        return vertex_classes(Metadata(self.text), set(self.signatures), self.explicit)


def linked(files: Sequence[tuple[str, FrontEnd]]) -> FrontEnd:
    """One module of several.

    Args:
        files: Result of the front end for each file, by its name.

    Raises:
        CodeletLinkError: Two files define the same function or variable.
        SymbolError: Two files have vertices of the same name.
    """
    # Inline functions are renamed apart by the linker once they are internal; weak ones, of explicit instances, merge.
    texts = [_INLINE.sub(r"\1 internal ", COMDAT.sub("", file.text)) for _, file in files]
    whole, number = _joined(texts)
    if isinstance(whole, str):
        raise _clash(whole, files[number][0], texts, number)
    _check_names([file for _, file in files])
    return whole


def _joined(texts: Sequence[str]) -> tuple[FrontEnd | str, int]:
    """One module of several; or the linker's message, and the number of the module that it is about."""
    context = binding.create_context()
    whole = binding.parse_assembly(texts[0], context)
    for number in range(1, len(texts)):
        try:
            whole.link_in(binding.parse_assembly(texts[number], context))
        except RuntimeError as error:
            return str(error), number
    return FrontEnd.of(whole), 0


def _clash(said: str, name: str, texts: Sequence[str], number: int) -> CodeletLinkError:
    found = _TWICE.search(said)
    symbol = found["symbol"] if found else ""
    places = [_place(symbol, texts[number]), *(_place(symbol, text) for text in texts[:number])]
    first = next((p for p in places[1:] if p), None)
    what, at = places[0] or (symbol or said.splitlines()[0], name)
    return CodeletLinkError(
        f"{what} is defined in two files",
        at=at,
        because=f"the first is at {first[1]}" if first else None,
        remedy=_REMEDY,
    )


def _place(symbol: str, text: str) -> tuple[str, str] | None:
    """Name and place of a function or variable in the source, if a module defines it."""
    name = re.escape(global_name(symbol))
    if not re.search(rf"^(?:define [^\n]*{name}\(|{name} = )", text, re.M):
        return None
    node = Metadata(text).defined(symbol)
    return (symbol, "") if node is None else (node.string("name"), node.location)


def _check_names(files: Sequence[FrontEnd]) -> None:
    defined = {symbol for file in files for symbol in file.signatures}
    first: dict[str, VertexClass] = {}
    for file in files:
        # For this question a class counts in each file that knows it, whichever has its code.
        for vertex in vertex_classes(Metadata(file.text), defined, defined):
            known = first.setdefault(vertex.name, vertex)
            if not _is_same(known, vertex):
                raise SymbolError(
                    f"two codelets are called {vertex.name!r}",
                    at=vertex.location,
                    because=f"the first is at {known.location}",
                    remedy="give one of them another name or a namespace",
                )


def _is_same(one: VertexClass, two: VertexClass) -> bool:
    """True if both are the class of one header. An instance of a template is placed where a file instantiates it."""
    templates = one.name != one.base
    return one.members == two.members and (templates or one.location == two.location)
