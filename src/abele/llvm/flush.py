"""Denormal f32 numbers flushed to zero, as operands and as results: the stated mode of all native code.

Denormal data makes some CPUs 20 times slower, and the machine's f32 units flush them too. f16 is not touched.
The mode belongs to the thread, so every native entry point sets it and restores it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from abele.llvm import ir as ll
from abele.llvm.emit import I32, I64, POINTER, VOID, Value, declared
from abele.llvm.host import host_cpu
from abele.llvm.jit import compile_ir

MXCSR_FLUSH = 0x8040
"""Bits 15 (flush results) and 6 (operands are zero) of MXCSR. Source: Intel SDM volume 1, 10.2.3."""
FPCR_FLUSH = 1 << 24
"""Bit FZ of FPCR. Source: Arm ARM, C5.2.8."""


def emit_enter(builder: ll.IRBuilder) -> Value:
    """Switch flushing on; returns the mode from before, for :func:`emit_leave`."""
    if host_cpu().is_x86:
        slot = builder.alloca(I32)
        builder.call(declared(builder, "llvm.x86.sse.stmxcsr", VOID, [POINTER]), [slot])
        before = builder.load(slot, typ=I32)
        _load_mxcsr(builder, slot, builder.or_(before, ll.Constant(I32, MXCSR_FLUSH)))
        return before
    if host_cpu().is_aarch64:
        before = builder.call(declared(builder, "llvm.aarch64.get.fpcr", I64, []), [])
        _set_fpcr(builder, builder.or_(before, ll.Constant(I64, FPCR_FLUSH)))
        return before
    return ll.Constant(I64, 0)


def emit_leave(builder: ll.IRBuilder, before: Value) -> None:
    """Restore the mode that :func:`emit_enter` returned; floating-point events that happened since stay noted."""
    if host_cpu().is_x86:
        slot = builder.alloca(I32)
        builder.call(declared(builder, "llvm.x86.sse.stmxcsr", VOID, [POINTER]), [slot])
        events = builder.and_(builder.load(slot, typ=I32), ll.Constant(I32, 0x3F))
        _load_mxcsr(builder, slot, builder.or_(before, events))
    elif host_cpu().is_aarch64:
        _set_fpcr(builder, before)


X86_FLAGS = 0x0D
"""Sticky flags of MXCSR: invalid (1), divide by zero (4), overflow (8). Source: Intel SDM volume 1, 10.2.3."""


def emit_clear_flags(builder: ll.IRBuilder) -> None:
    """Forget the floating-point events of this thread."""
    if host_cpu().is_x86:
        slot = builder.alloca(I32)
        builder.call(declared(builder, "llvm.x86.sse.stmxcsr", VOID, [POINTER]), [slot])
        mode = builder.load(slot, typ=I32)
        _load_mxcsr(builder, slot, builder.and_(mode, ll.Constant(I32, ~0x3F & 0xFFFFFFFF)))
    elif host_cpu().is_aarch64:
        builder.call(declared(builder, "llvm.aarch64.set.fpsr", VOID, [I64]), [ll.Constant(I64, 0)])


def emit_flags(builder: ll.IRBuilder) -> Value:
    """Floating-point events of this thread since they were forgotten, i64: 1 invalid, 4 divide by zero, 8 overflow.

    FPSR of AArch64 has them as 1, 2 and 4. Source: Arm ARM, C5.2.9.
    """
    if host_cpu().is_x86:
        slot = builder.alloca(I32)
        builder.call(declared(builder, "llvm.x86.sse.stmxcsr", VOID, [POINTER]), [slot])
        mode = builder.zext(builder.load(slot, typ=I32), I64)
        return builder.and_(mode, ll.Constant(I64, X86_FLAGS))
    if host_cpu().is_aarch64:
        state = builder.call(declared(builder, "llvm.aarch64.get.fpsr", I64, []), [])
        high = builder.shl(builder.and_(state, ll.Constant(I64, 6)), ll.Constant(I64, 1))
        return builder.or_(builder.and_(state, ll.Constant(I64, 1)), high)
    return ll.Constant(I64, 0)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Flush denormals in this thread's Python and NumPy arithmetic within the block."""
    enter, leave = _switches()
    before = enter()
    try:
        yield
    finally:
        leave(before)


def _load_mxcsr(builder: ll.IRBuilder, slot: Value, mode: Value) -> None:
    builder.store(mode, slot)
    builder.call(declared(builder, "llvm.x86.sse.ldmxcsr", VOID, [POINTER]), [slot])


def _set_fpcr(builder: ll.IRBuilder, mode: Value) -> None:
    builder.call(declared(builder, "llvm.aarch64.set.fpcr", VOID, [I64]), [mode])


@cache
def _switches() -> tuple[Callable[[], int], Callable[[int], None]]:
    module = ll.Module("flush")
    enter = ll.Function(module, ll.FunctionType(I64, []), "enter")
    builder = ll.IRBuilder(enter.append_basic_block())
    before = emit_enter(builder)
    builder.ret(before if before.type == I64 else builder.zext(before, I64))
    leave = ll.Function(module, ll.FunctionType(VOID, [I64]), "leave")
    builder = ll.IRBuilder(leave.append_basic_block())
    mode = leave.args[0]
    emit_leave(builder, builder.trunc(mode, I32) if host_cpu().is_x86 else mode)
    builder.ret_void()
    native = compile_ir(module, speed=1)
    enter_type, leave_type = ctypes.CFUNCTYPE(ctypes.c_int64), ctypes.CFUNCTYPE(None, ctypes.c_int64)
    return enter_type(native.address("enter")), leave_type(native.address("leave"))
