"""The runtime's own native functions: the control virtual machine and copies, from the LLVM texts in ``native/``."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template

from llvmlite import ir as ll

from abele.llvm.emit import I32, I64, VOID, declared
from abele.llvm.flush import emit_enter, emit_leave
from abele.llvm.host import host_cpu
from abele.llvm.jit import Native, compile_ir
from abele.runtime.bytecode import WORDS, Op, Shared, StreamMode, StreamWord, Verdict

_ELEMENT_BYTES = (1, 2, 4, 8)
_WAITING = {"SPINS_BEFORE_YIELD": 4_000, "SPINS_BEFORE_SLEEP": 24_000, "SLEEP_MICROSECONDS": 50}


@dataclass(frozen=True)
class Primitives:
    """Addresses of the runtime's native functions.

    Attributes:
        run: ``i64 run(shared, thread, registers)``, the control virtual machine.
        copy_runs: Leaf that copies runs of any length; its units are runs.
        element_copies: By bytes of a run, the leaf for runs that are all as long.
        native: What keeps the code in memory.
    """

    run: int
    copy_runs: int
    element_copies: dict[int, int]
    native: Native


@cache
def primitives() -> Primitives:
    """The runtime's native functions, compiled or taken from the cache at the first call."""
    native = compile_ir(module_text())
    elements = {n: native.address(f"copy_elements_{n}") for n in _ELEMENT_BYTES}
    return Primitives(native.address("run"), native.address("copy_runs"), elements, native)


def module_text() -> str:
    """LLVM text of all native functions of the runtime."""
    elements = (_text("copy_elements", BYTES=n, BITS=8 * n) for n in _ELEMENT_BYTES)
    return "\n".join([_host_functions(), _text("vm", **_constants()), _text("copies"), *elements])


def _text(name: str, **constants: int) -> str:
    template = resources.files("abele.runtime").joinpath("native", f"{name}.ll").read_text()
    return Template(template).substitute(constants)


def _constants() -> dict[str, int]:
    names = {"WORDS": WORDS, **_WAITING}
    for prefix, enum in (("OP", Op), ("SHARED", Shared), ("VERDICT", Verdict), ("STREAM", StreamWord)):
        names |= {f"{prefix}_{item.name}": int(item) for item in enum}
    return names | {f"MODE_{item.name}": int(item) for item in StreamMode}


def _host_functions() -> str:
    """What differs between processors: ``flush_denormals``, ``restore_denormals`` and ``pause``."""
    module = ll.Module("runtime")
    builder = _internal(module, "flush_denormals", I64, [])
    mode = emit_enter(builder)
    builder.ret(mode if mode.type == I64 else builder.zext(mode, I64))
    builder = _internal(module, "restore_denormals", VOID, [I64])
    mode = builder.function.args[0]
    emit_leave(builder, builder.trunc(mode, I32) if host_cpu().is_x86 else mode)
    builder.ret_void()
    builder = _internal(module, "pause", VOID, [])
    if host_cpu().is_x86:
        builder.call(declared(builder, "llvm.x86.sse2.pause", VOID, []), [])
    elif host_cpu().is_aarch64:
        builder.call(declared(builder, "llvm.aarch64.hint", VOID, [I32]), [ll.Constant(I32, 1)])
    builder.ret_void()
    return str(module)


def _internal(module: ll.Module, name: str, result: ll.Type, args: list[ll.Type]) -> ll.IRBuilder:
    function = ll.Function(module, ll.FunctionType(result, args), name)
    function.linkage = "internal"
    return ll.IRBuilder(function.append_basic_block("entry"))


@cache
def host_waits() -> tuple[int, int]:
    """Addresses of the C library's ``sched_yield`` and ``usleep``."""
    library = ctypes.CDLL(None)
    first, second = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (library.sched_yield, library.usleep))
    return first, second
