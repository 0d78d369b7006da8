"""From LLVM IR to native code in this process, with objects kept in memory and on disk."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import llvmlite
import llvmlite.binding as binding
from llvmlite.binding import ffi

from abele.llvm.cache import load_object, store_object
from abele.llvm.host import host_cpu, is_elsewhere, num_threads, per_cpu
from abele.llvm.narrow import half_functions

CODEGEN_VERSION = 2
"""Part of every cache key; raised when this module makes other code from the same IR."""
CLEANED = 1
"""Optimisation level up to which code is cleaned up only: its writer has vectorised and unrolled it. At 0 it stays."""
_MOST_COMPARED = 200
"""Accesses of a block that LLVM's scheduler compares with each other; beyond, the oldest of them are one barrier. By
itself it compares 1,000. Blocks of unrolled loops have thousands: those of a MobileNet took a quarter of all code
generation. The 261 objects of that and of ResNet-18 are the same bytes."""

_SWITCH_SECONDS = 1e-4
"""Time that a thread waits for Python while others make code. A module has thirty calls of LLVM that take no time, and
after each of them its thread would wait for Python's own 5 ms."""

_HALF = re.compile(r"\bhalf\b")
"""LLVM's type of f16; few modules have it, since kernels convert its bits."""

_lock = threading.RLock()
_numbers = itertools.count()
_loaded: dict[tuple[type, str], Native] = {}
_built: dict[tuple[type, str], Native] = {}
"""Code that this process made, by a digest of the CPU, the level and the text."""
_places = itertools.count(1 << 60, 16)
"""Numbers in place of addresses: no process of a 64-bit CPU has memory there."""
_foreign: dict[int, tuple[ForeignCode, str]] = {}


class Native:
    """Native code in memory; it stays there as long as this object lives.

    Attributes:
        key: Digest of its content.
        cached: True if the object came from the disk cache.
    """

    def __init__(self, key: str, data: bytes, cached: bool) -> None:
        self.key = key
        self.cached = cached
        self._library = f"abele{next(_numbers)}"
        self._found: dict[str, Any] = {}
        self._tracker = (
            binding.JITLibraryBuilder().add_object_img(data).add_current_process().link(_jit(), self._library)
        )

    def address(self, symbol: str) -> int:
        """Address of a function or global of the module."""
        with _lock:
            if symbol not in self._found:
                self._found[symbol] = _jit().lookup(self._library, symbol)
            return int(self._found[symbol][symbol])


class ForeignCode(Native):
    """Code for another CPU, which nothing here can run.

    Attributes:
        data: The object file.
    """

    def __init__(self, key: str, data: bytes, cached: bool) -> None:
        self.key, self.data, self.cached = key, data, cached
        self._numbers: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        """A number in place of an address, which no memory can have."""
        with _lock:
            if symbol not in self._numbers:
                self._numbers[symbol] = next(_places)
                _foreign[self._numbers[symbol]] = self, symbol
            return self._numbers[symbol]


def foreign_symbol(address: int) -> tuple[ForeignCode, str] | None:
    """The object and the symbol that a number stands for; None if it is no such number."""
    return _foreign.get(address)


@dataclass(frozen=True)
class ModuleSource:
    """A module to be compiled.

    Attributes:
        content: Everything that the module depends on, apart from the host CPU and the version of LLVM.
        make: Returns the module or its text; it is not called when the code is known already.
        speed: Optimisation level, 0 to 3; up to :data:`CLEANED` for code whose loops stay as they are.
    """

    content: str
    make: Callable[[], Any]
    speed: int = 3

    @property
    def key(self) -> str:
        """Digest of the content and of what makes code of it."""
        return hashlib.sha256(f"{_environment()}\n{self.speed}\n{self.content}".encode()).hexdigest()


def compile_ir(module: Any, *, speed: int = 3) -> Native:
    """Native code of an LLVM module; equal modules share one.

    Args:
        module: An ``llvmlite.ir.Module`` or its text.
        speed: Optimisation level, 0 to 3; up to :data:`CLEANED` for code whose loops stay as they are.
    """
    text = str(module)
    return compile_keyed(text, lambda: text, speed=speed)


def compile_keyed(content: str, make: Callable[[], Any], *, speed: int = 3) -> Native:
    """Native code of one :class:`ModuleSource`."""
    return compile_all([ModuleSource(content, make, speed)])[0]


def compile_all(sources: Sequence[ModuleSource]) -> list[Native]:
    """Native code of each module. While this thread makes the text of one, others make code of those before."""
    with _lock:
        kind, keys = _kind(), [source.key for source in sources]
        for key in keys:
            if (kind, key) not in _loaded and (native := _load(key)) is not None:
                _loaded[kind, key] = native
        wanted = {key: source for key, source in zip(keys, sources, strict=True) if (kind, key) not in _loaded}
        _loaded.update({(kind, key): native for key, native in _built_all(wanted)})
        return [_loaded[kind, key] for key in keys]


def optimised_ir(module: Any, *, speed: int = 3) -> str:
    """Text of ``module`` after optimisation, for readers."""
    with _lock:
        return str(_compiler().optimised(str(module), speed))


def assembly(module: Any, *, speed: int = 3) -> str:
    """Assembly of ``module``, for readers."""
    with _lock:
        compiler = _compiler()
        return str(compiler.machine(speed).emit_assembly(compiler.optimised(str(module), speed)))


def _load(key: str) -> Native | None:
    data = load_object(key)
    return None if data is None else _kind()(key, data, cached=True)


def _built_all(sources: Mapping[str, ModuleSource]) -> Iterator[tuple[str, Native]]:
    """Code of modules that are known nowhere, with their keys."""
    kind, waiting = _kind(), []
    with _object_makers(len(sources)) as make_object:
        made: dict[str, Callable[[], bytes]] = {}
        for key, source in sources.items():
            text = str(source.make())
            # What modules are made from may differ where their text does not: nests with other names of dims, say.
            digest = hashlib.sha256(f"{_environment()}\n{source.speed}\n{text}".encode()).hexdigest()
            if (kind, digest) not in _built and digest not in made:
                made[digest] = make_object(text, source.speed)
            waiting.append((key, digest))
        for key, digest in waiting:
            if (kind, digest) not in _built:
                data = made[digest]()
                store_object(key, data)
                _built[kind, digest] = kind(key, data, cached=False)
            elif (known := load_object(_built[kind, digest].key)) is not None:
                store_object(key, known)
            yield key, _built[kind, digest]


ObjectMaker = Callable[[str, int], Callable[[], bytes]]
"""Begins to make the object of a text at a level; what it returns waits for the object."""


@contextmanager
def _object_makers(count: int) -> Iterator[ObjectMaker]:
    """Makes objects of ``count`` modules: here, or side by side in other threads where there are several cores."""
    if count < 2 or num_threads() < 2:
        yield lambda text, speed: partial(bytes, _compiler().object_of(text, speed))
        return
    _initialise()
    own, interval = threading.local(), sys.getswitchinterval()

    def made(text: str, speed: int) -> bytes:
        if not hasattr(own, "compiler"):
            own.compiler = _Compiler(binding.create_context())
        compiler: _Compiler = own.compiler
        return compiler.object_of(text, speed)

    with ThreadPoolExecutor(min(count, num_threads()), thread_name_prefix="abele-llvm") as threads:
        # LLVM runs without Python's lock; between its calls a thread would wait for it as long as an interval.
        sys.setswitchinterval(min(interval, _SWITCH_SECONDS))
        try:
            yield lambda text, speed: threads.submit(made, text, speed).result
        finally:
            sys.setswitchinterval(interval)


def _kind() -> type[Native]:
    return ForeignCode if is_elsewhere() else Native


class _Compiler:
    """LLVM for one thread at a time: nothing in it is shared with others.

    Args:
        context: Context of its modules.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._machines: dict[int, Any] = {}

    def machine(self, speed: int) -> Any:
        """The machine that code of a level is made for."""
        if speed not in self._machines:
            self._machines[speed] = _new_machine(speed)
        return self._machines[speed]

    def object_of(self, text: str, speed: int) -> bytes:
        """The object file of a module."""
        return _emitted(self.machine(speed), self.optimised(text, speed))

    def optimised(self, text: str, speed: int) -> Any:
        """The module of a text, after the passes of a level."""
        machine = self.machine(speed)
        parsed = _parsed(text, self._context)
        if _HALF.search(text) and not host_cpu().converts_half:
            parsed.link_in(_parsed(_half_functions(), self._context))
        parsed.verify()
        parsed.triple = host_cpu().triple
        parsed.data_layout = str(machine.target_data)
        if speed:
            manager, passes = self._manager(speed)
            _freely(ffi.lib.LLVMPY_RunNewModulePassManager)(manager, parsed, passes)
        return parsed

    def _manager(self, speed: int) -> tuple[Any, Any]:
        """Passes of a level."""
        options = binding.PipelineTuningOptions(speed_level=speed)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = speed > CLEANED
        options.loop_interleaving = speed > CLEANED
        passes = binding.create_pass_builder(self.machine(speed), options)
        return (_cleaning() if speed <= CLEANED else passes.getModulePassManager()), passes


@per_cpu
def _compiler() -> _Compiler:
    """LLVM for whoever holds the lock."""
    return _Compiler(binding.get_global_context())


# llvmlite lets one thread into LLVM at a time. LLVM itself wants no more than that threads share no context, machine
# or passes; so what takes long is called without the lock.


def _freely(function: Any) -> Any:
    """A function of LLVM without llvmlite's lock, if it can be had."""
    return getattr(function, "_cfn", function)


def _parsed(text: str, context: Any) -> Any:
    """The module of a text in a context."""
    with ffi.OutputString() as problem:
        source = ctypes.c_char_p(text.encode())
        module = binding.ModuleRef(_freely(ffi.lib.LLVMPY_ParseAssembly)(context, source, problem), context)
        if problem:
            module.close()
            raise RuntimeError(f"LLVM cannot read the module: {problem}")
    return module


def _emitted(machine: Any, module: Any) -> bytes:
    """The object file of a module."""
    with ffi.OutputString() as problem:
        buffer = _freely(ffi.lib.LLVMPY_TargetMachineEmitToMemory)(machine, module, 1, problem)
        if not buffer:
            raise RuntimeError(str(problem))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@cache
def _half_functions() -> str:
    return half_functions()


def _cleaning() -> Any:
    """Passes that clean up code with finished loops.

    LLVM's own level 1 takes five to ten times as long: it combines instructions four times, and looks into every pair
    of accesses of unrolled loops for what might be carried from one round to the next. Kernels ran as fast, to the bit.
    """
    manager = binding.create_new_module_pass_manager()
    manager.add_sroa_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    return manager


@per_cpu
def _environment() -> str:
    cpu = host_cpu()
    llvm = ".".join(map(str, binding.llvm_version_info))
    return f"{CODEGEN_VERSION} {llvmlite.__version__} {llvm} {cpu.triple} {cpu.name} {cpu.feature_string}"


@per_cpu
def _initialise() -> None:
    initialise_targets()
    binding.initialize_native_asmparser()
    binding.set_option("abele", f"-dag-maps-huge-region={_MOST_COMPARED}")


def _new_machine(speed: int) -> Any:
    """The CPU that code is made for, with a level of optimisation."""
    _initialise()
    cpu = host_cpu()
    return binding.Target.from_triple(cpu.triple).create_target_machine(
        cpu=cpu.name, features=cpu.feature_string, opt=speed, reloc="pic", codemodel="small"
    )


def initialise_targets() -> None:
    """Let LLVM know the kinds of CPU that code is made for."""
    if is_elsewhere():
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


@cache
def _jit() -> Any:
    # The older linker asks the system for each section of an object by itself. In a process whose address space is in
    # pieces they may come to lie more than 2 GiB apart, where code does not reach its constants: the process ends.
    # JITLink puts an object into one piece of memory, and takes less time; for Windows it is not complete.
    return binding.create_lljit_compiler(_new_machine(3), use_jit_link=sys.platform != "win32")
