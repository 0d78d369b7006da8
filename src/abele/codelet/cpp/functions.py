"""Elementary functions that code of a vertex calls, given the bodies that Python codelets have, which vectorise."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from llvmlite import ir as ll

from abele.codelet.cpp.defined import CALLED, define_division, with_counts_modulo_width
from abele.llvm import math
from abele.llvm.emit import F32, HALF, I32, POINTER, constant, intrinsic, like
from abele.llvm.random import GOLDEN, emit_mix

_CALLED = re.compile(
    r"@(?:llvm\.(?P<op>exp|log|tanh|sin|cos|pow)\.(?P<type>\w+)|(?P<c>exp|log|tanh|sin|cos|pow|erf)f"
    r"|abele_(?P<own>sigmoid|rsqrt|tanh)_(?P<half>f32|f16))(?=\()"
)
RANDOM = "@abele.urand32"


def with_functions(body: str) -> tuple[str, str]:
    """The body with calls of ours, and the text of a module that has what it calls."""
    module = ll.Module("functions")

    def renamed(call: re.Match[str]) -> str:
        name = call["op"] or call["c"] or call["own"]
        suffix = call["type"] or call["half"] or "f32"
        return f"@{_function(module, name, suffix).name}"

    body = with_counts_modulo_width(_CALLED.sub(renamed, body))
    for symbol, op, suffix in CALLED.findall(body):
        define_division(module, symbol, op, suffix)
    if RANDOM in body:
        _random(module)
    definitions = re.sub(r"^(?:target|;).*\n", "", str(module), flags=re.M)
    return body, re.sub(r"^define internal (.*)$", r"define internal \1 alwaysinline", definitions, flags=re.M)


def _function(module: ll.Module, name: str, suffix: str) -> Any:
    symbol = f"abele.{name}.{suffix}"
    known = module.globals.get(symbol)
    if known is not None:
        return known
    type_ = _type(suffix)
    function = ll.Function(module, ll.FunctionType(type_, [type_] * (2 if name == "pow" else 1)), symbol)
    function.linkage = "internal"
    b = ll.IRBuilder(function.append_basic_block())
    wide = [a if suffix.endswith("f32") else b.fpext(a, like(a, F32)) for a in function.args]
    result = _BODIES[name](b, *wide)
    b.ret(result if suffix.endswith("f32") else b.fptrunc(result, type_))
    return function


def _rsqrt(b: ll.IRBuilder, x: Any) -> Any:
    return b.fdiv(constant(x.type, 1.0), intrinsic(b, "llvm.sqrt", x))


_BODIES: dict[str, Callable[..., Any]] = {**math.FUNCTIONS, "rsqrt": _rsqrt}


def _type(suffix: str) -> Any:
    lanes = re.fullmatch(r"v(\d+)(f\d+)", suffix)
    element = F32 if suffix.endswith("f32") else HALF
    return ll.VectorType(element, int(lanes[1])) if lanes else element


def _random(module: ll.Module) -> None:
    """``i32 urand32(ptr state)``: a hash of a key and of how often it was drawn from, which it counts up."""
    function = ll.Function(module, ll.FunctionType(I32, [POINTER]), RANDOM[1:])
    function.linkage = "internal"
    b = ll.IRBuilder(function.append_basic_block())
    counter = b.gep(function.args[0], [ll.Constant(I32, 1)], source_etype=I32)
    key, drawn = b.load(function.args[0], typ=I32), b.load(counter, typ=I32)
    b.store(b.add(drawn, ll.Constant(I32, 1)), counter)
    b.ret(emit_mix(b, b.xor(key, emit_mix(b, b.xor(drawn, ll.Constant(I32, GOLDEN))))))
