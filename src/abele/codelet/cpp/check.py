"""Checks of a vertex's code for forbidden parts, once everything is in place and dead code is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from abele.codelet.cpp.defined import PREFIXES
from abele.codelet.cpp.diagnostics import hardware_only
from abele.codelet.cpp.early_exits import LOOP
from abele.codelet.cpp.extract import Module
from abele.codelet.cpp.inputs import written_input
from abele.codelet.cpp.library import MATH
from abele.codelet.cpp.metadata import Metadata, symbol_of
from abele.codelet.cpp.reflect import VertexClass
from abele.codelet.cpp.refusals import symbol_refusal
from abele.codelet.cpp.toolchain import HEADERS
from abele.codelet.early_exits import END
from abele.errors import AbeleError, CodeletError, CodeletLinkError

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
