"""From LLVM IR to native code in this process, with objects kept in memory and on disk."""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as binding

from abele.llvm.cache import load_object, store_object
from abele.llvm.host import host_cpu, is_elsewhere, per_cpu
from abele.llvm.narrow import half_functions

CODEGEN_VERSION = 2
"""Part of every cache key; raised when this module makes other code from the same IR."""
CLEANED = 1
"""Optimisation level up to which code is cleaned up only: its writer has vectorised and unrolled it. At 0 it stays."""
_MOST_COMPARED = 200
"""Accesses of a block that LLVM's scheduler compares with each other; beyond, the oldest of them are one barrier. By
itself it compares 1,000. Blocks of unrolled loops have thousands: those of a MobileNet took a quarter of all code
generation. The 261 objects of that and of ResNet-18 are the same bytes."""

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


def compile_ir(module: Any, *, speed: int = 3) -> Native:
    """Native code of an LLVM module; equal modules share one.

    Args:
        module: An ``llvmlite.ir.Module`` or its text.
        speed: Optimisation level, 0 to 3; up to :data:`CLEANED` for code whose loops stay as they are.
    """
    text = str(module)
    return compile_keyed(text, lambda: text, speed=speed)


def compile_keyed(content: str, make: Callable[[], Any], *, speed: int = 3) -> Native:
    """Native code of the module that ``make`` returns; it is not called when the code is known already.

    Args:
        content: Everything that the module depends on, apart from the host CPU and the version of LLVM.
        make: Returns the module or its text.
        speed: Optimisation level, 0 to 3; up to :data:`CLEANED` for code whose loops stay as they are.
    """
    key = hashlib.sha256(f"{_environment()}\n{speed}\n{content}".encode()).hexdigest()
    known = _kind(), key
    with _lock:
        if known not in _loaded:
            _loaded[known] = _load(key) or _build(key, str(make()), speed)
        return _loaded[known]


def optimised_ir(module: Any, *, speed: int = 3) -> str:
    """Text of ``module`` after optimisation, for readers."""
    with _lock:
        return str(_optimised(str(module), speed))


def assembly(module: Any, *, speed: int = 3) -> str:
    """Assembly of ``module``, for readers."""
    with _lock:
        return str(_machine(speed).emit_assembly(_optimised(str(module), speed)))


def _load(key: str) -> Native | None:
    data = load_object(key)
    return None if data is None else _kind()(key, data, cached=True)


def _build(key: str, text: str, speed: int) -> Native:
    # What modules are made from may differ where their text does not: nests with other names of dims, say.
    digest = _kind(), hashlib.sha256(f"{_environment()}\n{speed}\n{text}".encode()).hexdigest()
    if digest in _built:
        if (known := load_object(_built[digest].key)) is not None:
            store_object(key, known)
        return _built[digest]
    data = bytes(_machine(speed).emit_object(_optimised(text, speed)))
    store_object(key, data)
    _built[digest] = _kind()(key, data, cached=False)
    return _built[digest]


def _kind() -> type[Native]:
    return ForeignCode if is_elsewhere() else Native


def _optimised(text: str, speed: int) -> Any:
    machine = _machine(speed)
    parsed = binding.parse_assembly(text)
    if _HALF.search(text) and not host_cpu().converts_half:
        parsed.link_in(binding.parse_assembly(_half_functions()))
    parsed.verify()
    parsed.triple = host_cpu().triple
    parsed.data_layout = str(machine.target_data)
    options = binding.PipelineTuningOptions(speed_level=speed)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = speed > CLEANED
    options.loop_interleaving = speed > CLEANED
    passes = binding.create_pass_builder(machine, options)
    if speed:
        (_cleaning() if speed <= CLEANED else passes.getModulePassManager()).run(parsed, passes)
    return parsed


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
def _machine(speed: int) -> Any:
    initialise_targets()
    binding.initialize_native_asmparser()
    binding.set_option("abele", f"-dag-maps-huge-region={_MOST_COMPARED}")
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
    return binding.create_lljit_compiler(_machine(3), use_jit_link=sys.platform != "win32")
