"""Elementary functions called by vertices' code, with the bodies of Python codelets, which vectorise."""

from __future__ import annotations

import math
import re
from typing import Any

from abele.codelet.cpp.defined import CALLED, define_division, with_counts_modulo_width
from abele.codelet.functions import emit
from abele.expr import FUNCTIONS
from abele.llvm import ir as ll
from abele.llvm.emit import F32, HALF, I32, POINTER, like
from abele.llvm.random import GOLDEN, emit_mix

_INSTRUCTIONS = ("sqrt", "floor", "ceil", "rint", "fma")
"""Functions of the table that CPUs have instructions for: left to LLVM."""
RANDOM = "@abele.urand32"


def with_functions(body: str) -> tuple[str, str]:
    """Body with calls of our functions, and the text of a module that defines them."""
    module = ll.Module("functions")

    def renamed(call: re.Match[str]) -> str:
        name = call["op"] or call["c"] or call["own"]
        suffix = call["type"] or call["half"] or "f32"
        return f"@{_function(module, name, suffix).name}"

    body = with_counts_modulo_width(_called().sub(renamed, body))
    for symbol, op, suffix in CALLED.findall(body):
        define_division(module, symbol, op, suffix)
    if RANDOM in body:
        _random(module)
    definitions = re.sub(r"^(?:target|;).*\n", "", str(module), flags=re.M)
    return body, re.sub(r"^define internal (.*)$", r"define internal \1 alwaysinline", definitions, flags=re.M)


def _called() -> re.Pattern[str]:
    """Calls of functions of the table: by intrinsics of LLVM, by the C library's names, and by the names that headers
    have for what C does not name."""
    ours = [n for n in FUNCTIONS if n not in _INSTRUCTIONS]
    names, library = "|".join(ours), "|".join(n for n in ours if hasattr(math, n))
    return re.compile(
        rf"@(?:llvm\.(?P<op>{names})\.(?P<type>\w+)|(?P<c>{library})f|abele_(?P<own>{names})_(?P<half>f32|f16))(?=\()"
    )


def _function(module: ll.Module, name: str, suffix: str) -> Any:
    symbol = f"abele.{name}.{suffix}"
    known = module.globals.get(symbol)
    if known is not None:
        return known
    type_ = _type(suffix)
    function = ll.Function(module, ll.FunctionType(type_, [type_] * FUNCTIONS[name].arity), symbol)
    function.linkage = "internal"
    b = ll.IRBuilder(function.append_basic_block())
    wide = [a if suffix.endswith("f32") else b.fpext(a, like(a, F32)) for a in function.args]
    result = emit(name, b, *wide)
    b.ret(result if suffix.endswith("f32") else b.fptrunc(result, type_))
    return function


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
