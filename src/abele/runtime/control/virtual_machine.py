"""The virtual machine's memory: code, shared words, every thread's registers; and one run of it.

Registers hold what differs between threads: pointers to scratch memory, and how far each stream is. They are filled
once, so that starting a program writes a few words and wakes the threads. Shared words that are written while a
program runs (the release word, each thread's arrival, the stop request) have a cache line each: threads that look at
one are not disturbed by writes to another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int64
from abele.graph import Stream
from abele.llvm import host
from abele.runtime.control.alone import LoneSpans
from abele.runtime.control.bytecode import SharedWord, StreamMode, StreamWord, Verdict
from abele.runtime.control.emitter import Emitter, Notes, TimedInstruction
from abele.runtime.control.faults import Fault, Guards, hear_faults, prepare_thread
from abele.runtime.control.leaf import Leaf, Scratch, Workspace
from abele.runtime.control.primitives import SPINS, primitives
from abele.runtime.control.threads import Workers
from abele.runtime.memory.host_memory import address_of, aligned_block

if TYPE_CHECKING:
    from abele.runtime.streams.connection import Connection


# Callbacks: Python that a running program calls, and their errors.

_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


class Callbacks:
    """A numbered table of functions behind one C function pointer."""

    def __init__(self) -> None:
        self._functions: list[Callable[[], None]] = []
        self._error: BaseException | None = None
        self._entry = _SIGNATURE(self._call)

    @property
    def address(self) -> int:
        """Address of ``i64 call(i64 number)``; it gives 1 when the function raised."""
        return ctypes.cast(self._entry, ctypes.c_void_p).value or 0

    def add(self, function: Callable[[], None]) -> int:
        """Number of a new entry."""
        self._functions.append(function)
        return len(self._functions) - 1

    def add_failure(self, error: Callable[[], BaseException]) -> int:
        """Number of a new entry that raises the error of ``error``."""

        def fail() -> None:
            raise error()

        return self.add(fail)

    def set(self, number: int, function: Callable[[], None]) -> None:
        """Replace an entry."""
        self._functions[number] = function

    def take_error(self) -> BaseException | None:
        """Error that a callback raised since the last call of this, or None."""
        error, self._error = self._error, None
        return error

    def _call(self, number: int) -> int:
        try:
            self._functions[number]()
        # An exception cannot pass through native code: it is kept, the run ends, and whoever waits for the run raises
        # it.
        except BaseException as error:
            self._error = error
            return 1
        return 0


_LINE_WORDS = 8
_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


@dataclass(slots=True)
class WorkingMemory:
    """Memory that leaves use beside the variables.

    Attributes:
        shared_bytes: For all threads together.
        thread_bytes: For each thread.
    """

    shared_bytes: int = 0
    thread_bytes: int = 0

    def cover(self, shared_bytes: int, thread_bytes: int) -> None:
        """Grow to at least this much."""
        self.shared_bytes = max(self.shared_bytes, shared_bytes)
        self.thread_bytes = max(self.thread_bytes, thread_bytes)


@dataclass
class Connected:
    """A stream's place in the machine and its connection now.

    Attributes:
        number: Position among the streams.
        register: The first of its two registers.
        callbacks: Callbacks of FETCH and DRAIN.
        copies: The most copies of it that are under way at once.
        connection: Connection that serves it.
    """

    number: int
    register: int
    callbacks: tuple[int, int]
    copies: int
    connection: Connection | None = None


@dataclass(frozen=True, slots=True)
class _Addresses:
    """Addresses of the machine's memory: shared words, code, each thread's registers."""

    shared: int
    code: int
    registers: list[int]


class VirtualMachine:
    """Threads that run one piece of bytecode.

    Args:
        emitter: The finished code with its argument lists and streams.
        callbacks: Python functions that the code may call.
        num_threads: Host threads.
        memory: Working memory that the leaves need.

    Attributes:
        notes: Notes of the times of leaves; None: runs note none.
    """

    def __init__(self, emitter: Emitter, callbacks: Callbacks, num_threads: int, memory: WorkingMemory) -> None:
        self.code = emitter.assembler.finish()
        self._lone = self._run_alone(emitter, num_threads)
        self._emitter = emitter
        self._callbacks = callbacks
        self._workers = Workers(num_threads)
        self._run, self._timed_run = _RUN(primitives().run), _RUN(primitives().timed_run)
        self.notes: Notes | None = None
        self._chosen_run, self._is_brief = self._run, False
        self._shared = _words(SharedWord.ARRIVED + _LINE_WORDS * num_threads)
        self._streams = _words(max(1, len(emitter.streams)) * StreamWord.WORDS)
        self._workspace = aligned_block(memory.shared_bytes)
        self._scratch = [aligned_block(memory.thread_bytes) for _ in range(num_threads)]
        self._registers = [self._thread_registers(emitter, t) for t in range(num_threads)]
        self._addresses = _Addresses(
            address_of(self._shared), address_of(self.code), [*map(address_of, self._registers)]
        )
        self._guards = Guards(num_threads)
        self._positions = np.array(list(emitter.streams.values()), np.int64)
        self._served: set[Stream] = set()
        self.streams = {
            stream: Connected(
                number,
                register,
                (callbacks.add(_unconnected), callbacks.add(_unconnected)),
                emitter.copies_at_once.get(stream, 1),
            )
            for number, (stream, register) in enumerate(emitter.streams.items())
        }
        words: Mapping[SharedWord, int] = {
            SharedWord.THREADS: num_threads,
            SharedWord.CALLBACK: callbacks.address,
            # With more threads than cores, whoever waits is in the way of those it waits for.
            SharedWord.SPINS: SPINS if num_threads <= host.num_threads() else 0,
            SharedWord.STREAMS: address_of(self._streams),
            SharedWord.GUARDS: address_of(self._guards.pointers),
        }
        for word, value in words.items():
            self._shared[word] = value

    def _run_alone(self, emitter: Emitter, threads: int) -> Mapping[int, bool]:
        """Let thread 0 run alone what pays; gives the programs that it runs alone as a whole, True for brief ones."""
        if threads == 1:
            return {}
        work = {timed.at: timed.leaf.effort for timed in emitter.timed if timed.leaf is not None}
        lone = LoneSpans(self.code, emitter.loops, emitter.wholes, work, threads)
        for loop in lone.loops:
            self.code[[loop.begin, loop.end], 1] = 1
        return lone.programs

    @property
    def timed(self) -> Sequence[TimedInstruction]:
        """The instructions that take time."""
        return self._emitter.timed

    @property
    def num_threads(self) -> int:
        """Host threads."""
        return self._workers.num

    def _thread_registers(self, emitter: Emitter, thread: int) -> Int64:
        registers = _words(emitter.assembler.num_registers + 1)
        scratch, workspace = address_of(self._scratch[thread]), address_of(self._workspace)
        for register, value in emitter.arguments:
            match value:
                case Scratch():
                    registers[register] = scratch
                case Workspace():
                    registers[register] = workspace + value.offset
                case address:
                    registers[register] = address
        return registers

    def connect(self, connection: Connection) -> None:
        """Serve a stream from now on as the connection says, from its beginning."""
        place = self.streams[connection.stream]
        place.connection = connection
        connection.stage(place.copies)
        row = self._streams[place.number * StreamWord.WORDS : (place.number + 1) * StreamWord.WORDS]
        row[StreamWord.MODE] = connection.mode
        row[StreamWord.BASE] = connection.address
        row[StreamWord.BYTES] = connection.memory.nbytes
        row[StreamWord.CALLBACK], row[StreamWord.AFTER] = place.callbacks
        if connection.mode == StreamMode.RING:
            self._served.discard(connection.stream)
        else:
            self._served.add(connection.stream)
        for number, serve in zip(place.callbacks, (connection.fetch, connection.drain), strict=True):
            self._callbacks.set(number, serve)
        self.rewind(connection.stream)

    def rewind(self, stream: Stream) -> None:
        """Let the next copy of a stream use the beginning of its memory."""
        for registers in self._registers:
            registers[self.streams[stream].register] = 0

    def places(self) -> dict[Stream, list[Int64]]:
        """Position of each stream in its memory, for each thread: the words themselves."""
        return {
            stream: [registers[place.register : place.register + 1] for registers in self._registers]
            for stream, place in self.streams.items()
        }

    def unconnected(self, streams: Sequence[Stream]) -> Stream | None:
        """The first of ``streams`` that is connected to nothing."""
        return next((s for s in streams if s in self.streams and self.streams[s].connection is None), None)

    def start(self, entry: int) -> None:
        """Get ready to run the program whose first instruction is ``entry``; :meth:`wait` runs it."""
        threads = 1 if entry in self._lone else self.num_threads
        self._shared[SharedWord.ENTRY], self._shared[SharedWord.THREADS] = entry, threads
        # Arrivals and the release word count from 0 in every run; what was asked of the last run is forgotten.
        self._shared[SharedWord.STOP :] = 0
        self._shared[SharedWord.VERDICT] = -1
        self._chosen_run, code = self._run, self._addresses.code
        if self.notes is not None:
            self._chosen_run, code = self._timed_run, address_of(self.notes.code)
            self._shared[SharedWord.NOTES] = self.notes.address
            self._shared[SharedWord.NOTES_BYTES] = self.notes.bytes_per_thread
        self._shared[SharedWord.CODE] = code
        hear_faults()
        # A stream that Python serves may wait for long.
        self._is_brief = self._lone.get(entry, False) and not self._served
        if not self._is_brief:
            self._workers.begin(self._work, threads)

    def _work(self, thread: int) -> None:
        """Run the program as one of the threads."""
        prepare_thread()
        self._chosen_run(self._addresses.shared, thread, self._addresses.registers[thread])

    def wait(self) -> Verdict:
        """Run until the program is done, stopped or failed; may be interrupted, and must then be called again."""
        while (verdict := self.wait_for(None)) is None:
            pass
        return verdict

    def wait_for(self, seconds: float | None) -> Verdict | None:
        """As :meth:`wait`, for some time; None if the program runs on."""
        if not self._is_brief:
            if not self._workers.wait(seconds):
                return None
        elif self._shared[SharedWord.VERDICT] < 0:
            self._work(0)
        if self._shared[SharedWord.THREADS] < self.num_threads:
            for registers in self._registers[1:]:
                registers[self._positions] = self._registers[0][self._positions]
        return Verdict(self._shared[SharedWord.VERDICT])

    @property
    def step(self) -> int:
        """A number that changes whenever the threads meet, or thread 0 comes alone to where they would."""
        return int(self._shared[SharedWord.RELEASE] + self._shared[SharedWord.ROUNDS])

    def take_fault(self) -> tuple[Fault, Leaf | None] | None:
        """The first fault of the last run, and the leaf in which it was."""
        if not self._shared[SharedWord.FAULT]:
            return None
        faults = list(self._guards.take_faults())
        return (faults[0], self._leaf(faults[0])) if faults else None

    def _leaf(self, fault: Fault) -> Leaf | None:
        starts = [address_of(r) for r in self._registers]
        for leaf, first in self._emitter.leaves.items():
            if leaf.address == fault.leaf and any(fault.args == start + 8 * first for start in starts):
                return leaf
        return None

    def stop(self) -> None:
        """Ask a run to end at its next stopping point."""
        self._shared[SharedWord.STOP] = 1

    def close(self) -> None:
        """End the threads."""
        self._workers.close()


def _words(count: int) -> Int64:
    return aligned_block(8 * count).view(np.int64)


def _unconnected() -> None:
    """Callback of a stream that is not connected."""
