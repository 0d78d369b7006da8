"""A file of C++ codelets: compiled, looked into, and kept on disk by its content and that of its headers."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import llvmlite.binding as binding

from abele.codelet.cpp.check import check_vertex
from abele.codelet.cpp.extract import Code, Module
from abele.codelet.cpp.fingerprint import fingerprint
from abele.codelet.cpp.metadata import Metadata
from abele.codelet.cpp.optimise import optimise, parsed, with_entries
from abele.codelet.cpp.reflect import Member, VertexClass, vertex_classes
from abele.codelet.cpp.toolchain import compile_to_bitcode, find_compiler
from abele.errors import CodeletError
from abele.llvm.cache import load_object, store_object

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.M)
_COMPUTE = re.compile(r"\b(bool|void)(\s+)(?=compute\s*\()")
_MUTABLE = re.compile(r'^(@(?:"[^"]*"|[-\w$.]+)) = .*\bglobal\b', re.M)


@dataclass(frozen=True, eq=False)
class Unit:
    """A source file with how it is compiled.

    Attributes:
        name: Path of the file, or what stands for one.
        text: The source.
        flags: The user's flags.
        include: Directories with headers.
    """

    name: str
    text: str
    flags: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    _aliasing: dict[int, Code] = field(default_factory=dict, repr=False)

    @cached_property
    def key(self) -> str:
        """Digest of everything that its code depends on."""
        digest = hashlib.sha256()
        llvm = binding.llvm_version_info
        for part in (fingerprint(), find_compiler().version, llvm, self.name, self.flags, self.include):
            digest.update(f"{part}\n".encode())
        for path, text in sorted(self._texts()):
            digest.update(f"{path}\n{text}\n".encode())
        return digest.hexdigest()

    def vertices(self) -> list[tuple[VertexClass, Code]]:
        """Its vertex classes, each with its code.

        Raises:
            CodeletError: See :func:`~abele.codelet.cpp.load_codelets`.
        """
        known = load_object(f"{self.key}-cpp")
        if known is not None:
            return [_from_record(r) for r in json.loads(zlib.decompress(known))]
        found = self._compiled(aliasing=False)
        records = [{**asdict(v), "code": asdict(c)} for v, c in found]
        store_object(f"{self.key}-cpp", zlib.compress(json.dumps(records).encode()))
        return found

    def aliasing_code(self, number: int) -> Code:
        """Code of vertex class ``number`` for fields that overlap one another."""
        if not self._aliasing:
            self._aliasing.update(enumerate(code for _, code in self._compiled(aliasing=True)))
        return self._aliasing[number]

    def _compiled(self, *, aliasing: bool) -> list[tuple[VertexClass, Code]]:
        source = _COMPUTE.sub(r"\1\2__attribute__((used)) ", self.text)
        text, vertices, signatures = self._front_end(source)
        refused = [v for v in vertices if v.refusal]
        vertices = [v for v in vertices if not v.refusal]
        if refused and not vertices:
            refused[0].check()
        missing = [v for v in vertices if not v.compute]
        if missing:
            names = {v.name for v in vertices}
            text, again, signatures = self._front_end(source + _calls(missing))
            vertices = [v for v in again if v.name in names]
        if not vertices:
            return []
        optimised = optimise(with_entries(text, vertices, signatures, aliasing=aliasing))
        module, metadata = Module(optimised), Metadata(optimised)
        found = []
        for number, vertex in enumerate(vertices):
            check_vertex(vertex, number, module, metadata)
            found.append((vertex, module.code(number)))
            _check_globals(vertex, found[-1][1])
        return found

    def _front_end(self, source: str) -> tuple[str, list[VertexClass], dict[str, str]]:
        bitcode = compile_to_bitcode(source, self.name, self.flags, self.include)
        module = parsed(bitcode, self.name)
        text = str(module)
        signatures = {f.name: str(f.global_value_type) for f in module.functions if not f.is_declaration}
        explicit = {f.name for f in module.functions if f.linkage.name == "weak_odr"}
        return text, vertex_classes(Metadata(text), set(signatures), explicit), signatures

    def _texts(self) -> Iterator[tuple[str, str]]:
        """The source and all headers that it may include, the compiler's own left out."""
        beside = Path(self.name).resolve().parent
        places = [Path(p) for p in (*_directories(self.flags), *self.include)]
        waiting, seen = [(beside, self.name, self.text)], set()
        while waiting:
            folder, name, text = waiting.pop()
            yield name, text
            for quote, header in _INCLUDE.findall(text):
                near = [folder, beside] if quote == '"' else []
                path = next((p / header for p in (*near, *places) if (p / header).is_file()), None)
                if path is not None and str(path) not in seen:
                    seen.add(str(path))
                    waiting.append((path.parent, str(path), path.read_text(encoding="utf-8", errors="replace")))


def _directories(flags: Sequence[str]) -> list[str]:
    """Directories of headers among flags."""
    joined = [f[2:] for f in flags if f.startswith("-I") and len(f) > 2]
    apart = [b for a, b in pairwise(flags) if a in ("-I", "-iquote", "-isystem")]
    return joined + apart


def _calls(vertices: Sequence[VertexClass]) -> str:
    """Source that makes the compiler emit ``compute`` where a class inherits it from a template."""
    lines = []
    for number, vertex in enumerate(vertices):
        worker, given = ("unsigned worker", "worker") if vertex.kind == "multi" else ("", "")
        argument = f", {worker}" if worker else ""
        lines.append(
            f'extern "C" __attribute__((used)) void abele_compute_{number}({vertex.cpp} *vertex{argument}) '
            f"{{ vertex->compute({given}); }}"
        )
    return "\n" + "\n".join(lines) + "\n"


def _check_globals(vertex: VertexClass, code: Code) -> None:
    found = _MUTABLE.search(code.around)
    if found is not None:
        raise CodeletError(
            f"{vertex.name} keeps data outside the vertex, in {found[1].strip('@')}",
            at=vertex.location,
            because="every tile has its own, and they are not told apart here",
            remedy="make it const, or a field",
        )


def _from_record(record: dict[str, Any]) -> tuple[VertexClass, Code]:
    code = Code(**record.pop("code"))
    members = tuple(Member(**{**m, "layouts": tuple(m["layouts"])}) for m in record.pop("members"))
    return VertexClass(**record, members=members), code
