"""Functions of the vertex language, callable from plain Python too, with the bits that compiled codelets give."""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from abele.expr import FUNCTIONS
from abele.llvm import ir as ll
from abele.llvm.emit import F32
from abele.llvm.jit import compile_ir
from abele.llvm.random import hash_u32

_RANDOM = "random_u32"
"""The function of the language that is no operation of the table: it takes integers, and gives a random word."""


@dataclass(frozen=True)
class VertexFunction:
    """A function of the vertex language.

    Attributes:
        name: Its name there.
    """

    name: str

    @property
    def arity(self) -> int:
        """Number of arguments."""
        return 4 if self.name == _RANDOM else FUNCTIONS[self.name].arity

    def __call__(self, *args: Any) -> Any:
        """The value at plain numbers, as f32; of ``random_u32``, u32."""
        if self.name == _RANDOM:
            return np.uint32(hash_u32(*args))
        return np.float32(_native(self.name, emission_key(self.name))(*map(float, args)))


exp, log, tanh, sigmoid, erf, sin, cos, pow = (
    VertexFunction(n) for n in ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "pow")
)
square_root, reciprocal_root, fma, floor, ceil, rint = (
    VertexFunction(n) for n in ("sqrt", "rsqrt", "fma", "floor", "ceil", "rint")
)
expm1, tan, copysign, rem = (VertexFunction(n) for n in ("expm1", "tan", "copysign", "rem"))
random_u32 = VertexFunction(_RANDOM)

KNOWN: dict[Any, str] = {
    getattr(module, name): name for module in (math, np) for name in (*FUNCTIONS, "abs") if hasattr(module, name)
}
KNOWN |= {math.fabs: "abs", builtins.round: "rint", builtins.abs: "abs"}
KNOWN |= {builtins.min: "min", builtins.max: "max", np.minimum: "min", np.maximum: "max", builtins.len: "len"}
KNOWN |= {builtins.float: "float", builtins.int: "int", builtins.bool: "bool", builtins.range: "range"}
KNOWN |= {builtins.pow: "pow", np.power: "pow", math.fmod: "rem", np.fmod: "rem"}
"""Python's and NumPy's functions that mean one of ours."""


def emit(name: str, b: ll.IRBuilder, *args: Any) -> Any:
    """Code of a function of f32; a call of it where it branches, as loops with branches do not become vectors."""
    code = FUNCTIONS[name].code
    assert code is not None
    assert code.f32 is not None
    if code.branches and not isinstance(args[0].type, ll.VectorType):
        return b.call(_of_vectors(b.module, name), args)
    return code.f32(b, *args)


_WIDTHS = (4, 8, 16, 32)
"""Lanes of the vectors that loops become, on any host."""


def _of_vectors(module: ll.Module, name: str) -> Any:
    """A function of scalars that LLVM knows how to call for vectors.

    Source: LLVM, Vector Function ABI variants: ``_ZGV_LLVM_N`` for no mask, then lanes, and ``v`` for each argument.
    """
    symbol = f"abele.called.{name}"
    known = module.globals.get(symbol)
    if known is not None:
        return known
    arity, code = FUNCTIONS[name].arity, FUNCTIONS[name].code
    assert code is not None
    assert code.f32 is not None
    variants = [f"_ZGV_LLVM_N{n}{'v' * arity}_{symbol}({symbol}.{n})" for n in _WIDTHS]
    for lanes in (1, *_WIDTHS):
        type_ = F32 if lanes == 1 else ll.VectorType(F32, lanes)
        full = symbol if lanes == 1 else f"{symbol}.{lanes}"
        function = ll.Function(module, ll.FunctionType(type_, [type_] * arity), full)
        function.attributes = "noinline nounwind willreturn memory(none)"
        if lanes == 1:
            function.attributes += f' "vector-function-abi-variant"="{",".join(variants)}"'
        b = ll.IRBuilder(function.append_basic_block())
        b.ret(code.f32(b, *function.args))
    return module.globals[symbol]


def emission_key(name: str) -> str:
    """Text that tells the code of a function defined outside Abele from others of its name; empty for our own."""
    operation = FUNCTIONS.get(name)
    emitted = operation.code.f32 if operation is not None and operation.code is not None else None
    if not isinstance(emitted, FunctionType) or emitted.__module__.partition(".")[0] == "abele":
        return ""
    return f" {name} {code_key(emitted.__code__)}"


def code_key(code: CodeType) -> str:
    """Text that is equal for Python functions of equal code."""
    constants = [code_key(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    digest = hashlib.sha256(code.co_code).hexdigest()
    return f"{digest} {constants} {code.co_names} {code.co_varnames} {code.co_freevars}"


@cache
def _native(name: str, key: str) -> Callable[..., float]:
    count = FUNCTIONS[name].arity
    module = ll.Module(name)
    fn = ll.Function(module, ll.FunctionType(F32, [F32] * count), "scalar")
    builder = ll.IRBuilder(fn.append_basic_block())
    builder.ret(emit(name, builder, *fn.args))
    address = compile_ir(module).address("scalar")
    call: Callable[..., float] = ctypes.CFUNCTYPE(ctypes.c_float, *[ctypes.c_float] * count)(address)
    return call
