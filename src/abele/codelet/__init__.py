"""The vertex language: classes whose ``compute`` is compiled, counted in issue slots, and debugged as plain Python."""

import sys
from types import ModuleType
from typing import Any

from abele.codelet.compiled import CompiledCodelet, compile_codelet
from abele.codelet.fields import FieldDef, InOut, Input, Output, Vector
from abele.codelet.functions import (
    Function,
    ceil,
    cos,
    erf,
    exp,
    floor,
    fma,
    log,
    pow,
    random_u32,
    rint,
    sigmoid,
    sin,
    tanh,
)
from abele.codelet.functions import reciprocal_root as rsqrt
from abele.codelet.functions import square_root as sqrt
from abele.codelet.interpret import interpret
from abele.codelet.reductions import LANES
from abele.codelet.sizes import Size, Sizes
from abele.codelet.vertex import CodeletDef, MultiVertex, SupervisorVertex, Vertex, codelet

hash_u32 = random_u32

__all__ = [
    "LANES",
    "CodeletDef",
    "CompiledCodelet",
    "FieldDef",
    "Function",
    "InOut",
    "Input",
    "MultiVertex",
    "Output",
    "Size",
    "Sizes",
    "SupervisorVertex",
    "Vector",
    "Vertex",
    "ceil",
    "codelet",
    "compile_codelet",
    "cos",
    "erf",
    "exp",
    "floor",
    "fma",
    "hash_u32",
    "interpret",
    "log",
    "pow",
    "random_u32",
    "rint",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "tanh",
]


class _Room(ModuleType):
    """This module, which can be called as the decorator: ``abele.codelet`` names both."""

    def __call__(self, cls: Any) -> Any:
        return codelet(cls)


sys.modules[__name__].__class__ = _Room
