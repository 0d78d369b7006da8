"""From C++ files to codelets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import numpy as np

from abele.codelet.cpp.braces import Region, code_alone, regions, strings
from abele.codelet.cpp.compiled import CppVertex
from abele.codelet.cpp.extract import VertexSource
from abele.codelet.cpp.naming import without_arguments
from abele.codelet.cpp.reflect import METADATA_OF, Member
from abele.codelet.cpp.toolchain import HARDWARE_REMEDY
from abele.codelet.cpp.unit import SourceFile, Unit
from abele.codelet.fields import FieldDef
from abele.codelet.layouts import DELTAN, DELTANELEMENTS, SPAN, VECTOR_LAYOUTS, FieldLayout
from abele.codelet.names import normalised
from abele.codelet.vertex import NUM_WORKERS, CodeletDef, Constraint, read_constraints
from abele.errors import AbeleError, CodeletError, CodeletLoadError, SymbolError
from abele.llvm.random import GOLDEN
from abele.numerics import u32

# Constraints of vertex classes, ``[[poplar::constraint("…")]]``, read from their source: the compiler drops them.
#
# Debug information has no attributes of other vendors, and clang takes those that it would keep (``btf_decl_tag``) in
# C alone. So heads of classes are read as they are written; constraints inside macros are not seen.

_ATTRIBUTE = re.compile(r"\[\[(.*?)\]\]", re.S)
_CONSTRAINT = re.compile(r"\bconstraint\s*\(")
_NAMED = re.compile(r"(?:typedef\s+)?(?:namespace|class|struct|union)\s+(?P<name>[^:{]+(?:::[^:{]+)*)")


def stated_constraints(text: str) -> dict[str, list[str]]:
    """Constraints that a source states, by the name of the class without template arguments: ``ns::Outer::X``.

    Args:
        text: A source, or a header.
    """
    if not _CONSTRAINT.search(text):
        return {}
    code, found = code_alone(text), dict[str, list[str]]()
    scopes = [r for r in regions(text) if r.kind in ("scope", "class")]
    for region in scopes:
        texts = [s for begin, end in _constraints(code, region) for s in strings(text, begin, end)]
        if texts:
            # Rows are meant by two stars, what they hold by one: both lie in the same memory.
            found.setdefault(_name(region, scopes), []).extend(s.replace("**", "*") for s in texts)
    return found


def _constraints(code: str, region: Region) -> Iterator[tuple[int, int]]:
    """Spans of the attributes that state constraints in the head of a class."""
    if region.kind != "class":
        return
    for attribute in _ATTRIBUTE.finditer(code, region.start, region.begin):
        if "poplar" in attribute[1] and _CONSTRAINT.search(attribute[1]):
            yield attribute.span()


def _name(region: Region, scopes: list[Region]) -> str:
    """Name of a class with its scopes; namespaces without a name, and inline ones, are not written."""
    around = sorted((s for s in scopes if s.begin <= region.begin and region.end <= s.end), key=lambda s: s.begin)
    names = [found["name"] for s in around if not s.head.startswith("inline") and (found := _NAMED.match(s.head))]
    return "::".join(re.sub(r"<.*|\bfinal\b", "", name).split()[-1] for name in names)


TEXT_NAME = "codelet.cpp"
"""Name of source that was given as text."""
DRAWN = "random numbers drawn"
"""Name of the state that counts the random numbers drawn by a vertex."""
_ASSEMBLY = (".s", ".S", ".asm")
_OBJECTS = (".gp", ".o", ".a", ".so", ".bc", ".ll")


class CppCodelets(Mapping[str, CodeletDef]):
    """Codelets of C++ files, by name. Each is optimised and checked on first use.

    Args:
        unit: The files.

    Attributes:
        unit: The files.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._numbers: dict[str, int] = {}
        self._made: dict[int, CodeletDef | AbeleError] = {}
        for number, vertex in enumerate(unit.vertices):
            self._add(normalised(vertex.name), number)
        for number, vertex in enumerate(unit.vertices):
            for name in vertex.aliases:
                self._numbers.setdefault(normalised(name), number)

    def _add(self, name: str, number: int) -> None:
        first = self._numbers.setdefault(name, number)
        if first != number:
            vertices = self.unit.vertices
            raise SymbolError(
                f"two codelets are called {name!r}",
                at=vertices[number].location,
                because=f"the first is at {vertices[first].location}",
                remedy="give one of them another name or a namespace",
            )

    def __getitem__(self, name: str) -> CodeletDef:
        found = self._make(self._numbers[normalised(name)])
        if isinstance(found, AbeleError):
            raise found
        return found

    def __contains__(self, name: object) -> bool:
        """True if there is a codelet of this name that is not refused."""
        number = self._numbers.get(normalised(name)) if isinstance(name, str) else None
        return number is not None and not isinstance(self._make(number), AbeleError)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._numbers if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, also of refused ones: nothing is made for them."""
        return tuple(self._numbers)

    def location(self, name: str) -> str:
        """``file:line`` of a class."""
        return self.unit.vertices[self._numbers[normalised(name)]].location

    @property
    def refused(self) -> dict[str, AbeleError]:
        """Refused classes, and the reasons."""
        made = {name: self._make(number) for name, number in self._numbers.items()}
        return {name: error for name, error in made.items() if isinstance(error, AbeleError)}

    def check(self) -> None:
        """Refuse files without a usable class.

        Raises:
            CodeletError: That of the first class.
        """
        if not any(name in self for name in self._numbers):
            for error in self.refused.values():
                raise error
            raise CodeletLoadError(
                f"{self.unit.name} holds no codelets",
                remedy="derive classes from poplar::Vertex; instantiate templates: template class X<float>;",
            )

    def _make(self, number: int) -> CodeletDef | AbeleError:
        if number not in self._made:
            try:
                self._made[number] = _definition(self.unit, number, self.unit.code(number), self._constraints)
            except AbeleError as error:
                self._made[number] = error
        return self._made[number]

    @cached_property
    def _constraints(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for text in self.unit.texts():
            for name, texts in stated_constraints(text).items():
                found.setdefault(name, []).extend(texts)
        return found


def load_codelets(
    paths_or_text: str | Path | Iterable[str | Path], flags: str | Sequence[str] = "", *, include: Iterable[Any] = ()
) -> CppCodelets:
    """The codelets of C++ files.

    Args:
        paths_or_text: A file, source text, or several of them, which are linked: one may call what another defines.
        flags: Compiler flags, as text or as a list. Those for a target or an optimisation level are ignored.
        include: Directories with headers. Those beside a file are found without.

    Returns:
        Codelets by name: ``ns::Scale<float,true>``; needless spaces, suffixes of numbers and template arguments that
        have their default values may be there or not. A class that cannot be had raises its error when it is asked for.

    Raises:
        CodeletLoadError: A file that cannot be read, files that hold no codelet, a missing header, no C++ compiler.
        CodeletParseError: Source that is not valid; ``at`` names the line.
        CodeletLinkError: A call of what no library of the tile has; a function that two files define.
        SymbolError: A vertex without ``compute``, or two of one name.
        CodeletError: No class can be had: fields or code that a vertex cannot have, or that the hardware alone can run.
    """
    given = [paths_or_text] if isinstance(paths_or_text, (str, Path)) else list(paths_or_text)
    words = tuple(shlex.split(flags) if isinstance(flags, str) else flags)
    folders = tuple(str(Path(f).resolve()) for f in include)
    sources = dict.fromkeys(map(_source, given))
    found = CppCodelets(Unit(tuple(_named_apart(sources)), words, folders))
    found.check()
    return found


def _named_apart(sources: Iterable[SourceFile]) -> Iterator[SourceFile]:
    """Sources of which no two have one name, as those given as text would."""
    seen: dict[str, int] = {}
    for source in sources:
        number = seen[source.name] = seen.get(source.name, 0) + 1
        stem, dot, suffix = source.name.rpartition(".")
        yield source if number == 1 else SourceFile(f"{stem}{number}{dot}{suffix}", source.text)


def _source(given: str | Path) -> SourceFile:
    """Name and text of a source."""
    if isinstance(given, str) and ("\n" in given or "{" in given):
        return SourceFile(TEXT_NAME, given.removeprefix("\ufeff"))
    path = Path(given)
    if path.suffix in _ASSEMBLY:
        raise CodeletError(f"assembly in {path.name} runs on the hardware only", at=f"{path}:1", remedy=HARDWARE_REMEDY)
    if path.suffix in _OBJECTS:
        raise CodeletLoadError(
            f"{path.name} is compiled code", because="it is made for another machine", remedy="give its C++ source"
        )
    try:
        return SourceFile(str(path.resolve()), path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CodeletLoadError(f"the codelet file {str(path)!r} cannot be read", because=reason) from error


def _definition(unit: Unit, number: int, code: VertexSource, constraints: dict[str, list[str]]) -> CodeletDef:
    vertex = unit.vertices[number]
    fields = tuple(map(_field, vertex.members))
    if code.draws:
        fields = (*fields, FieldDef(DRAWN, "state", u32, 0, initial=_StreamStarts()))
    texts = constraints.get(without_arguments(vertex.base), [])
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


class _StreamStarts:
    """Starts of the random numbers of each group of vertices: far from those of the groups before."""

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
    of = member.name.removeprefix(METADATA_OF) if member.name.startswith(METADATA_OF) else ""
    return FieldDef(
        name=member.name,
        direction=member.direction,
        type=member.element,
        rank=rank,
        layouts=layouts,
        min_align=alignment,
        interleaved=member.interleaved,
        is_scattered=scattered,
        initial=_no_metadata if of else None,
        metadata_of=of,
    )


def _no_metadata(num: int) -> Any:
    """Placeholder of metadata until the field is connected."""
    return np.zeros(num, dtype=np.uint8)


def _layout(name: str) -> FieldLayout:
    if name.startswith("VectorList "):
        return DELTANELEMENTS if "ELEMENTS" in name else DELTAN
    return VECTOR_LAYOUTS.get(name, SPAN)
