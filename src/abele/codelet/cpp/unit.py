"""C++ files that belong together: compiled, looked into, and kept on disk by their content and that of their headers.

The front end runs once for each file, and what it makes is linked. A class is optimised, checked and taken out of the
module when it is asked for, which a program does for few of the hundreds that a library's file may have.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import llvmlite.binding as binding

from abele.codelet.cpp.blocks import FlowGraph
from abele.codelet.cpp.braces import code_alone
from abele.codelet.cpp.checking import Checked, checked_code, source_lines
from abele.codelet.cpp.compiled import fingerprint
from abele.codelet.cpp.early_exits import LOOP, branches_of, endless_loops, goes_back, with_marks
from abele.codelet.cpp.entry import entry_name
from abele.codelet.cpp.extract import Module, VertexSource
from abele.codelet.cpp.initial import with_initial_values
from abele.codelet.cpp.inputs import written_input
from abele.codelet.cpp.library import MATH
from abele.codelet.cpp.linking import FrontEnd, linked
from abele.codelet.cpp.metadata import Metadata, global_name, symbol_of
from abele.codelet.cpp.native import VERTEX, readable_text
from abele.codelet.cpp.optimise import PREFIXES, VARIABLE, optimise, parsed, unwritten, with_entries
from abele.codelet.cpp.reflect import Member, VertexClass, symbol_refusal
from abele.codelet.cpp.toolchain import HEADERS, USED, compile_to_bitcode, find_compiler, hardware_only
from abele.codelet.early_exits import END, EndPlace
from abele.errors import AbeleError, CodeletError, CodeletLinkError
from abele.llvm.cache import load_object, store_object

# Text of a module in pieces, and the pieces that some of its functions need.
#
# A file of hundreds of vertex classes is one module. To optimise one class, only the functions that its ``compute``
# reaches are wanted, and only the types, attributes and debug information that these mention. References are names of
# four kinds, each told by its first character: ``@`` functions and globals, ``%`` types, ``#`` attributes, ``!``
# metadata. Values of functions begin with ``%`` too, and are no definition of any name.

_QUOTED = r'(?:"[^"]*"|[-\w$.]+)'
_FUNCTION = re.compile(rf"^define [^\n]*?(@{_QUOTED})\([^\n]*\{{\n.*?^\}}$", re.M | re.S)
_LINE = re.compile(
    rf"^(?:declare [^\n]*?(?P<declared>@{_QUOTED})\(|(?P<named>[@%]{_QUOTED}|!\d+) = |attributes (?P<group>#\d+) = )"
    r"[^\n]*$",
    re.M,
)
_MODULE = re.compile(r"^!llvm\.(?:dbg\.cu|module\.flags) = [^\n]*$", re.M)
_REFERENCE = re.compile(rf"[@%]{_QUOTED}|#\d+|!\d+")
_RECORDS = re.compile(r"^ +#dbg_[^\n]*\n", re.M)
_LISTS = re.compile(r", (?:retainedTypes|globals|imports|enums|macros|retainedNodes): !\d+")
"""Entries that lead from a compile unit to everything in it, and from a function to its local variables."""


class Fragments:
    """The text of a module as its front end wrote it.

    Args:
        text: The text.
    """

    def __init__(self, text: str) -> None:
        self._functions = {m[1]: m.span() for m in _FUNCTION.finditer(text)}
        self._lines = {m["declared"] or m["named"] or m["group"]: m.span() for m in _LINE.finditer(text)}
        self._module = _MODULE.findall(text)
        self._text = text

    def around(self, symbols: Iterable[str]) -> str:
        """Text of a module with these functions and all that they refer to; variables are no longer described.

        Args:
            symbols: Symbols without the ``@``.
        """
        functions: list[str] = []
        lines: list[str] = []
        waiting = [global_name(s) for s in symbols]
        waiting += _REFERENCE.findall("\n".join(self._module))  # without a compile unit debug information is dropped
        seen = set(waiting)
        while waiting:
            name = waiting.pop()
            # Metadata with a cut entry no longer leads to the whole file; names of values lead nowhere.
            if name in self._functions:
                begin, end = self._functions[name]
                text = _RECORDS.sub("", self._text[begin:end])
                functions.append(text)
            elif name in self._lines:
                begin, end = self._lines[name]
                text = _LISTS.sub("", self._text[begin:end])
                lines.append(text)
            else:
                continue
            for found in _REFERENCE.findall(text):
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)
        # A global's type has to be known where it stands; all else may come in any order.
        types_first = sorted(lines, key=lambda line: line[0] != "%")
        return "\n".join([*types_first, *functions, *self._module, ""])


# Checks of a vertex's code for forbidden parts, once everything is in place and dead code is gone.

OTHER = frozenset(
    [
        "abs",
        "labs",
        "memcpy",
        "memmove",
        "memset",
        "memcmp",
        "bcmp",
        "printf",
        "puts",
        "putchar",
        "abele_sigmoid_f32",
        "abele_rsqrt_f32",
        "abele_tanh_f32",
        "abele_sigmoid_f16",
        "abele_rsqrt_f16",
        "abele_tanh_f16",
        "abele_urand32",
        "abele_worker_id",
        END,
        LOOP,
    ]
)
_CALL = re.compile(r"\b(?:call|invoke) (?P<before>[^@%\n]*?)(?P<callee>@(?:\"[^\"]*\"|[-\w$.]+)|%[-\w$.]+|asm\b[^\n]*)")
_ASSEMBLY = re.compile(r'asm (?:sideeffect |alignstack |inteldialect |unwind )*"(?P<text>[^"]*)"')
_DOUBLE = re.compile(r"= (?:fadd|fsub|fmul|fdiv|frem|fneg|fcmp|fptosi|fptoui|sitofp|uitofp)\b[^!]*\bdouble\b")
_DOUBLE_CALL = re.compile(r"\bcall (?:\w+ )*(?:<\d+ x )?double\b")
_PLACE = re.compile(r"!dbg (!\d+)")


def check_vertex(vertex: VertexClass, number: int, module: Module, metadata: Metadata) -> None:
    """Refuse a vertex that cannot run here.

    Raises:
        CodeletError: It has inline assembly, double arithmetic, recursion or calls through pointers, or it writes to
            an input.
        CodeletLinkError: It calls what no library of the tile has.
    """
    text = module.entry(number)
    for line in text.splitlines():
        for error in _problems(vertex, line, module, metadata):
            raise error
    written = written_input(vertex, text)
    if written is not None:
        field, line = written
        raise CodeletError(
            f"{vertex.name} writes to its input {field.name!r}",
            at=source_line(line, metadata) or vertex.location,
            because="an Input is read only; what is written to it would be lost, or overwrite what others read",
            remedy=f"declare {field.name} as InOut, or write to an Output",
        )


def _problems(vertex: VertexClass, line: str, module: Module, metadata: Metadata) -> Iterator[AbeleError]:
    at = source_line(line, metadata) or vertex.location
    call = _CALL.search(line)
    if _DOUBLE.search(line) or (call is not None and _DOUBLE_CALL.search(line)):
        yield CodeletError(
            f"{vertex.name} computes in double",
            at=at,
            because="the machine has no 64-bit floats",
            remedy="use float, and write constants as 0.1f",
        )
    elif call is not None:
        yield from _call_problems(vertex, line, call["callee"], at, module)


def _call_problems(vertex: VertexClass, line: str, callee: str, at: str, module: Module) -> Iterator[AbeleError]:
    if callee.startswith("asm"):
        text = _ASSEMBLY.search(line)
        words = re.sub(r"\\0A|\\09", " ", text["text"]).strip() if text else "assembly"
        if words:
            yield hardware_only(f"assembly instruction {words.split()[0]!r}", f"{vertex.name} has asm({words!r})", at)
        return
    name = symbol_of(callee)
    refusal = symbol_refusal(name)
    if refusal is not None:
        yield refusal
        return
    if callee.startswith("%"):
        yield CodeletError(
            f"{vertex.name} calls a function through a pointer", at=at, remedy="call it by name, or use a template"
        )
    elif callee in module.functions:
        yield CodeletError(
            f"{vertex.name} calls itself by way of {name}",
            at=at,
            because="the stack of a worker is fixed, and the depth of recursion is unknown",
            remedy="use a loop",
        )
    elif name == "abele_control_register":
        yield hardware_only("__builtin_ipu_get of this register", "only the worker's own number is known here", at)
    elif not is_known(name):
        yield _unresolved(vertex, name, at)


def is_known(name: str) -> bool:
    """True for the symbol of a function that a tile has."""
    return name.startswith(("llvm.", *PREFIXES)) or name in MATH or name in OTHER


def _unresolved(vertex: VertexClass, name: str, at: str) -> CodeletLinkError:
    heap = name.startswith(("_Zn", "_Zd")) or name in ("malloc", "free", "calloc", "realloc")
    if name.startswith("__builtin_ipu_"):
        return CodeletLinkError(f"{vertex.name} calls {name}, which runs on the hardware only", at=at)
    because = "a tile has no heap" if heap else "no library of the tile has it"
    remedy = "use a Vector field, or std::array" if heap else "only functions of <cmath> for float may be called"
    what = "allocates memory" if heap else f"calls {name}, an unresolved symbol"
    return CodeletLinkError(f"{vertex.name} {what}", at=at, because=because, remedy=remedy)


def source_line(line: str, metadata: Metadata) -> str | None:
    """``file:line`` of a line of code with debug information."""
    place = _PLACE.search(line)
    return None if place is None else metadata.source_line(place[1], str(HEADERS))


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
            part = f"{number}{'-aliasing' if aliasing else ''}"
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
        part = f"{number}-checked"
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
        known = load_object(f"{self.key}-cpp-{part}")
        return None if known is None else zlib.decompress(known)

    def _keep(self, part: str, content: bytes) -> None:
        store_object(f"{self.key}-cpp-{part}", zlib.compress(content, 1))

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
