"""Vertices of one library by name, made on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

from abele.codelet import CodeletDef
from abele.errors import AbeleError, UnknownVertexTypeError, nearest
from abele.graph.debug import caller
from abele.poplibs.public_vertices.family import STREAM, Family, definition
from abele.poplibs.public_vertices.parameters import REQUIRED, Argument, NotAllowedError, TemplateParameter

# Names of template instances, taken apart: ``popops::Fill<unsigned int>`` is ``popops::Fill`` of one argument.


@dataclass(frozen=True)
class VertexName:
    """The name of a vertex.

    Attributes:
        base: Name of the class or template, with its namespace.
        arguments: Template arguments as text, without spaces that mean nothing.
    """

    base: str
    arguments: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """The outermost namespace."""
        return self.base.partition("::")[0]

    @property
    def short(self) -> str:
        """The base without the outermost namespace."""
        return self.base.partition("::")[2]


def taken_apart(name: str) -> VertexName:
    """Base and arguments of a vertex name whose needless spaces are gone.

    >>> taken_apart("popops::Reduce<popops::ReduceAdd,float,false>").arguments
    ('popops::ReduceAdd', 'float', 'false')
    """
    base, bracket, inside = name.partition("<")
    if not bracket or not inside.endswith(">"):
        return VertexName(name)
    return VertexName(base, tuple(_between_commas(inside[:-1])))


def _between_commas(text: str) -> list[str]:
    """Pieces of ``text`` between the commas that stand in no brackets of their own."""
    pieces, depth, begin = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            pieces.append(text[begin:at])
            begin = at + 1
    return [*pieces, text[begin:]] if text else []


class LibraryVertices:
    """The vertices of one library.

    Args:
        namespace: Its namespace, which every name of a vertex begins with.
        families: Its templates; asked for when the first vertex is.
        withheld: Why vertices that the library has are not here, by name without the namespace.
    """

    def __init__(
        self, namespace: str, families: Callable[[], Iterable[Family]], withheld: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self.namespace = namespace
        self._make = families
        self._why = withheld
        self._made: dict[str, CodeletDef] = {}

    @cached_property
    def families(self) -> dict[str, Family]:
        """Templates by name without the namespace."""
        return {family.name: family for family in self._make()}

    @cached_property
    def withheld(self) -> Mapping[str, str]:
        """Why vertices that the library has are not here, by name without the namespace."""
        return self._why()

    def __iter__(self) -> Iterator[str]:
        return (f"{self.namespace}::{name}" for name in self.families)

    def find(self, name: str) -> CodeletDef | None:
        """The codelet called ``name``; None where the name is not of this library's namespace.

        Codelets that draw random numbers are made anew each time, so that the numbers of a graph do not depend on
        graphs before it.

        Raises:
            UnknownVertexTypeError: The library has no such vertex, or not with these arguments.
        """
        if not name.startswith(f"{self.namespace}::"):
            return None
        if name in self._made:
            return self._made[name]
        made = self._definition(name, taken_apart(name))
        if not any(f.name == STREAM for f in made.fields):
            self._made[name] = made
        return made

    def _definition(self, name: str, parts: VertexName) -> CodeletDef:
        family = self.families.get(parts.short)
        if family is None:
            raise self._unknown(name, parts)
        arguments = _arguments(name, family, parts)
        try:
            return definition(name, family.make(*arguments))
        except AbeleError as error:
            raise _problem(name, error.message, error.remedy) from error

    def _unknown(self, name: str, parts: VertexName) -> UnknownVertexTypeError:
        reason = self.withheld.get(parts.short)
        if reason:
            return _problem(name, reason, f"there is {self._similar(parts.short)}")
        return _problem(name, f"{self.namespace} has no vertex {parts.short}", self._similar(parts.short))

    def _similar(self, short: str) -> str:
        """The names that are most like one, in words."""
        same = [n for n in self.families if n.lower().startswith(short.lower()[:8]) or short.startswith(n)]
        close = nearest(short, self.families)
        names = dict.fromkeys([*([close] if close else []), *same])
        shown = [f"{self.namespace}::{n}" for n in (names or self.families)][:6]
        return ", ".join(shown)


def _arguments(name: str, family: Family, parts: VertexName) -> list[Argument]:
    """The template arguments of a name, by the first list of parameters that they fit.

    Raises:
        UnknownVertexTypeError: They fit none; the error is that of the first list of their number.
    """
    first: AbeleError | None = None
    for parameters in (family.parameters, *family.others):
        try:
            return _read(name, parameters, parts)
        except UnknownVertexTypeError as error:
            fits = _least(parameters) <= len(parts.arguments) <= len(parameters)
            first = error if first is None or (fits and "template arguments" in str(first)) else first
    assert first is not None
    raise first


def _least(parameters: tuple[TemplateParameter, ...]) -> int:
    return sum(p.default is REQUIRED for p in parameters)


def _read(name: str, parameters: tuple[TemplateParameter, ...], parts: VertexName) -> list[Argument]:
    given, most, least = parts.arguments, len(parameters), _least(parameters)
    if not least <= len(given) <= most:
        wants = str(most) if least == most else f"{least} to {most}"
        form = f"{parts.base}<{', '.join(p.name for p in parameters)}>"
        raise _problem(name, f"{parts.base} takes {wants} template arguments, not {len(given)}", form)
    read = [_argument(name, p, text) for p, text in zip(parameters, given, strict=False)]
    return [*read, *(p.default for p in parameters[len(given) :])]


def _argument(name: str, parameter: TemplateParameter, text: str) -> Argument:
    try:
        return parameter.read(text)
    except NotAllowedError:
        raise _problem(
            name, f"its argument {parameter.name} is {text!r}", f"{parameter.name} takes {parameter.takes}"
        ) from None


def _problem(name: str, because: str, remedy: str | None) -> UnknownVertexTypeError:
    file, line = caller()
    return UnknownVertexTypeError(
        f"unknown vertex type {name!r}", at=f"{file}:{line}" if file else None, because=because, remedy=remedy
    )


def library(namespace: str) -> LibraryVertices:
    """The vertices of a library: ``popops``, ``poplin``, ``popnn`` or ``poprand``. Nothing is made or imported yet."""
    if namespace not in _LIBRARIES:
        module = f"abele.poplibs.public_vertices.{namespace}"
        _LIBRARIES[namespace] = LibraryVertices(
            namespace, lambda: import_module(module).families(), lambda: import_module(module).WITHHELD
        )
    return _LIBRARIES[namespace]


_LIBRARIES: dict[str, LibraryVertices] = {}
