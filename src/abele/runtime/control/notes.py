"""Notes: times that host threads note while they run, per instruction; see ``texts/timed.ll``."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from abele.errors import InvalidOptionError, nearest
from abele.graph import LibraryCall, Program, Stream
from abele.graph.intervals import Int64
from abele.runtime.control.bytecode import NotesHead, NoteWord
from abele.runtime.control.leaf import Leaf
from abele.runtime.memory.host_memory import address_of, aligned_block

CLOCKS = {"wall": time.CLOCK_MONOTONIC, "processor": time.CLOCK_THREAD_CPUTIME_ID}
"""Clocks that notes may be of, by name: time that passes, and time that a thread is given a core for."""


@dataclass(frozen=True, slots=True)
class TimedInstruction:
    """An instruction that takes time.

    Attributes:
        at: Its number.
        phase: Number of the phase that a leaf belongs to; those of one phase follow each other.
        leaf: What it runs; None where it calls back to Python.
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
    """What the threads of a machine note, run after run, until the object is put aside.

    Args:
        num_threads: Threads of the machine.
        num_instructions: Instructions of its code.
        clock: One of :data:`CLOCKS`.

    Raises:
        InvalidOptionError: There is no such clock.
    """

    def __init__(self, num_threads: int, num_instructions: int, clock: str = "wall") -> None:
        if clock not in CLOCKS:
            close = nearest(clock, CLOCKS)
            raise InvalidOptionError(
                f"there is no clock {clock!r}",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(CLOCKS),
            )
        self.clock = clock
        self.num_threads = num_threads
        shape = num_threads, num_instructions + 1, int(NoteWord.WORDS)
        # A thread's notes begin on a cache line of their own: no thread writes into a line that another one reads.
        self.bytes_per_thread = -(-8 * shape[1] * shape[2] // 64) * 64
        words = aligned_block(num_threads * self.bytes_per_thread).view(np.int64)
        self._words = words.reshape(num_threads, -1)
        self._rows = self._words[:, : shape[1] * shape[2]].reshape(shape)
        self.reset()

    @property
    def address(self) -> int:
        """Where the notes of thread 0 begin."""
        return address_of(self._words)

    def reset(self) -> None:
        """Forget all that was noted."""
        self._words[...] = 0
        self._rows[:, 0, NotesHead.CLOCK] = CLOCKS[self.clock]

    def of(self, word: NoteWord) -> Int64:
        """What was noted by each thread for each instruction, int64[threads, instructions]."""
        return self._rows[:, 1:, word]
