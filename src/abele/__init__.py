"""Abele: the IPU in software.

Everything that a program needs is here; a name is loaded when it is first used, so that ``import abele`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from abele import errors as errors
    from abele import numerics as numerics
    from abele.codelet import (
        InOut,
        Input,
        MultiVertex,
        Output,
        SupervisorVertex,
        Vector,
        VectorList,
        Vertex,
        codelet,
    )
    from abele.codelet.template import template
    from abele.compiler import Executable, compile_program
    from abele.graph import (
        Call,
        ComputeSet,
        Copy,
        Execute,
        If,
        Interval,
        LibraryCall,
        PrintTensor,
        Program,
        Regions,
        Repeat,
        RepeatWhileFalse,
        RepeatWhileTrue,
        Sequence,
        Tensor,
        WriteUndef,
        boxes,
        concat,
        shared,
        stack,
    )
    from abele.machine import System, systems
    from abele.numerics import bf16, bool_, f8_143, f8_152, f16, f32, i8, i16, i32, i64, u8, u16, u32, u64
    from abele.poplar.engine import Engine
    from abele.poplar.graph import Graph
    from abele.poplibs import gcl, poplin, popnn, popops, poprand, popsparse, poputil
    from abele.report import Report

__version__ = "0.1.0"

_SOURCES = {
    "codelet": "codelet Vertex MultiVertex SupervisorVertex Input Output InOut Vector VectorList template",
    "compiler": "Executable compile_program",
    "graph": "Tensor ComputeSet Program Sequence Execute Copy Repeat RepeatWhileTrue RepeatWhileFalse If Call "
    "WriteUndef PrintTensor LibraryCall Interval Regions boxes concat stack shared",
    "machine": "System systems",
    "numerics": "f32 f16 bf16 f8_143 f8_152 i8 i16 i32 i64 u8 u16 u32 u64 bool_",
    "poplar.engine": "Engine",
    "poplar.graph": "Graph",
    "report": "Report",
}
_ROOMS = ("errors", "numerics", "machine", "graph", "kernels", "compiler", "runtime", "report", "parallel", "poplar")
_LIBRARIES = ("gcl", "popops", "poplin", "popnn", "poprand", "popsparse", "poputil")
_HOMES = {name: f"abele.{room}" for room, names in _SOURCES.items() for name in names.split()}
_MODULES = {name: f"abele.{name}" for name in _ROOMS} | {name: f"abele.poplibs.{name}" for name in _LIBRARIES}

__all__ = [
    "Call",
    "ComputeSet",
    "Copy",
    "Engine",
    "Executable",
    "Execute",
    "Graph",
    "If",
    "InOut",
    "Input",
    "Interval",
    "LibraryCall",
    "MultiVertex",
    "Output",
    "PrintTensor",
    "Program",
    "Regions",
    "Repeat",
    "RepeatWhileFalse",
    "RepeatWhileTrue",
    "Report",
    "Sequence",
    "SupervisorVertex",
    "System",
    "Tensor",
    "Vector",
    "VectorList",
    "Vertex",
    "WriteUndef",
    "bf16",
    "bool_",
    "boxes",
    "codelet",
    "compile_program",
    "concat",
    "errors",
    "f8_143",
    "f8_152",
    "f16",
    "f32",
    "gcl",
    "i8",
    "i16",
    "i32",
    "i64",
    "numerics",
    "poplin",
    "popnn",
    "popops",
    "poprand",
    "popsparse",
    "poputil",
    "shared",
    "stack",
    "systems",
    "template",
    "u8",
    "u16",
    "u32",
    "u64",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'abele' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
