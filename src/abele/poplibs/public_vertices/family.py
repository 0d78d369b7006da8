"""Families of library vertices: a template's name, its parameters, and the function that makes an instance."""

from __future__ import annotations

import hashlib
import linecache
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from keyword import iskeyword
from typing import Any, Literal

import numpy as np

from abele import codelet as language
from abele.codelet import CodeletDef, Vertex, VertexFunction
from abele.codelet.fields import FieldDef
from abele.codelet.write import type_name
from abele.errors import TypeMismatchError
from abele.expr import FUNCTIONS
from abele.numerics import types, u32
from abele.poplibs.public_vertices.parameters import TemplateParameter

# Building codelet classes from text, so that one family of vertices covers every type and operation.

_BUILT: dict[str, type] = {}


def build(
    name: str,
    base: str,
    fields: Sequence[str],
    body: Sequence[str],
    cycles: Callable[..., Any] | None,
    extra: object = None,
) -> type:
    """The codelet class ``name`` with the given fields and ``compute``; one class for one text and cost.

    Args:
        name: Readable part of the class name; a digest of the text is appended.
        base: ``Vertex``, ``MultiVertex`` or ``SupervisorVertex``.
        fields: Declarations, as in ``x: Input[Vector[f32]]``.
        body: Statements of ``compute``.
        cycles: Cost formula; None to count issue slots.
        extra: Key that tells two classes of the same text apart: values that the formula depends on.
    """
    text = _class_text(base, fields, body)
    key = hashlib.sha256(f"{name}\n{text}\n{extra!r}".encode()).hexdigest()[:12]
    if key not in _BUILT:
        _BUILT[key] = _compiled(f"{name}_{key}", text, cycles)
    return _BUILT[key]


def _class_text(base: str, fields: Sequence[str], body: Sequence[str]) -> str:
    arguments = "self, worker_id" if base == "MultiVertex" else "self"
    lines = ["@codelet", f"class CLASS({base}):", *(f"    {f}" for f in fields), ""]
    lines += [f"    def compute({arguments}):", *(f"        {line}" for line in body)]
    return "\n".join(lines) + "\n"


def _compiled(name: str, text: str, cycles: Callable[..., Any] | None) -> type:
    source = text.replace("CLASS", name)
    if cycles is not None:
        source += "\n    cycles = staticmethod(FORMULA)\n"
    file = f"<poplibs {name}>"
    # So that tracebacks, and the reader of codelets, find the lines.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"__name__": __name__, "FORMULA": cycles, "INF": math.inf, "NAN": math.nan} | _names()
    exec(compile(source, file, "exec", dont_inherit=True), scope)
    built: type = scope[name]
    return built


@cache
def _names() -> dict[str, Any]:
    kinds = ("codelet", "Vertex", "MultiVertex", "SupervisorVertex")
    words = ("Input", "Output", "InOut", "Vector", "VectorList", "SPAN", "ONE_PTR", "COMPACT_PTR")
    functions = {name: VertexFunction(name) for name in (*FUNCTIONS, "random_u32")}
    return {w: getattr(language, w) for w in (*kinds, *words)} | functions | {type_name(t): t for t in types.ALL}


Certainty = Literal["sure", "likely", "guessed"]
"""Certainty of fields: as in PopLibs; most likely as there; the meaning is right but names may differ."""
STREAM, DRAWS = "stream", "draws"
"""State of a vertex that draws random numbers: which numbers are its own, and how often it has run."""


@dataclass(frozen=True)
class Instance:
    """An instance of a template, as text of the vertex language.

    Attributes:
        kind: ``Vertex``, ``MultiVertex`` or ``SupervisorVertex``.
        fields: Declarations. A field that Python reserves the name of has ``_`` after it.
        body: Statements of ``compute``.
        cycles: Cost formula; None to count issue slots.
        draws: True if it draws random numbers by ``self.stream`` and ``self.draws``, which are added.
        defaults: Initial values of state that need not be set, by name.
    """

    kind: str
    fields: tuple[str, ...]
    body: tuple[str, ...]
    cycles: Callable[..., Any] | None = None
    draws: bool = False
    defaults: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """A vertex template.

    Attributes:
        name: Its name without the library's namespace.
        parameters: Its template parameters.
        make: Gives an instance for the arguments; raises :class:`TypeMismatchError` for those that do not go together.
        certainty: Certainty of its fields.
        meaning: Its computation, in a few words.
        others: Further lists of parameters, as other versions of the library have.
        example: Arguments of the instance that the documentation shows; by default each parameter's own.
    """

    name: str
    parameters: tuple[TemplateParameter, ...]
    make: Callable[..., Instance]
    certainty: Certainty
    meaning: str
    others: tuple[tuple[TemplateParameter, ...], ...] = ()
    example: tuple[str, ...] = ()

    def called(self, *names: str) -> list[Family]:
        """The family under further names."""
        return [self, *(replace(self, name=name) for name in names)]


def definition(name: str, instance: Any) -> CodeletDef:
    """The codelet called ``name``."""
    if isinstance(instance, type) and issubclass(instance, Vertex):
        written: CodeletDef = instance.codelet
        defaults = getattr(instance, "defaults", {})
        return replace(written, name=name, fields=tuple(_public(f, defaults) for f in written.fields))
    fields: Sequence[str] = instance.fields
    if instance.draws:
        fields = [*fields, f"{STREAM}: u32", f"{DRAWS}: u32"]
    readable = "".join(c for c in name.partition("<")[0].replace("::", "_") if c.isalnum() or c == "_")
    made: Any = build(readable, instance.kind, fields, instance.body, instance.cycles, extra=name)
    found: CodeletDef = made.codelet
    return replace(found, name=name, fields=tuple(_public(f, instance.defaults) for f in found.fields))


def _public(declared: FieldDef, defaults: Mapping[str, float]) -> FieldDef:
    """Field under its public name, with the initial value of its state."""
    if declared.name in defaults:
        start = defaults[declared.name]
        return replace(declared, initial=lambda num: np.full(num, start, declared.type.np))
    if declared.name == STREAM:
        return replace(declared, initial=_VertexRandom())
    if declared.name == DRAWS:
        return replace(declared, initial=lambda num: np.zeros(num, np.uint32))
    bare = declared.name.removesuffix("_")
    return replace(declared, name=bare) if iskeyword(bare) else declared


class _VertexRandom:
    """Random numbers of each vertex's own: every vertex of a codelet gets the next number."""

    def __init__(self) -> None:
        self._given = 0

    def __call__(self, num: int) -> Any:
        first = self._given
        self._given += num
        return np.arange(first, first + num, dtype=u32.np)


def refuse(what: str, remedy: str | None = None) -> TypeMismatchError:
    """The error of template arguments that do not go together."""
    return TypeMismatchError(what, remedy=remedy)
