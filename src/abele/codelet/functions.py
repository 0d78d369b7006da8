"""Functions of the vertex language, callable from plain Python too, with the bits that compiled codelets give."""

from __future__ import annotations

import builtins
import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir as ll

from abele.llvm import math as polynomials
from abele.llvm.emit import F32, constant, intrinsic
from abele.llvm.jit import compile_ir
from abele.llvm.random import hash_u32


def sqrt(b: ll.IRBuilder, x: Any) -> Any:
    """Square root."""
    return intrinsic(b, "llvm.sqrt", x)


def rsqrt(b: ll.IRBuilder, x: Any) -> Any:
    """1 / square root."""
    return b.fdiv(constant(x.type, 1.0), sqrt(b, x))


def fused(b: ll.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    """x·y + z, rounded once, on every CPU."""
    return intrinsic(b, "llvm.fma", x, y, z)


def _rounding(name: str) -> Callable[..., Any]:
    return lambda b, x: intrinsic(b, f"llvm.{name}", x)


FLOAT_FUNCTIONS: dict[str, Callable[..., Any]] = dict(polynomials.FUNCTIONS) | {
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "fma": fused,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "rint": _rounding("rint"),
}
"""Functions of f32: how each is emitted."""

ARITY = {"pow": 2, "fma": 3, "random_u32": 4}
"""Arguments of the functions that take not one."""


@dataclass(frozen=True)
class Function:
    """A function of the vertex language.

    Attributes:
        name: Its name there.
    """

    name: str

    @property
    def arity(self) -> int:
        """Number of arguments."""
        return ARITY.get(self.name, 1)

    def __call__(self, *args: Any) -> Any:
        """The value at plain numbers, as f32; of ``random_u32``, u32."""
        if self.name == "random_u32":
            return np.uint32(hash_u32(*args))
        return np.float32(_native(self.name)(*map(float, args)))


exp, log, tanh, sigmoid, erf, sin, cos, pow = (Function(n) for n in polynomials.FUNCTIONS)
square_root, reciprocal_root, fma, floor, ceil, rint = (
    Function(n) for n in ("sqrt", "rsqrt", "fma", "floor", "ceil", "rint")
)
random_u32 = Function("random_u32")

KNOWN: dict[Any, str] = {getattr(math, n): n for n in ("exp", "log", "tanh", "erf", "sin", "cos", "sqrt", "pow")}
KNOWN |= {math.floor: "floor", math.ceil: "ceil", math.fabs: "abs", builtins.round: "rint", builtins.abs: "abs"}
KNOWN |= {getattr(np, n): n for n in ("exp", "log", "tanh", "sin", "cos", "sqrt", "floor", "ceil", "rint", "abs")}
KNOWN |= {builtins.min: "min", builtins.max: "max", np.minimum: "min", np.maximum: "max", builtins.len: "len"}
KNOWN |= {builtins.float: "float", builtins.int: "int", builtins.bool: "bool", builtins.range: "range"}
KNOWN |= {builtins.pow: "pow", np.power: "pow"}
"""Python's and NumPy's functions that mean one of ours."""


@cache
def _native(name: str) -> Callable[..., float]:
    count = ARITY.get(name, 1)
    module = ll.Module(name)
    fn = ll.Function(module, ll.FunctionType(F32, [F32] * count), "scalar")
    builder = ll.IRBuilder(fn.append_basic_block())
    builder.ret(FLOAT_FUNCTIONS[name](builder, *fn.args))
    address = compile_ir(module).address("scalar")
    call: Callable[..., float] = ctypes.CFUNCTYPE(ctypes.c_float, *[ctypes.c_float] * count)(address)
    return call
