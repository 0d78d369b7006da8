"""Families of library vertices: a template's name, its parameters, and the function that makes an instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from keyword import iskeyword
from typing import Any, Literal

import numpy as np

from abele.codelet import CodeletDef, Vertex
from abele.codelet.fields import FieldDef
from abele.errors import TypeMismatchError
from abele.numerics import u32
from abele.poplibs.public_vertices.generated import build
from abele.poplibs.public_vertices.parameters import TemplateParameter

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
