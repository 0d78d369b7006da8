"""Rates of this machine: f32 operations per second of its cores, and bytes that they move.

Both are measured by loops of native code. Arithmetic: chains of multiply-adds in registers, as many side by side as
hide their latency, without any memory. Memory: one array is read and another written, each too large for all caches;
bytes are counted as read and written once, as a leaf's are. Time is that for which each thread was given a core, and
the best of several rounds counts, so that what else runs on the machine disturbs little. All threads together: each
thread's own rate while the others run too, summed.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from abele.llvm import ir as ll
from abele.llvm.cache import cache_directory, write_whole
from abele.llvm.emit import F32, I64, POINTER, VOID, constant, multiply_add
from abele.llvm.host import host_cpu, num_threads
from abele.llvm.jit import Native, compile_ir

# Facts measured on a host, kept as JSON beside the cache of compiled code, one file per fact and host.
#
# A file is found again by the CPU (its name, features and number of cores that the process may use), so that hosts
# which share a home directory keep their own. Files appear whole or not at all; two processes that measure at once
# both store theirs, and either will do. What cannot be read, or was written for another version of the fact, is
# measured again.

T = TypeVar("T")

_FOLDER = "host"
_lock = threading.RLock()
_known: dict[tuple[str, int, str], object] = {}


def measured(name: str, version: int, kind: type[T], measure: Callable[[], T], *, anew: bool = False) -> T:
    """Fact about this host; it is measured on first use.

    Args:
        name: Of the fact: letters, digits and dashes.
        version: Raised when the fact is measured in another way, or means something else.
        kind: Its type, as msgspec converts it to and from JSON: a struct, dataclass, mapping, list or number.
        measure: Measures it; what it raises is passed on, and nothing is kept.
        anew: True to measure it now, whatever is known.
    """
    key = name, version, host_name()
    with _lock:
        if anew or key not in _known:
            found = None if anew else _load(name, version, kind)
            if found is None:
                found = measure()
                _store(name, version, found)
            _known[key] = found
        return cast(T, _known[key])


def forget() -> int:
    """Forget all facts about this host, so that they are measured again when they are needed; gives how many files
    were removed."""
    with _lock:
        _known.clear()
        folder, removed = _folder(), 0
        for path in sorted(folder.glob("*.json")) if folder is not None else ():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
        return removed


@cache
def host_name() -> str:
    """The CPU and its cores, as in ``AMD EPYC 9R14, znver4, 2 cores``."""
    cores = num_threads()
    named = dict.fromkeys((_model(), host_cpu().name))
    return ", ".join([*(n for n in named if n), f"{cores} core" + "s" * (cores != 1)])


def _model() -> str:
    """Name of the CPU in the system's words; empty where it has none."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return ""


def _folder() -> Path | None:
    directory = cache_directory()
    identity = f"{host_name()}\n{host_cpu().feature_string}".encode()
    return None if directory is None else directory / _FOLDER / hashlib.sha256(identity).hexdigest()[:16]


def _path(name: str, version: int) -> Path | None:
    folder = _folder()
    return None if folder is None else folder / f"{name}-{version}.json"


def _load(name: str, version: int, kind: type[T]) -> T | None:
    path = _path(name, version)
    if path is None:
        return None
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None


def _store(name: str, version: int, fact: object) -> None:
    """Keep a fact; a directory that cannot be written to is no error."""
    path = _path(name, version)
    if path is None:
        return
    with contextlib.suppress(OSError):
        write_whole(path, msgspec.json.format(msgspec.json.encode(fact)))


VERSION = 1
"""Raised when rates are measured in another way."""
_ROUNDS = 6
_MULTIPLY_ADDS = 1 << 19
"""Rounds of the loop of multiply-adds: some milliseconds."""
_ARRAY_BYTES = 96 << 20
"""An array that no cache holds next to another."""
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class MachineRates:
    """Rates of the cores of this machine.

    Attributes:
        threads: Number of all threads.
        flops_per_second: f32 operations of one thread.
        bytes_per_second: Bytes that one thread reads and writes.
        all_flops_per_second: f32 operations of all threads.
        all_bytes_per_second: Bytes that all threads read and write.
    """

    threads: int
    flops_per_second: float
    bytes_per_second: float
    all_flops_per_second: float
    all_bytes_per_second: float


def machine_rates(*, anew: bool = False) -> MachineRates:
    """The rates of this machine; measured once per host, in about a second, or now if ``anew``."""
    return measured("rates", VERSION, MachineRates, measure_rates, anew=anew)


def measure_rates() -> MachineRates:
    """Measure the rates now."""
    native = compile_ir(_module())
    threads = num_threads()
    one, every = (tuple(rate(native, n) for rate in (_arithmetic, _memory)) for n in (1, threads))
    return MachineRates(threads, *one, *every)


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArithmeticLoop:
    """Loop of multiply-adds in registers.

    Attributes:
        run: Runs so many turns.
        operations: Of a turn.
    """

    run: Callable[[int], None]
    operations: int


@cache
def arithmetic_loop() -> ArithmeticLoop:
    """Loop that runs at the rate of this machine's arithmetic."""
    return _arithmetic_loop(compile_ir(_module()))


def _arithmetic_loop(native: Native) -> ArithmeticLoop:
    function = _RUN(native.address("multiply_adds"))
    values = np.array([0.999, 0.001], np.float32)

    def run(turns: int) -> None:
        assert native  # its code
        function(turns, values.ctypes.data, values.ctypes.data)

    return ArithmeticLoop(run, 2 * _chains() * _lanes())


def _arithmetic(native: Native, threads: int) -> float:
    loop = _arithmetic_loop(native)
    return _best_rate(_MULTIPLY_ADDS * loop.operations, lambda _: loop.run(_MULTIPLY_ADDS), threads)


def _memory(native: Native, threads: int) -> float:
    run = _RUN(native.address("stream"))
    share = _ARRAY_BYTES // threads // 64 * 64
    arrays = [(_touched(share), _touched(share)) for _ in range(threads)]

    def work(thread: int) -> None:
        source, destination = arrays[thread]
        run(share // (4 * _lanes()), source.ctypes.data, destination.ctypes.data)

    return _best_rate(2 * share, work, threads)


def _touched(size: int) -> Bytes:
    """Memory that the operating system has given already."""
    return np.ones(size, np.uint8)


def _best_rate(amount: int, work: Callable[[int], None], threads: int) -> float:
    """The most of ``amount`` per second and thread that a round of ``work`` in all threads does, summed over them."""
    return max(sum(amount / seconds for seconds in _round(work, threads)) for _ in range(_ROUNDS))


def _round(work: Callable[[int], None], threads: int) -> list[float]:
    """Processor time of each thread, all of which begin together."""
    seconds = [0.0] * threads
    begin = threading.Barrier(threads)

    def run(thread: int) -> None:
        begin.wait()
        start = time.thread_time()
        work(thread)
        seconds[thread] = max(time.thread_time() - start, 1e-9)

    others = [threading.Thread(target=run, args=(n,)) for n in range(1, threads)]
    for other in others:
        other.start()
    run(0)
    for other in others:
        other.join()
    return seconds


# --- code ------------------------------------------------------------------------------------------------------------


def _lanes() -> int:
    return host_cpu().vector_bytes // 4


def _chains() -> int:
    """Multiply-adds side by side: more than any core has under way, and fewer than there are registers."""
    return 24 if host_cpu().vector_bytes == 64 or host_cpu().is_aarch64 else 12


def _module() -> ll.Module:
    module = ll.Module("rates")
    _multiply_adds(module)
    _stream(module)
    return module


def _function(module: ll.Module, name: str) -> tuple[ll.Function, ll.IRBuilder]:
    function = ll.Function(module, ll.FunctionType(VOID, [I64, POINTER, POINTER]), name)
    return function, ll.IRBuilder(function.append_basic_block("entry"))


def _multiply_adds(module: ll.Module) -> None:
    """``x = x·a + b`` in registers, in some chains; a and b come from memory, so that nothing is known of them."""
    function, builder = _function(module, "multiply_adds")
    rounds, source, destination = function.args
    vector = ll.VectorType(F32, _lanes())
    factor, term = (
        _spread(builder, builder.load(builder.gep(source, [constant(I64, n)], source_etype=F32), typ=F32), vector)
        for n in range(2)
    )
    entry, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    count = builder.phi(I64)
    chains = [builder.phi(vector) for _ in range(_chains())]
    results = [multiply_add(builder, chain, factor, term) for chain in chains]
    following = builder.add(count, constant(I64, 1))
    count.add_incoming(constant(I64, 0), entry)
    count.add_incoming(following, loop)
    for number, (chain, result) in enumerate(zip(chains, results, strict=True)):
        chain.add_incoming(constant(vector, 1.0 + number), entry)
        chain.add_incoming(result, loop)
    builder.cbranch(builder.icmp_signed("<", following, rounds), loop, after)
    builder.position_at_end(after)
    total = results[0]
    for result in results[1:]:
        total = builder.fadd(total, result)
    # The sum is stored only where there were no rounds: nothing is thrown away, and several threads write nothing.
    never, done = builder.append_basic_block("never"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed("<", rounds, constant(I64, 0)), never, done)
    builder.position_at_end(never)
    builder.store(total, destination, align=4)
    builder.branch(done)
    builder.position_at_end(done)
    builder.ret_void()


def _stream(module: ll.Module) -> None:
    """``y[i] = x[i] + 1`` over vectors."""
    function, builder = _function(module, "stream")
    vectors, source, destination = function.args
    vector = ll.VectorType(F32, _lanes())
    entry, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.branch(loop)
    builder.position_at_end(loop)
    place = builder.phi(I64)
    value = builder.load(builder.gep(source, [place], source_etype=vector), typ=vector, align=4)
    value = builder.fadd(value, constant(vector, 1.0))
    builder.store(value, builder.gep(destination, [place], source_etype=vector), align=4)
    following = builder.add(place, constant(I64, 1))
    place.add_incoming(constant(I64, 0), entry)
    place.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, vectors), loop, after)
    builder.position_at_end(after)
    builder.ret_void()


def _spread(builder: ll.IRBuilder, scalar: ll.Value, vector: ll.VectorType) -> ll.Value:
    """A vector with a scalar in every lane."""
    one = builder.insert_element(ll.Constant(vector, ll.Undefined), scalar, ll.Constant(ll.IntType(32), 0))
    zeros = ll.Constant(ll.VectorType(ll.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ll.Constant(vector, ll.Undefined), zeros)
