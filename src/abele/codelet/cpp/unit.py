"""C++ files that belong together: compiled, looked into, and kept on disk by their content and that of their headers.

The front end runs once for each file, and what it makes is linked. A class is optimised, checked and taken out of the
module when it is asked for, which a program does for few of the hundreds that a library's file may have.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import llvmlite.binding as binding

from abele.codelet.cpp.blocks import FlowGraph
from abele.codelet.cpp.braces import code_alone
from abele.codelet.cpp.check import check_vertex, is_known, source_line
from abele.codelet.cpp.checking import Checked, checked_code, source_lines
from abele.codelet.cpp.diagnostics import USED
from abele.codelet.cpp.early_exits import branches_of, endless_loops, goes_back, with_marks
from abele.codelet.cpp.entry import entry_name
from abele.codelet.cpp.extract import Module, VertexSource
from abele.codelet.cpp.fingerprint import fingerprint
from abele.codelet.cpp.fragments import Fragments
from abele.codelet.cpp.initial import with_initial_values
from abele.codelet.cpp.linking import FrontEnd, linked
from abele.codelet.cpp.metadata import Metadata
from abele.codelet.cpp.native import VERTEX, readable_text
from abele.codelet.cpp.optimise import VARIABLE, optimise, parsed, unwritten, with_entries
from abele.codelet.cpp.reflect import Member, VertexClass
from abele.codelet.cpp.toolchain import compile_to_bitcode, find_compiler
from abele.codelet.early_exits import EndPlace
from abele.errors import CodeletError, CodeletLinkError
from abele.llvm.cache import load_object, store_object

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.M)
_COMPUTE = re.compile(r"\b(?:bool|void)\s+(?=compute\s*\()")
_COMPILERS = 4
"""Front ends that run side by side."""
_VARIABLE = re.compile(
    r'^(?P<name>@(?:"[^"]*"|[-\w$.]+)) = (?:[^\n"]*\bglobal\b|(?P<external>external) [^\n"]*\bconstant\b)', re.M
)
"""A variable, or a constant that is declared and nowhere defined."""


@dataclass(frozen=True)
class SourceFile:
    """A source file.

    Attributes:
        name: Its path, or what stands for one.
        text: The source.
    """

    name: str
    text: str


@dataclass(frozen=True, eq=False)
class Unit:
    """Source files with how they are compiled.

    Attributes:
        sources: The files. A function that one defines can be called in the others.
        flags: The user's flags.
        include: Directories with headers.
    """

    sources: tuple[SourceFile, ...]
    flags: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    _codes: dict[tuple[int, bool], VertexSource] = field(default_factory=dict, repr=False)

    @cached_property
    def key(self) -> str:
        """Digest of everything that its code depends on."""
        digest = hashlib.sha256()
        llvm, names = binding.llvm_version_info, [s.name for s in self.sources]
        for part in (fingerprint(), find_compiler().version, llvm, names, self.flags, self.include):
            digest.update(f"{part}\n".encode())
        for path, text in sorted({found for source in self.sources for found in self._texts(source)}):
            digest.update(f"{path}\n{text}\n".encode())
        return digest.hexdigest()

    @property
    def name(self) -> str:
        """Its files."""
        return ", ".join(s.name for s in self.sources)

    @cached_property
    def vertices(self) -> list[VertexClass]:
        """Its vertex classes.

        Raises:
            CodeletError: See :func:`~abele.codelet.cpp.load_codelets`.
        """
        known = self._kept("classes")
        if known is None:
            records = [asdict(v) for v in self._reflected[1]]
            self._keep("classes", json.dumps(records).encode())
            self._keep("front", self._reflected[0].bitcode)
            return self._reflected[1]
        return [_from_record(r) for r in json.loads(known)]

    def code(self, number: int, *, aliasing: bool = False) -> VertexSource:
        """Code of a vertex class.

        Args:
            number: Its place among the classes.
            aliasing: True if fields of a vertex may overlap.

        Raises:
            CodeletError: The class cannot be had; see :func:`~abele.codelet.cpp.load_codelets`.
        """
        if (number, aliasing) not in self._codes:
            part = f"{number}{' aliasing' if aliasing else ''}"
            known = self._kept(part)
            if known is None:
                self.vertices[number].check()
                code = self._compiled(self.vertices[number], aliasing=aliasing)
                self._keep(part, json.dumps(asdict(code)).encode())
            else:
                record = json.loads(known)
                places = tuple(EndPlace(**place) for place in record.pop("places"))
                code = VertexSource(**record, places=places)
            self._codes[number, aliasing] = code
        return self._codes[number, aliasing]

    def checked(self, number: int) -> Checked:
        """Code of a vertex class that checks its accesses."""
        part = f"{number} checked"
        known = self._kept(part)
        if known is not None:
            record = json.loads(known)
            return Checked.of(record)
        vertex = self.vertices[number]
        module, metadata = self._module(vertex, aliasing=True)
        _mark_loops(vertex, module, metadata)
        code = module.code(0)
        blocks = FlowGraph(readable_text(vertex, code.body, code.around), VERTEX)
        lines = source_lines(blocks, module.entry(0), lambda line: source_line(line, metadata))
        found = checked_code(blocks, code, vertex.members, lines)
        self._keep(part, json.dumps(found.record()).encode())
        return found

    def _compiled(self, vertex: VertexClass, *, aliasing: bool) -> VertexSource:
        module, metadata = self._module(vertex, aliasing=aliasing)
        check_vertex(vertex, 0, module, metadata)
        _check_globals(vertex, module.code(0))
        _mark_loops(vertex, module, metadata)
        return module.code(0)

    def _module(self, vertex: VertexClass, *, aliasing: bool) -> tuple[Module, Metadata]:
        if not vertex.compute:
            raise CodeletLinkError(
                f"compute() of {vertex.name} is declared, and defined nowhere",
                at=vertex.location,
                remedy='define it here, or give the file that does as well: ["codelets.cpp", "more.cpp"]',
            )
        text = self._with_constants(self._fragments.around([vertex.compute]))
        optimised = optimise(with_entries(text, [vertex], self._front.signatures, aliasing=aliasing))
        module, metadata = Module(optimised), Metadata(optimised)
        module.end_calls(lambda line: source_line(line, metadata) or vertex.location, is_known)
        return module, metadata

    def _with_constants(self, text: str) -> str:
        """Part of the module with constants for variables that no code of the file writes; others are open to any
        write.
        """
        if not VARIABLE.search(text):
            return text
        return VARIABLE.sub(lambda m: f"{m[1]} = {'internal constant' if m[1] in self._unwritten else 'global'} ", text)

    @cached_property
    def _unwritten(self) -> set[str]:
        return unwritten(self._front.text, sorted({v.compute for v in self.vertices if v.compute}))

    @cached_property
    def _fragments(self) -> Fragments:
        return Fragments(self._front.text)

    @cached_property
    def _front(self) -> FrontEnd:
        """Result of the front end, from the disk where the classes are known."""
        if "_reflected" not in vars(self):
            bitcode = self._kept("front")
            if bitcode is not None:
                return FrontEnd.of(parsed(bitcode, self.name), bitcode)
        return self._reflected[0]

    @cached_property
    def _reflected(self) -> tuple[FrontEnd, list[VertexClass]]:
        # The front end emits inline functions only where something uses them, and nothing calls compute here: the
        # attribute makes it do so. Where it cannot be put (a template's method that a class inherits, compute with its
        # result behind an arrow), a second run gets calls of what the first found missing, by the names of the classes.
        sources = [SourceFile(s.name, _with_compute_used(s.text)) for s in self.sources]
        front = self._front_end(sources)
        vertices = front.vertices()
        missing = [v for v in vertices if not v.compute and not v.refusal]
        if missing:
            names = {v.name for v in vertices}
            front = self._front_end([self._with_calls(s, missing) for s in sources])
            # Calls instantiate further templates, whose classes nobody asked for.
            vertices = [v for v in front.vertices() if v.name in names]
        return front, vertices

    def _front_end(self, sources: Sequence[SourceFile]) -> FrontEnd:
        def made(source: SourceFile) -> FrontEnd:
            bitcode = compile_to_bitcode(source.text, source.name, self.flags, self.include)
            module = parsed(bitcode, source.name)
            initialised = with_initial_values(module)
            return FrontEnd.of(module, bitcode) if initialised is None else FrontEnd.of(initialised)

        if len(sources) == 1:
            return made(sources[0])
        with ThreadPoolExecutor(max_workers=_COMPILERS) as threads:
            return linked(list(zip((s.name for s in sources), threads.map(made, sources), strict=True)))

    def texts(self) -> list[str]:
        """Its sources and the headers of the user that they may include."""
        return [text for _, text in sorted({found for source in self.sources for found in self._texts(source)})]

    def _kept(self, part: str) -> bytes | None:
        known = load_object(f"{self.key}-cpp {part}")
        return None if known is None else zlib.decompress(known)

    def _keep(self, part: str, content: bytes) -> None:
        store_object(f"{self.key}-cpp {part}", zlib.compress(content, 1))

    def _texts(self, source: SourceFile) -> Iterator[tuple[str, str]]:
        """A source and all headers that it may include, the compiler's own left out."""
        beside = Path(source.name).resolve().parent
        places = [Path(p) for p in (*_directories(self.flags), *self.include)]
        waiting, seen = [(beside, source.name, source.text)], set()
        while waiting:
            folder, name, text = waiting.pop()
            yield name, text
            for quote, header in _INCLUDE.findall(text):
                near = [folder, beside] if quote == '"' else []
                path = next((p / header for p in (*near, *places) if (p / header).is_file()), None)
                # Headers that include each other by "../" have endlessly many paths, and one without dots.
                path = None if path is None else path.resolve()
                if path is not None and str(path) not in seen:
                    seen.add(str(path))
                    waiting.append((path.parent, str(path), path.read_text(encoding="utf-8", errors="replace")))

    def _with_calls(self, source: SourceFile, vertices: Sequence[VertexClass]) -> SourceFile:
        """A source that makes the compiler emit ``compute`` where a class inherits it from a template."""
        if len(self.sources) > 1:
            files = {path for path, _ in self._texts(source)}
            vertices = [v for v in vertices if v.file in files or str(Path(v.file).resolve()) in files]
        return SourceFile(source.name, source.text + _calls(vertices))


def _with_compute_used(text: str) -> str:
    """A source with every ``compute`` marked as used."""
    code = code_alone(text, directives=True)  # what strings say stays
    ends = [m.end() for m in _COMPUTE.finditer(code)]
    return USED.join(text[a:b] for a, b in pairwise([0, *ends, len(text)]))


def _directories(flags: Sequence[str]) -> list[str]:
    """Directories of headers among flags."""
    joined = [f[2:] for f in flags if f.startswith("-I") and len(f) > 2]
    apart = [b for a, b in pairwise(flags) if a in ("-I", "-iquote", "-isystem")]
    return joined + apart


def _calls(vertices: Sequence[VertexClass]) -> str:
    lines = []
    for number, vertex in enumerate(vertices):
        worker, given = ("unsigned worker", "worker") if vertex.kind == "multi" else ("", "")
        argument = f", {worker}" if worker else ""
        lines.append(
            f"static __attribute__((used)) void abele_compute_{number}({vertex.cpp} *vertex{argument}) "
            f"{{ vertex->compute({given}); }}"
        )
    return "\n" + "\n".join(lines) + "\n"


def _mark_loops(vertex: VertexClass, module: Module, metadata: Metadata) -> None:
    """Mark loops that need not end."""
    text = module.entry(0)
    if not goes_back(text):
        return
    code = module.code(0)
    marks, places = dict[str, tuple[int, str]](), list(module.places)
    for loop, waits in endless_loops(FlowGraph(readable_text(vertex, code.body, code.around), VERTEX)):
        marks |= dict.fromkeys(loop.latches, (len(places), loop.header))
        line = source_line(branches_of(text, loop.latches), metadata)
        places.append(EndPlace(line or vertex.location, waits=waits))
    module.functions[f"@{entry_name(0)}"] = with_marks(text, marks)
    module.places = tuple(places)


def _check_globals(vertex: VertexClass, code: VertexSource) -> None:
    found = _VARIABLE.search(code.around)
    if found is None:
        return
    name = found["name"].strip('@"')
    if found["external"]:
        raise CodeletLinkError(
            f"{vertex.name} uses {name}, an unresolved symbol",
            at=vertex.location,
            because="no file that was given defines it",
            remedy='give the file that does as well: ["codelets.cpp", "tables.cpp"]',
        )
    raise CodeletError(
        f"{vertex.name} keeps data outside the vertex, in {name}",
        at=vertex.location,
        because="every tile has its own, and they are not told apart here",
        remedy="make it const, with a value that can be computed beforehand, or a field",
    )


def _from_record(record: dict[str, Any]) -> VertexClass:
    members = tuple(Member(**{**m, "layouts": tuple(m["layouts"])}) for m in record.pop("members"))
    record["aliases"], record["tables"] = tuple(record["aliases"]), tuple(record["tables"])
    return VertexClass(**record, members=members)
