"""Runs IR helpers element by element over NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from abele.llvm import ir as ll
from abele.llvm.emit import F32, F64, I8, I16, I32, I64, POINTER, VOID
from abele.llvm.host import is_elsewhere
from abele.llvm.jit import Native, compile_ir
from support.emulator import Emulation

TYPES = {
    "float32": F32,
    "float64": F64,
    "uint8": I8,
    "uint16": I16,
    "int16": I16,
    "uint32": I32,
    "int32": I32,
    "int64": I64,
}
Emit = Callable[..., Any]


def elementwise(emit: Emit, result: str, *arrays: np.ndarray[Any, Any], lanes: int = 1) -> np.ndarray[Any, Any]:
    """``emit(builder, *values)`` on every element; ``lanes`` at a time when that is more than one."""
    arrays = tuple(np.ascontiguousarray(a) for a in arrays)
    out = np.empty(arrays[0].shape, result)
    assert out.size % lanes == 0
    module = ll.Module("elementwise")
    fn = ll.Function(module, ll.FunctionType(VOID, [I64] + [POINTER] * (len(arrays) + 1)), "run")
    names = [str(a.dtype) for a in arrays] + [result]
    builder = ll.IRBuilder(fn.append_basic_block("entry"))
    _loop(builder, fn, emit, [TYPES[n] for n in names], lanes)
    native = compile_ir(module)
    if is_elsewhere():
        _emulated(native, out.size // lanes, *arrays, out)
        return out
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (len(arrays) + 1))
    signature(native.address("run"))(out.size // lanes, *(a.ctypes.data for a in (*arrays, out)))
    return out


def _emulated(native: Native, turns: int, *arrays: np.ndarray[Any, Any]) -> None:
    emulation = Emulation(flushes=False)
    words = ", ".join([f"{turns}L", *map(emulation.array, arrays)])
    emulation.call(f"{emulation.function(native.address('run'))}({words})")
    emulation.run()


def _loop(builder: ll.IRBuilder, fn: ll.Function, emit: Emit, types: list[Any], lanes: int) -> None:
    types = [ll.VectorType(t, lanes) if lanes > 1 else t for t in types]
    head, body, end = (fn.append_basic_block(n) for n in ("head", "body", "end"))
    entry = builder.block
    builder.branch(head)
    builder.position_at_end(head)
    index = builder.phi(I64)
    index.add_incoming(ll.Constant(I64, 0), entry)
    builder.cbranch(builder.icmp_signed("<", index, fn.args[0]), body, end)
    builder.position_at_end(body)
    places = [builder.gep(p, [index], source_etype=t) for p, t in zip(fn.args[1:], types, strict=True)]
    values = [builder.load(p, typ=t, align=2) for p, t in zip(places[:-1], types, strict=False)]
    builder.store(emit(builder, *values), places[-1], align=2)
    index.add_incoming(builder.add(index, ll.Constant(I64, 1)), builder.block)
    builder.branch(head)
    builder.position_at_end(end)
    builder.ret_void()
