"""From C++ files to codelets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np

from abele.codelet.constraints import Constraint, read_constraints
from abele.codelet.cpp.compiled import CppVertex
from abele.codelet.cpp.diagnostics import HARDWARE_REMEDY
from abele.codelet.cpp.extract import Code
from abele.codelet.cpp.reflect import Member, VertexClass
from abele.codelet.cpp.unit import Unit
from abele.codelet.fields import FieldDef
from abele.codelet.layouts import DELTAN, DELTANELEMENTS, SPAN, VECTOR_LAYOUTS, Layout
from abele.codelet.vertex import NUM_WORKERS, CodeletDef
from abele.errors import CodeletError, CodeletLoadError, SymbolError
from abele.llvm.random import GOLDEN
from abele.numerics import u32

TEXT_NAME = "codelet.cpp"
"""Stands for the file of source that was given as text."""
DRAWN = "random numbers drawn"
"""Name of the state that every vertex has which draws random numbers: how often it has."""
_ASSEMBLY = (".s", ".S", ".asm")
_OBJECTS = (".gp", ".o", ".a", ".so", ".bc", ".ll")
_HEAD = re.compile(r"\b(?:class|struct)\s+((?:\[\[[^\]]*(?:\][^\]][^\]]*)*\]\]\s*)+)([A-Za-z_]\w*)")
_CONSTRAINT = re.compile(r"poplar::constraint\s*\(([^\]]*)\)")
_STRING = re.compile(r'"([^"]*)"')


def load_codelets(
    paths_or_text: str | Path | Iterable[str | Path], flags: str | Sequence[str] = "", *, include: Iterable[Any] = ()
) -> dict[str, CodeletDef]:
    """The codelets of C++ files.

    Args:
        paths_or_text: A file, source text, or several of them.
        flags: Compiler flags, as text or as a list. Those for a target or an optimisation level are ignored.
        include: Directories with headers. Those beside a file are found without.

    Returns:
        Codelets by name: ``ns::Scale<float,true>``. Where template arguments have their default value, the name
        without them is there too.

    Raises:
        CodeletLoadError: A file that cannot be read or holds no codelet, a missing header, no C++ compiler.
        CodeletParseError: Source that is not valid; ``at`` names the line.
        CodeletLinkError: A call of what no library of the tile has.
        SymbolError: A vertex without ``compute``, or two of one name.
        CodeletError: A field or a piece of code that a vertex cannot have, or that the hardware alone can run.
    """
    given = [paths_or_text] if isinstance(paths_or_text, (str, Path)) else list(paths_or_text)
    words = tuple(shlex.split(flags) if isinstance(flags, str) else flags)
    folders = tuple(str(Path(f).resolve()) for f in include)
    found: dict[str, CodeletDef] = {}
    for one in given:
        unit = Unit(*_source(one), words, folders)
        codelets = _codelets(unit)
        if not codelets:
            raise CodeletLoadError(
                f"{unit.name} holds no codelets",
                remedy="derive classes from poplar::Vertex; instantiate templates: template class X<float>;",
            )
        for name, definition in codelets.items():
            _add(found, name, definition)
    return found


def _add(found: dict[str, CodeletDef], name: str, definition: CodeletDef) -> None:
    first = found.setdefault(name, definition)
    if first is not definition and first.location != definition.location:
        raise SymbolError(
            f"two codelets are called {name!r}",
            at=definition.location,
            because=f"the first is at {first.location}",
            remedy="give one of them another name or a namespace",
        )


def _source(given: str | Path) -> tuple[str, str]:
    """Name and text of what was given."""
    if isinstance(given, str) and ("\n" in given or "{" in given):
        return TEXT_NAME, given
    path = Path(given)
    if path.suffix in _ASSEMBLY:
        raise CodeletError(f"assembly in {path.name} runs on the hardware only", at=f"{path}:1", remedy=HARDWARE_REMEDY)
    if path.suffix in _OBJECTS:
        raise CodeletLoadError(
            f"{path.name} is compiled code", because="it is made for another machine", remedy="give its C++ source"
        )
    try:
        return str(path.resolve()), path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CodeletLoadError(f"the codelet file {str(path)!r} cannot be read", because=reason) from error


def _codelets(unit: Unit) -> dict[str, CodeletDef]:
    constraints = _constraints(unit.text)
    found: dict[str, CodeletDef] = {}
    for number, (vertex, code) in enumerate(unit.vertices()):
        definition = _definition(unit, number, vertex, code, constraints)
        _add(found, vertex.name, definition)
        found.setdefault(vertex.short, definition)
    return found


def _definition(
    unit: Unit, number: int, vertex: VertexClass, code: Code, constraints: dict[str, list[str]]
) -> CodeletDef:
    fields = tuple(map(_field, vertex.members))
    if code.draws:
        fields = (*fields, FieldDef(DRAWN, "state", u32, 0, initial=_Streams()))
    texts = constraints.get(vertex.base.rpartition("::")[2], [])
    stated: tuple[Constraint, ...] = read_constraints(texts, vertex.name, fields, vertex.location)
    return CodeletDef(
        name=vertex.name,
        kind=vertex.kind,
        fields=fields,
        file=vertex.file,
        line=vertex.line,
        formula=None,
        compute=cast(FunctionType, _not_python),
        attributes={"num_workers": NUM_WORKERS},
        constraints=stated,
        language="cpp",
        source=CppVertex(vertex, number, code, unit),
    )


class _Streams:
    """Where the random numbers of each group of vertices begin: far from those of the groups before."""

    def __init__(self) -> None:
        self._groups = 0

    def __call__(self, num: int) -> Any:
        start = self._groups * GOLDEN & 0xFFFFFFFF
        self._groups += 1
        return np.full(num, start, dtype=np.uint32)


def _not_python(*_: Any) -> None:
    raise CodeletError("a C++ codelet has no Python code", remedy="run it compiled")


def _field(member: Member) -> FieldDef:
    rank = {"scalar": 0, "rows": 2}.get(member.shape, 1)
    alignment = member.alignment if member.alignment > member.element.bytes else 0
    layouts = tuple(map(_layout, member.layouts))
    if member.shape == "rows" and len(layouts) == 1:
        layouts = (*layouts, SPAN)
    scattered = member.shape == "gather"
    return FieldDef(
        member.name, member.direction, member.element, rank, layouts, alignment, member.interleaved, scattered
    )


def _layout(name: str) -> Layout:
    if name.startswith("VectorList "):
        return DELTANELEMENTS if "ELEMENTS" in name else DELTAN
    return VECTOR_LAYOUTS.get(name, SPAN)


def _constraints(text: str) -> dict[str, list[str]]:
    """What ``[[poplar::constraint("…")]]`` says of each class, by its name."""
    found: dict[str, list[str]] = {}
    for head in _HEAD.finditer(text):
        for attribute in _CONSTRAINT.findall(head[1]):
            # rows are meant by two stars, what they hold by one: both lie in the same memory
            found.setdefault(head[2], []).extend(s.replace("**", "*") for s in _STRING.findall(attribute))
    return found
