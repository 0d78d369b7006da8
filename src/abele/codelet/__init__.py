"""The vertex language: classes whose ``compute`` is compiled, counted in issue slots, and debugged as plain Python."""

import sys
from types import ModuleType
from typing import Any

from abele.codelet.compiled import CompiledCodelet, compile_codelet
from abele.codelet.fields import FieldDef, InOut, Input, Output, Vector, VectorList
from abele.codelet.functions import (
    VertexFunction,
    ceil,
    copysign,
    cos,
    erf,
    exp,
    expm1,
    floor,
    fma,
    log,
    pow,
    random_u32,
    rem,
    rint,
    sigmoid,
    sin,
    tan,
    tanh,
)
from abele.codelet.functions import reciprocal_root as rsqrt
from abele.codelet.functions import square_root as sqrt
from abele.codelet.interpret import interpret
from abele.codelet.layouts import (
    COMPACT_PTR,
    DELTAN,
    DELTANELEMENTS,
    ONE_PTR,
    SCALED_PTR32,
    SCALED_PTR64,
    SCALED_PTR128,
    SHORT_SPAN,
    SPAN,
    FieldLayout,
)
from abele.codelet.macro_calls import macro
from abele.codelet.reductions import LANES
from abele.codelet.rounding import Rounding
from abele.codelet.sizes import Size, Sizes
from abele.codelet.template import Template, template
from abele.codelet.vertex import CodeletDef, Constraint, MultiVertex, SupervisorVertex, Vertex, codelet

hash_u32 = random_u32

__all__ = [
    "COMPACT_PTR",
    "DELTAN",
    "DELTANELEMENTS",
    "LANES",
    "ONE_PTR",
    "SCALED_PTR32",
    "SCALED_PTR64",
    "SCALED_PTR128",
    "SHORT_SPAN",
    "SPAN",
    "CodeletDef",
    "CompiledCodelet",
    "Constraint",
    "FieldDef",
    "FieldLayout",
    "InOut",
    "Input",
    "MultiVertex",
    "Output",
    "Rounding",
    "Size",
    "Sizes",
    "SupervisorVertex",
    "Template",
    "Vector",
    "VectorList",
    "Vertex",
    "VertexFunction",
    "ceil",
    "codelet",
    "compile_codelet",
    "copysign",
    "cos",
    "erf",
    "exp",
    "expm1",
    "floor",
    "fma",
    "hash_u32",
    "interpret",
    "log",
    "macro",
    "pow",
    "random_u32",
    "rem",
    "rint",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "tan",
    "tanh",
    "template",
]


class _Room(ModuleType):
    """This module, which can be called as the decorator: ``abele.codelet`` names both."""

    def __call__(self, cls: Any = None, **options: Any) -> Any:
        return codelet(cls, **options)


sys.modules[__name__].__class__ = _Room
