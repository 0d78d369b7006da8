"""Emission of bytecode: when threads must meet, who runs a leaf, and where a run may be stopped.

**Barriers.** Leaves of one phase do not depend on each other, and each phase may depend on any before it. So it is
right to let all threads meet between any two phases, and the emitter leaves out meetings that order nothing: it keeps
what ran since the last barrier (``_Pending``) and emits one only before a phase, a decision or a callback that follows
work of other threads. Small phases in a row are all run by thread 0, which orders them by itself. After a branch, the
word that decided must not be overwritten until all threads have read it, so the next phase waits for a barrier too.

**Stops.** A run may be given up at a barrier, where all threads are at one place, if memory then holds the state that
a whole step left. The emitter follows, in program order, whether an element that steps leave for each other has been
written since the step began (``dirty``), and marks the barriers before the first such write. A loop in it is dirty if
its body writes state, since code inside is emitted once and runs in every round.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, nearest
from abele.graph import LibraryCall, Program, Stream
from abele.graph.interval_set import EMPTY, IntervalSet
from abele.kernels.code.drivers import STEP_WORDS
from abele.runtime.control.alone import CodeSpan
from abele.runtime.control.bytecode import Assembler, NotesHead, NoteWord, Opcode
from abele.runtime.control.leaf import MEETING_BYTES, Fixed, Leaf, Phase, StashRow, Stepped, StreamUse
from abele.runtime.control.primitives import primitives
from abele.runtime.memory.host_memory import address_of, aligned_block

# Notes: times that host threads note while they run, per instruction; see ``texts/timed.ll``.

CLOCKS = {"wall": time.CLOCK_MONOTONIC, "processor": time.CLOCK_THREAD_CPUTIME_ID}
"""Clocks of notes, by name: time that passes, and time on a core."""


_TRIES = 64
_CLOCK_COST = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class TimedInstruction:
    """An instruction that takes time.

    Attributes:
        at: Its number.
        phase: Number of the phase that a leaf belongs to; those of one phase follow each other.
        leaf: Leaf that it runs; None where it calls back to Python.
        step: The step that it is code of, if one is known.
        call: The library call around that step.
        stream: The stream that it serves, if it does.
    """

    at: int
    phase: int
    leaf: Leaf | None = None
    step: Program | None = None
    call: LibraryCall | None = None
    stream: Stream | None = None


class Notes:
    """Times that the threads of a machine note, run after run, until the object is put aside.

    Args:
        num_threads: Threads of the machine.
        code: Its instructions, int64[instructions, 8].
        timed: Those that take time.
        clock: One of :data:`CLOCKS`.

    Attributes:
        code: The instructions with leaves in them that note the times of what they call.
        clock_cost: Nanoseconds that reading the clock takes; each time that was noted holds it once.

    Raises:
        InvalidOptionError: There is no such clock.
    """

    def __init__(self, num_threads: int, code: Int64, timed: Sequence[TimedInstruction], clock: str = "wall") -> None:
        if clock not in CLOCKS:
            close = nearest(clock, CLOCKS)
            raise InvalidOptionError(
                f"there is no clock {clock!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(CLOCKS),
            )
        self.clock = clock
        self.num_threads = num_threads
        self._shape = num_threads, len(code) + 1, int(NoteWord.WORDS)
        self._parts: dict[int, tuple[int, int]] = {}
        self._keep: list[object] = []
        self.code, words = self._with_timed_leaves(code, timed)
        # A thread's notes begin on a cache line of their own: no thread writes into a line that another one reads.
        self.bytes_per_thread = -(-8 * words // 64) * 64
        block = aligned_block(num_threads * self.bytes_per_thread).view(np.int64)
        self._words = block.reshape(num_threads, -1)
        self._rows = self._words[:, : self._shape[1] * self._shape[2]].reshape(self._shape)
        self.reset()
        self.clock_cost = int(_CLOCK_COST(primitives().clock_cost)(self.address, _TRIES))

    def _with_timed_leaves(self, code: Int64, timed: Sequence[TimedInstruction]) -> tuple[Int64, int]:
        """Code with leaves that note the times of their calls, and the number of words in a thread's notes."""
        found, words = aligned_block(code.nbytes).view(np.int64).reshape(code.shape), self._shape[1] * self._shape[2]
        found[...] = code
        for instruction in timed:
            leaf = instruction.leaf
            if leaf is None or leaf.kernel is None:
                continue
            plan, number = leaf.kernel
            driver = plan.leaves[number].driver
            if driver is not None:
                native, found[instruction.at, 1] = plan.timed_leaf(number)
                self._keep.append(native)
                self._parts[instruction.at] = words, len(driver.steps)
                words += (1 + len(driver.steps)) * STEP_WORDS
        return found, words

    @property
    def address(self) -> int:
        """Address of the notes of thread 0."""
        return address_of(self._words)

    def reset(self) -> None:
        """Forget all that was noted."""
        self._words[...] = 0
        self._rows[:, 0, NotesHead.CLOCK] = CLOCKS[self.clock]
        for at, (first, _) in self._parts.items():
            self._rows[:, 1 + at, NoteWord.PARTS] = first
            self._words[:, first] = CLOCKS[self.clock]

    def of(self, word: NoteWord) -> Int64:
        """Times that each thread noted for each instruction, int64[threads, instructions]."""
        return self._rows[:, 1:, word]

    def of_parts(self, at: int) -> Int64:
        """Calls and nanoseconds of the functions that an instruction's leaf calls, int64[threads, functions, 2]."""
        first, count = self._parts.get(at, (0, 0))
        rows = self._words[:, first : first + (1 + count) * STEP_WORDS].reshape(self.num_threads, -1, STEP_WORDS)
        return rows[:, 1:]


class _Pending(Enum):
    """Kind of phase that ran since the last barrier."""

    NOTHING = 0
    SOLO = 1
    ALL = 2


class Emitter:
    """Appends instructions; barriers come as late as they can, and only where one is needed.

    A phase with little work is run by thread 0 alone, so that several such phases follow each other without a barrier.
    Of leaves of one unit side by side, as vertices that differ are, each thread runs some.

    Args:
        threads: Host threads.

    Attributes:
        assembler: Assembler of the instructions.
        arguments: Registers that hold a leaf's pointers, with their values, to be filled for each thread.
        streams: First of the two registers of every stream that the code uses.
        copies_at_once: The most copies of each stream that are under way together.
        timed: The instructions that take time, in order.
        loops: Loops, from ALONE to TOGETHER.
        wholes: Programs and functions.
        step: The step whose code is being emitted, for these instructions.
        call: The library call around it.
    """

    def __init__(self, threads: int = 1) -> None:
        self.assembler = Assembler()
        self._units_of: list[Int64] = [_one_unit_of(thread, threads) for thread in range(threads)]
        self._next_thread = 0
        self.arguments: list[tuple[int, Fixed]] = []
        self.streams: dict[Stream, int] = {}
        self.copies_at_once: dict[Stream, int] = {}
        self.leaves: dict[Leaf, int] = {}
        self.timed: list[TimedInstruction] = []
        self.step: Program | None = None
        self.call: LibraryCall | None = None
        self.loops: list[CodeSpan] = []
        self.wholes: list[CodeSpan] = []
        self._num_phases = 0
        self._stream_numbers: dict[Stream, int] = {}
        self._uses: dict[StreamUse, int] = {}
        self._under_way: Counter[Stream] = Counter()
        self._kept: list[object] = []
        self._pending = _Pending.NOTHING
        self._persistent = EMPTY
        self._dirty = False

    # --- barriers and stops ------------------------------------------------------------------------------------------

    def fence(self) -> None:
        """Let all threads meet if anything ran since they last did."""
        if self._pending is not _Pending.NOTHING:
            self.barrier()

    def barrier(self) -> None:
        """Let all threads meet; a run may stop here if no persistent element was written in this step so far."""
        self.assembler.emit(Opcode.BARRIER, int(not self._dirty))
        self._pending = _Pending.NOTHING

    def expect_barrier(self) -> None:
        """Let all threads meet before the next phase."""
        self._pending = _Pending.ALL

    @contextmanager
    def step_scope(self, persistent: IntervalSet) -> Iterator[None]:
        """Code of which one round is a step; ``persistent`` are the elements that rounds leave for each other."""
        # Scopes that hold another are entered with nothing written yet, and its last round leaves a whole step.
        outer = self._persistent
        self._persistent, self._dirty = persistent, False
        yield
        self._persistent, self._dirty = outer, False

    def end_step(self) -> None:
        """One round of the step scope is done: its state is consistent."""
        self._dirty = False

    def expect_writes(self, written: IntervalSet) -> None:
        """Note elements that code from here on writes, perhaps in an earlier round."""
        self._dirty = self._dirty or written.meets(self._persistent)

    @property
    def dirty(self) -> bool:
        """True if persistent state may be in the middle of a step here."""
        return self._dirty

    @dirty.setter
    def dirty(self, value: bool) -> None:
        self._dirty = value

    # --- leaves ------------------------------------------------------------------------------------------------------

    def phases(self, phases: tuple[Phase, ...]) -> None:
        """Run phases in order."""
        for phase in phases:
            self.phase(phase)

    def phase(self, phase: Phase) -> None:
        """Run the leaves of one phase."""
        solo = _is_small(phase)
        # Thread 0 runs what it ran before in order; anything else must see what other threads wrote.
        if not (solo and self._pending is _Pending.SOLO):
            self.fence()
        self._num_phases += 1
        self._next_thread = 0
        for leaf in phase:
            self._call(leaf, solo)
            self.expect_writes(leaf.writes)
        self._pending = _Pending.SOLO if solo else _Pending.ALL

    def _note(self, leaf: Leaf | None = None, stream: Stream | None = None) -> None:
        """Note the work of the next instruction."""
        self.timed.append(TimedInstruction(self.assembler.here, self._num_phases, leaf, self.step, self.call, stream))

    @contextmanager
    def inside(self, call: LibraryCall) -> Iterator[None]:
        """Code of a library call."""
        outer, self.call = self.call, call
        yield
        self.call = outer

    def _call(self, leaf: Leaf, solo: bool) -> None:
        register = self._argument_list(leaf)
        for place, argument in enumerate(leaf.args):
            if isinstance(argument, StreamUse):
                self.assembler.emit(Opcode.BIND, self._uses[argument], register + place)
        # The table is read anew at every execution: what runs count may cut the shares differently (``learn``).
        cuts = 0 if leaf.cuts is None else address_of(leaf.cuts)
        if leaf.units == 1 and not cuts:
            # Thread 0 has a lone unit in any case.
            cuts = address_of(self._units_of[self._next_thread]) if self._next_thread else 0
            self._next_thread = (self._next_thread + 1) % len(self._units_of)
        self._note(leaf)
        if leaf.counter:
            self.assembler.emit(Opcode.COUNT, leaf.address, leaf.units, register, leaf.counter, cuts)
        elif leaf.seed:
            self.assembler.emit(Opcode.SEEDED, leaf.address, leaf.units, register, leaf.seed, cuts)
        elif solo:
            self.assembler.emit(Opcode.SOLO, leaf.address, leaf.units, register)
        else:
            self.assembler.emit(Opcode.CALL, leaf.address, leaf.units, register, 0, cuts)

    def _argument_list(self, leaf: Leaf) -> int:
        # Most pointers of a leaf are the same at every execution, so one argument list per leaf is filled when threads
        # start; those of streams and of steps are put there by instructions.
        if leaf not in self.leaves:
            first = self.assembler.register(len(leaf.args))
            self.leaves[leaf] = first
            fixed = ((first + n, a) for n, a in enumerate(leaf.args))
            moving = StreamUse | Stepped | StashRow
            self.arguments.extend((place, a) for place, a in fixed if not isinstance(a, moving))
        return self.leaves[leaf]

    def stash_rows(self, leaves: Iterable[Leaf]) -> None:
        """Point leaves to the rows of stashes for the code that follows."""
        rows = [
            (self._argument_list(leaf) + n, argument)
            for leaf in leaves
            for n, argument in enumerate(leaf.args)
            if isinstance(argument, StashRow)
        ]
        if rows:
            self.fence()
            for place, row in rows:
                self.assembler.emit(Opcode.ROW, place, row.address, row.stride, row.index)
            # A leaf may move the index on: every thread has to have read it.
            self.expect_barrier()

    @contextmanager
    def stepped(self, count: int, leaves: Iterable[Leaf]) -> Iterator[None]:
        """Loop around the code emitted inside, in which pointers of ``leaves`` move on with every trip."""
        moving = [
            (self._argument_list(leaf) + n, argument)
            for leaf in leaves
            for n, argument in enumerate(leaf.args)
            if isinstance(argument, Stepped)
        ]
        for place, argument in moving:
            start = self.assembler.register()
            self.arguments.append((start, argument.address))
            self.assembler.emit(Opcode.BIND, start, place)
        with self.repeat(count):
            yield
            for place, argument in moving:
                self.assembler.emit(Opcode.ADVANCE, place, argument.stride)
            self.barrier()

    # --- streams and callbacks ---------------------------------------------------------------------------------------

    def fetch(self, use: StreamUse) -> None:
        """Move a stream on by one copy and note where its elements lie."""
        stream = use.stream
        if stream not in self.streams:
            self.streams[stream] = self.assembler.register(2)
            self._stream_numbers[stream] = len(self._stream_numbers)
        if use not in self._uses:
            self._uses[use] = self.assembler.register()
        # Copies whose elements are in use at the same time need staging areas of their own.
        self._under_way[stream] += 1
        self.copies_at_once[stream] = max(self.copies_at_once.get(stream, 0), self._under_way[stream])
        first = self.streams[stream]
        self._num_phases += 1
        self._note(stream=stream)
        self.assembler.emit(Opcode.FETCH, self._stream_numbers[stream], stream.bytes, first)
        self.assembler.emit(Opcode.BIND, first + 1, self._uses[use])

    def drain(self, use: StreamUse) -> None:
        """Hand the elements of an output stream over, or say that those of an input stream were used."""
        self._under_way[use.stream] -= 1
        self._num_phases += 1
        self._note(stream=use.stream)
        self.assembler.emit(Opcode.DRAIN, self._stream_numbers[use.stream])

    def discard(self, use: StreamUse) -> None:
        """Drop the data written to an output stream at one copy."""
        place = self.assembler.register()
        # The host is given what replica 0 wrote; the elements of others land in memory that nobody reads.
        nowhere = aligned_block(use.stream.bytes)
        self.keep(nowhere)
        self.arguments.append((place, address_of(nowhere)))
        self.assembler.emit(Opcode.BIND, place, self._uses[use])

    def keep(self, item: object) -> None:
        """Keep something alive as long as the code."""
        self._kept.append(item)

    def callback(self, number: int) -> None:
        """Let thread 0 call Python while the others wait."""
        self._num_phases += 1
        self._note()
        self.assembler.emit(Opcode.CALLBACK, number)
        self._pending = _Pending.NOTHING

    def tally(self, address: int, amount: int = 1) -> None:
        """Add ``amount`` to the word at ``address``, which thread 0 alone uses."""
        self.assembler.emit(Opcode.TALLY, address, amount)

    # --- control -----------------------------------------------------------------------------------------------------

    @contextmanager
    def span(self, trips: int | None) -> Iterator[None]:
        """Code of a loop of so many trips, which thread 0 may run alone; None: data decides how many.

        If all threads run it, they go on from its end without a meeting.
        """
        assembler, after = self.assembler, self.assembler.label()
        self.fence()
        begin = assembler.here
        assembler.emit(Opcode.ALONE, 0, target=after)
        yield
        behind = assembler.label()
        self.loops.append(CodeSpan(begin, assembler.here, trips))
        assembler.emit(Opcode.TOGETHER, 0, target=behind)
        assembler.place(after)
        self.barrier()
        assembler.place(behind)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Code of a program or function."""
        begin = self.assembler.here
        yield
        self.wholes.append(CodeSpan(begin, self.assembler.here))

    @contextmanager
    def repeat(self, count: int) -> Iterator[None]:
        """Loop around the code emitted inside; the body must end with a barrier."""
        assembler = self.assembler
        with self.span(count):
            register, begin, after = assembler.register(), assembler.label(), assembler.label()
            assembler.emit(Opcode.LOOP, register, count, target=after)
            assembler.place(begin)
            yield
            assembler.emit(Opcode.NEXT, register, target=begin)
            assembler.place(after)

    def branch(self, address: int, mask: int, value: bool, target: int) -> None:
        """Go to ``target`` when the masked word at ``address`` is true (or false, as ``value`` says)."""
        self.fence()
        self.assembler.emit(Opcode.BRANCH, address, mask, int(value), target=target)
        # The predicate must not be overwritten before every thread has read it.
        self.expect_barrier()

    def jump(self, target: int) -> None:
        """Go to ``target``, where threads will meet before the next phase."""
        self.assembler.emit(Opcode.JUMP, target=target)


def _one_unit_of(thread: int, threads: int) -> Int64:
    """Shares of a leaf of one unit, which one of the threads runs."""
    cuts = aligned_block(8 * (threads + 1)).view(np.int64)
    cuts[...] = np.arange(threads + 1) > thread
    return cuts


def _is_small(phase: Phase) -> bool:
    # Their opcodes have no form for one thread alone.
    if any(leaf.counter or leaf.seed for leaf in phase):
        return False
    if len(phase) == 1 and (phase[0].is_short or phase[0].units <= 1):
        return True
    return sum(MEETING_BYTES if leaf.work_bytes is None else leaf.work_bytes for leaf in phase) < MEETING_BYTES
