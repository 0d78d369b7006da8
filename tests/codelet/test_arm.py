"""Codelets in Python and in C++ as code for AArch64, which is made and not run."""

from __future__ import annotations

import pytest

from abele.codelet import CodeletDef, InOut, Input, Vector, Vertex, codelet
from abele.codelet.compiled import CompiledCodelet
from abele.codelet.cpp.compiled import CompiledCppCodelet
from abele.llvm.cpus import cpu_named
from abele.llvm.host import code_for
from abele.llvm.jit import ForeignCode, foreign_symbol
from abele.numerics import f16, f32
from codelet.cpp.conftest import load


@codelet
class Scaled(Vertex):
    """Adds half numbers, scaled."""

    scale: Input[f32]
    x: Input[Vector[f16]]
    y: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] += self.scale * self.x[i]


def made(definition: CodeletDef, kind: type[CompiledCodelet], part: str) -> ForeignCode:
    """Object of a part of a codelet's code, for a CPU of AArch64."""
    cpu = cpu_named("neoverse-n1")
    assert cpu is not None
    with code_for(cpu):
        found = foreign_symbol(getattr(kind(definition), part))
    assert found is not None
    assert found[1] == part.removesuffix("_aliasing")
    return found[0]


@pytest.mark.parametrize("part", ["run", "run_aliasing", "run_checked", "run_counted"])
def test_codelet__in_python__has_code_for_arm(part: str) -> None:
    assert made(Scaled.codelet, CompiledCodelet, part).data.startswith(b"\x7fELF")


@pytest.mark.parametrize("part", ["run", "run_aliasing", "run_counted"])
def test_codelet__in_cpp_with_halves__has_code_for_arm(part: str) -> None:
    definition = next(iter(load("halves.cpp").values()))
    assert made(definition, CompiledCppCodelet, part).data.startswith(b"\x7fELF")
