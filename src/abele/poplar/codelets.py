"""Codelets in Poplar's words: kinds of files, limits of fields, what a field is connected to."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from abele import graph as g
from abele.codelet import CodeletDef, FieldDef
from abele.errors import CodeletLoadError, FieldOverflowError, UnknownFieldError, nearest
from abele.words import counted

SPAN_MAX = 2**32 - 1
"""Longest vector where nothing limits it: sizes are 32-bit numbers."""
_NUMBERS = (bool, int, float, np.generic)

Estimator = Callable[[Any, Any], Any]
"""``estimator(introspector, target)``: what one vertex costs."""


class CodeletFileType(Enum):
    """Kinds of codelet files that Poplar knows; only sources can be compiled here."""

    Auto = "auto"
    Cpp = "cpp"
    PreprocessedCpp = "preprocessed cpp"
    PreprocessedAsm = "assembly with macros"
    Asm = "assembly"
    IrSource = "ir"
    Object = "object"


SOURCES = (CodeletFileType.Auto, CodeletFileType.Cpp, CodeletFileType.PreprocessedCpp)


def compiler_flags(codelets: Any, *kind_and_flags: Any) -> Any:
    """The compiler flags among what follows the codelets, in either order: a :class:`CodeletFileType`, and flags.

    Raises:
        CodeletLoadError: The files are of a kind that is no source.
    """
    kind = next((item for item in kind_and_flags if isinstance(item, CodeletFileType)), CodeletFileType.Auto)
    if kind not in SOURCES:
        what = codelets if isinstance(codelets, (str, Path)) and "\n" not in str(codelets) else "what was given"
        raise CodeletLoadError(
            f"{what} would be read as {kind.value} of the IPU's own instructions", remedy="give the C++ source"
        )
    return next((item for item in kind_and_flags if item and not isinstance(item, CodeletFileType)), "")


def largest_dimension(codelet: CodeletDef, name: str, dim: int) -> int:
    """Largest size that a dimension of a field may have.

    Raises:
        UnknownFieldError: The codelet does not declare the field.
        FieldOverflowError: The field has no such dimension.
    """
    declared = declared_field(codelet, name)
    if not 0 <= dim < declared.rank:
        raise FieldOverflowError(f"field {codelet.name}.{name} has {counted(declared.rank, 'dimension')}, no {dim}")
    limit = declared.layout(dim).max_size
    return SPAN_MAX if limit is None else limit


def largest_value(codelet: CodeletDef, name: str) -> int:
    """Largest whole number that a field holds.

    Raises:
        UnknownFieldError: The codelet does not declare the field.
    """
    declared = declared_field(codelet, name)
    return 1 if declared.type.kind == "bool" else int(np.iinfo(declared.type.np).max)


def as_edge(graph: g.Graph, field: g.FieldRef, value: Any) -> Any:
    """Value to connect a field to: a number, or a list of them, for an edge becomes a constant on the vertex's tile.

    Raises:
        UnknownFieldError: The codelet does not declare the field.
    """
    vertex = field.vertex
    declared = declared_field(vertex.codelet, field.name)
    if not declared.is_edge or isinstance(value, g.Tensor):
        return value
    plain = isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], _NUMBERS)
    if not (isinstance(value, (*_NUMBERS, np.ndarray)) or plain):
        return value
    constant = graph.constant(declared.type, None, value, f"{vertex.codelet.name}.{field.name}")
    return constant if vertex.tile is None else constant.map(vertex.tile)


def declared_field(codelet: CodeletDef, name: str) -> FieldDef:
    """A field by its name.

    Raises:
        UnknownFieldError: The codelet does not declare it.
    """
    for declared in codelet.fields:
        if declared.name == name:
            return declared
    names = [f.name for f in codelet.fields]
    close = nearest(name, names)
    raise UnknownFieldError(
        f"vertex {codelet.name} has no field {name!r}",
        because=f"{codelet.name} is declared at {codelet.file}:{codelet.line}",
        remedy=f"did you mean {close!r}?" if close else "its fields are " + ", ".join(names),
    )
