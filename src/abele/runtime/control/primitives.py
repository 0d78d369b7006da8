"""The runtime's own native functions: the control virtual machine and copies, from the LLVM texts in ``texts/``."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from importlib import resources
from string import Template

from abele.llvm import ir as ll
from abele.llvm.emit import I32, I64, POINTER, VOID, declared
from abele.llvm.flush import emit_clear_flags, emit_enter, emit_flags, emit_leave
from abele.llvm.host import host_cpu, per_cpu
from abele.llvm.jit import Native, compile_ir
from abele.runtime.control.bytecode import (
    ACTION_BYTES,
    WORDS,
    ZONE,
    GuardWord,
    NotesHead,
    NoteWord,
    Opcode,
    SharedWord,
    StreamMode,
    StreamWord,
    Verdict,
)

ELEMENT_BYTES = (1, 2, 4, 8)
"""Lengths of runs that :func:`copy_elements` is there for."""
INFINITY = {"f16": (2, 0x7C00), "bf16": (2, 0x7F80), "f32": (4, 0x7F800000)}
"""Bytes of an element and bits of infinity, by type; what is greater without its sign is no number."""
_MACHINE_SPEED = 1
"""Optimisation level of the virtual machine, written as it is to run: its own steps are few beside those of leaves."""
SPINS = 4_000
"""Looks at a word before a thread sleeps. They take some 100 microseconds; to wake it takes 5 to 50."""
_SLEEP_MICROSECONDS = 50
_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129
"""Linux' call ``futex`` by machine, and its operations within a process. Source: Linux, ``asm/unistd_64.h``,
``asm-generic/unistd.h``, ``linux/futex.h``."""


def can_recover() -> bool:
    """True if a fault of the processor in a leaf can be left; it depends on registers and on the form of signals."""
    return host_cpu().is_x86 and sys.platform == "linux"


@dataclass(frozen=True)
class Primitives:
    """Addresses of the control virtual machine and its companions.

    Attributes:
        run: ``i64 run(shared, thread, registers)``, the control virtual machine.
        timed_run: The same, which notes times.
        clock_cost: ``i64 clock_cost(notes, i64 tries)``: nanoseconds that reading the clock of some notes takes.
        clear_flags: Leaf that clears a thread's floating-point flags; one unit per thread.
        read_flags: Leaf that notes a thread's flags; one unit per thread.
        changed_zone: ``i64 changed_zone(i64 first, i64 count, i64* begins, i64* ends)``.
        fill_zones: ``void fill_zones(i64 first, i64 count, i64* begins, i64* ends)``.
        call_guarded: ``i64 call_guarded(guard, leaf, i64 begin, i64 end, args, i64 extra)``; 1 if it faulted.
        native: Owner of the code in memory.
    """

    run: int
    timed_run: int
    clock_cost: int
    clear_flags: int
    read_flags: int
    changed_zone: int
    fill_zones: int
    call_guarded: int
    native: Native


@per_cpu
def primitives() -> Primitives:
    """The control virtual machine, compiled or taken from the cache at the first call."""
    native = compile_ir(module_text(), speed=_MACHINE_SPEED)
    return Primitives(
        run=native.address("plain_run"),
        timed_run=native.address("timed_run"),
        clock_cost=native.address("clock_cost"),
        clear_flags=native.address("clear_flags"),
        read_flags=native.address("read_flags"),
        changed_zone=native.address("changed_zone"),
        fill_zones=native.address("fill_zones"),
        call_guarded=native.address("call_guarded"),
        native=native,
    )


def module_text() -> str:
    """LLVM text of the control virtual machine."""
    constants = _constants()
    parts = [_host_functions(), _sleep(), _text("barrier", **constants)]
    for kind in ("plain", "timed"):
        parts += [_text(kind, **constants), _text("vm", **constants, KIND=kind)]
    return "\n".join([*parts, _text(_guarded(), **_guards()), _text("zones", **_zones())])


# The leaves that follow move data or look at it; each is compiled when a program first asks for it.


def copy_runs() -> int:
    """Leaf that copies runs of any length; its units are runs."""
    return _compiled("copies").address("copy_runs")


def copy_elements(width: int) -> int:
    """Leaf that copies runs of ``width`` bytes, one of :data:`ELEMENT_BYTES`."""
    return _compiled("copy_elements", BYTES=width, BITS=8 * width).address(f"copy_elements_{width}")


def move_rows() -> int:
    """Leaf that moves rows of a remote buffer."""
    return _compiled("move_rows").address("move_rows")


def find_nonfinite(type_name: str) -> int:
    """Leaf that finds rows with a NaN or an infinity, of one of the :data:`INFINITY` types."""
    size, bits = INFINITY[type_name]
    magnitude = (1 << 8 * size - 1) - 1
    sizes = {"BYTES": size, "BITS": 8 * size, "INFINITY": bits, "MAGNITUDE": magnitude}
    return _compiled("nonfinite", NAME=type_name, **sizes).address(f"nonfinite_{type_name}")


@per_cpu
def _compiled(name: str, **constants: int | str) -> Native:
    return compile_ir(_text(name, **constants))


def _sleep() -> str:
    """LLVM text of what barriers sleep by."""
    machine = platform.machine()
    if sys.platform == "linux" and machine in _FUTEX:
        return _text("sleep_linux", SYS_FUTEX=_FUTEX[machine], FUTEX_WAIT=_FUTEX_WAIT, FUTEX_WAKE=_FUTEX_WAKE)
    return _text("sleep_anywhere", SLEEP_MICROSECONDS=_SLEEP_MICROSECONDS)


def _guarded() -> str:
    return "guarded_x86" if can_recover() else "guarded_plain"


def _guards() -> dict[str, int]:
    return {f"GUARD_{w.name}": int(w) for w in GuardWord} | {"ACTION_BYTES": ACTION_BYTES}


def _zones() -> dict[str, int]:
    low, high = ZONE.to_bytes(2, "little")
    word = int.from_bytes(ZONE.to_bytes(2, "little") * 4, "little")
    return {"ZONE_LOW": low, "ZONE_HIGH": high, "ZONE_WORD": word}


def _text(name: str, **constants: int | str) -> str:
    template = resources.files("abele.runtime.control").joinpath("texts", f"{name}.ll").read_text()
    return Template(template).substitute(constants)


def _constants() -> dict[str, int]:
    names = {"WORDS": WORDS}
    enums = {
        "OP": Opcode,
        "SHARED": SharedWord,
        "VERDICT": Verdict,
        "STREAM": StreamWord,
        "NOTE": NoteWord,
        "NOTES": NotesHead,
    }
    for prefix, enum in enums.items():
        names |= {f"{prefix}_{item.name}": int(item) for item in enum}
    return names | {f"MODE_{item.name}": int(item) for item in StreamMode}


def _host_functions() -> str:
    """LLVM text of functions that differ between processors: ``flush_denormals``, ``restore_denormals``, ``pause``."""
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
    _flag_leaves(module)
    return str(module)


def _flag_leaves(module: ll.Module) -> None:
    """Leaves ``clear_flags`` and ``read_flags``, of which every thread runs one unit.

    Flags: 1 invalid, 4 division by zero, 8 overflow, wherever the processor has them. Source: Intel SDM volume 1,
    10.2.3; Arm ARM, C5.2.9 (FPSR: 1, 2, 4), put in the same places.
    """
    kind = ll.FunctionType(VOID, [I64, I64, POINTER])
    clear = ll.Function(module, kind, "clear_flags")
    builder = ll.IRBuilder(clear.append_basic_block("entry"))
    emit_clear_flags(builder)
    builder.ret_void()
    read = ll.Function(module, kind, "read_flags")
    builder = ll.IRBuilder(read.append_basic_block("entry"))
    table = builder.load(read.args[2], typ=POINTER)
    builder.store(emit_flags(builder), builder.gep(table, [read.args[0]], source_etype=I64))
    builder.ret_void()


def _internal(module: ll.Module, name: str, result: ll.Type, args: list[ll.Type]) -> ll.IRBuilder:
    function = ll.Function(module, ll.FunctionType(result, args), name)
    function.linkage = "internal"
    return ll.IRBuilder(function.append_basic_block("entry"))
