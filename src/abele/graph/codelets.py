"""The codelets of a graph by name, so that vertices can be added by ``"Name<float>"``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from abele.codelet.names import normalised
from abele.errors import CodeletError, CodeletLoadError, SymbolError, UnknownVertexTypeError, nearest
from abele.graph.debug import caller
from abele.words import counted

if TYPE_CHECKING:
    from abele.codelet import CodeletDef

LIBRARIES = ("popops", "poplin", "popnn", "poprand")
"""Namespaces of the vertices that libraries make known by ``addCodelets``."""


class CodeletSource(Protocol):
    """Codelets that are made on first use of their names, such as those of a library."""

    def find(self, name: str) -> CodeletDef | None:
        """The codelet called ``name``, needless spaces gone; None where the name is none of the source's own."""


@dataclass(frozen=True)
class _Later:
    """Codelet of a C++ file, which is made on first use.

    Attributes:
        codelets: Codelets of its file, which makes it.
        name: Its name there.
        location: Source line of its declaration.
    """

    codelets: Mapping[str, CodeletDef]
    name: str
    location: str


class Codelets:
    """Codelets by name, whitespace aside."""

    def __init__(self) -> None:
        self._known: dict[str, CodeletDef | _Later] = {}
        self._sources: list[CodeletSource] = []

    def add_source(self, source: CodeletSource) -> None:
        """Ask ``source`` for names that are not known otherwise; once, however often it is added."""
        if source not in self._sources:
            self._sources.append(source)

    def add(self, codelets: Any, flags: str = "") -> None:
        """Make codelets known.

        Args:
            codelets: A class decorated with ``@codelet`` or its definition; a module or list of such; a mapping from
                names to them, for variants such as ``"Scale<float>"``; the path of a C++ file, its source as text or
                as an open file, or a list of these, which are linked.
            flags: Compiler flags for C++ files.

        Raises:
            SymbolError: Another codelet has the name already.
            CodeletLoadError: There is no codelet in what was given.
        """
        for name, definition in _found(codelets, flags):
            self._add(normalised(name), definition)

    def _add(self, name: str, definition: CodeletDef | _Later) -> None:
        first = self._known.setdefault(name, definition)
        if first is not definition and first.location != definition.location:
            raise SymbolError(
                f"two codelets are called {name!r}",
                at=definition.location,
                because=f"the first is at {first.location}",
                remedy="give one of them another name or a namespace",
            )

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._find(normalised(name)) is not None
        except (UnknownVertexTypeError, CodeletError):
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, name: str) -> CodeletDef:
        found = self._find(normalised(name))
        if found is None:
            raise self._unknown(name)
        return found

    def _find(self, name: str) -> CodeletDef | None:
        found = self._known.get(name)
        if isinstance(found, _Later):
            found = self._known[name] = found.codelets[found.name]
        for source in self._sources if found is None else ():
            found = source.find(name)
            if found is not None:
                self._known[name] = found
                return found
        return found

    def _unknown(self, name: str) -> UnknownVertexTypeError:
        file, line = caller()
        short, close = normalised(name), nearest(normalised(name), self._known)
        variants = [k for k in self._known if k.partition("<")[0] == short.partition("<")[0]]
        library = short.partition("::")[0]
        if library in LIBRARIES and not variants:
            remedy = f"{library}.addCodelets(graph) makes the vertices of {library} known"
        elif variants:
            remedy = "there is " + ", ".join(variants[:8])
        elif close:
            remedy = f"did you mean {close!r}?"
        else:
            remedy = "make it known with graph.addCodelets(…)"
        return UnknownVertexTypeError(
            f"unknown vertex type {name!r}",
            at=f"{file}:{line}" if file else None,
            because=f"the graph knows {counted(len(self._known), 'codelet')}"
            if self._known
            else "the graph knows no codelets",
            remedy=remedy,
        )


def _found(given: Any, flags: str) -> Iterable[tuple[str, CodeletDef | _Later]]:
    if hasattr(given, "names") and hasattr(given, "location"):
        return _later(given)
    if isinstance(given, Mapping):
        return [(str(name), _definition(item)) for name, item in given.items()]
    if _is_source(given):
        return _from_files([given], flags)
    if isinstance(given, ModuleType):
        inside = [v for v in vars(given).values() if isinstance(v, type) and hasattr(vars(v).get("codelet"), "fields")]
        if not inside:
            raise CodeletLoadError(f"module {given.__name__} holds no codelets", remedy="decorate them with @codelet")
        return [(_definition(c).name, _definition(c)) for c in inside]
    if isinstance(given, (list, tuple, set)):
        sources = [item for item in given if _is_source(item)]
        classes = [pair for item in given if not _is_source(item) for pair in _found(item, flags)]
        return [*_from_files(sources, flags), *classes] if sources else classes
    definition = _definition(given)
    return [(definition.name, definition)]


def _is_source(given: Any) -> bool:
    return isinstance(given, (str, Path)) or hasattr(given, "read")


def _definition(given: Any) -> CodeletDef:
    from abele.graph.compute_set import definition_of

    return definition_of(given)


def _from_files(sources: list[Any], flags: str) -> Iterable[tuple[str, CodeletDef | _Later]]:
    texts = [_text(given) if hasattr(given, "read") else given for given in sources]
    return _later(import_module("abele.codelet.cpp").load_codelets(texts, flags))


def _later(codelets: Any) -> Iterable[tuple[str, _Later]]:
    return [(name, _Later(codelets, name, codelets.location(name))) for name in codelets.names]


def _text(given: Any) -> str:
    """Rest of an open file, as source."""
    content = given.read()
    text = content.decode() if isinstance(content, bytes) else str(content)
    return text if "\n" in text else f"{text}\n"
