"""Notes: times that host threads note while they run, per instruction; see ``texts/timed.ll``."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, nearest
from abele.graph import LibraryCall, Program, Stream
from abele.kernels.code.drivers import STEP_WORDS
from abele.runtime.control.bytecode import NotesHead, NoteWord
from abele.runtime.control.leaf import Leaf
from abele.runtime.control.primitives import primitives
from abele.runtime.memory.host_memory import address_of, aligned_block

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
