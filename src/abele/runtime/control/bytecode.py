"""Bytecode of the control virtual machine, which all host threads run in step.

An instruction is eight 64-bit words: the operation and its operands. Threads share the code and nothing else but the
words of :class:`SharedWord`; each has registers of its own (64-bit words), among them the argument lists of leaves.

There is no scheduler and no queue. Every thread executes the same instructions and decides every branch for itself,
from words that nobody writes between two barriers, so that all threads take the same way, and a barrier only has to
count arrivals. A pool with a queue of leaves is the usual alternative. It wakes threads for every leaf, and is worth
that only where leaves are long and unequal; shares cut by cost (``supersteps.thread_shares``) serve those.

What only one thread may do (count, call Python, run a small leaf) thread 0 does; the others pass it by and meet at the
next barrier. Where a whole loop is so small that the meetings in it take longer than they save, thread 0 runs it alone
(:mod:`abele.runtime.control.alone`): the others wait behind it, and barriers in it only look whether to stop.

Results have the same bits for any number of threads because a leaf's units do not depend on each other.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from abele.arrays import Int64

WORDS = 8


class Opcode(IntEnum):
    """Operations, with their operands in order. ``r`` is a register number, ``pc`` an instruction number."""

    HALT = 0
    """The program is done."""
    CALL = 1
    """leaf, units, r, 0, cuts: run this thread's share of a leaf; its argument list starts at register r. Thread t has
    units ``cuts[t]`` to ``cuts[t + 1]``, or an equal share where ``cuts`` is 0."""
    COUNT = 2
    """leaf, units, r, counter, cuts: the same for a leaf that also adds issue slots to ``counter``."""
    SOLO = 3
    """leaf, units, r: thread 0 runs the whole leaf."""
    BARRIER = 4
    """stop: wait for all threads; if ``stop`` is not 0, leave here when a stop was asked for."""
    LOOP = 5
    """r, count, pc: start a loop of ``count`` rounds counted in r; go to pc when it has none."""
    NEXT = 6
    """r, pc: end a round; go back to pc unless it was the last."""
    JUMP = 7
    """pc: go there."""
    BRANCH = 8
    """address, mask, value, pc: go to pc when (the masked word at address is not 0) equals ``value``."""
    JSR = 9
    """pc, r: run the function at pc; r keeps where to return."""
    RET = 10
    """r: return from a function."""
    CALLBACK = 11
    """number: thread 0 calls back to Python; the others wait."""
    FETCH = 12
    """stream, bytes, r: register r + 1 becomes where the stream's next ``bytes`` lie; r is its position."""
    DRAIN = 13
    """stream: what lies where FETCH said was written, or is needed no more."""
    BIND = 14
    """r, s: copy register r to register s."""
    TALLY = 15
    """address, amount: thread 0 adds to the word there."""
    CASE = 16
    """address, mask, value, pc: go to pc when the masked word at address is ``value``."""
    ROWS = 17
    """table, count, limit, pc: go to pc when one of the u32 words whose addresses are in the table is not below."""
    ELAPSED = 18
    """to, late, early, extra: thread 0 sets a word to the difference of two others, and some more."""
    MODE = 19
    """address, keep, set: thread 0 clears the bits of the word there that are not in ``keep`` and sets others."""
    SEEDED = 20
    """leaf, units, r, address: as CALL for a leaf whose last argument is the word at address."""
    ADVANCE = 21
    """r, amount: add to register r."""
    ROW = 22
    """r, base, stride, address: register r becomes ``base`` and ``stride`` times the u32 word at address."""
    ALONE = 23
    """on, pc: if ``on`` is not 0, thread 0 alone runs what follows, and the others go to pc."""
    TOGETHER = 24
    """on, pc: the end of what thread 0 runs alone if ``on`` is not 0; if it is, all threads go to pc."""


class SharedWord(IntEnum):
    """Words that all threads share, by position; those written while running have a cache line of their own."""

    THREADS = 0
    CODE = 1
    CALLBACK = 2
    SPINS = 3
    """Looks at a word before a thread that waits for it sleeps."""
    STREAMS = 4
    ENTRY = 5
    GUARDS = 6
    """Address of each thread's guard: see ``faults``."""
    STOP = 8
    FAULT = 9
    """Not 0 once a leaf has faulted; the run ends at the next barrier."""
    NOTES = 10
    """Address of thread 0's notes, if the run is timed; those of the others follow."""
    NOTES_BYTES = 11
    """Bytes of one thread's notes."""
    ROUNDS = 12
    """Barriers that thread 0 came to alone."""
    VERDICT = 13
    """Why thread 0 left the program; -1 while it has not."""
    RELEASE = 16
    ARRIVED = 24
    """One cache line per thread from here on."""


class GuardWord(IntEnum):
    """Words for a thread's way out of a leaf that faults; see ``native/guarded_x86.ll``."""

    REGISTERS = 0
    """Nine of them: what a called function keeps, the stack, where to return, and the floating-point mode."""
    ACTIVE = 9
    """Not 0 while a leaf runs."""
    THREAD = 10
    LEAF = 11
    BEGIN = 12
    END = 13
    ARGS = 14
    SIGNAL = 15
    """The signal of the last fault; 0 for none."""
    ADDRESS = 16
    """Address in memory that the fault was about, if it has one."""
    STACK = 17
    """Begin of the leaves' stack; 0: they use the thread's."""
    SELF = 18
    """Address of the guard itself, by which it is known."""
    WORDS = 32


class NoteWord(IntEnum):
    """Words that a timed run notes for each instruction, and in the row before them; see ``texts/timed.ll``."""

    COUNT = 0
    """Number of times that a thread ran its share of the leaf, or called back."""
    BUSY = 1
    """Time that this took, in nanoseconds."""
    WAITED = 2
    """Time at the barriers that followed."""
    SHORTEST = 3
    """Time of the execution that took least."""
    PARTS = 4
    """Words from the beginning of a thread's notes to those of the leaf's calls; 0 for none."""
    WORDS = 5


class NotesHead(IntEnum):
    """Words of the row before those of the instructions; waits of a thread before any leaf are noted there too."""

    LAST = 0
    """First word of the row of the leaf that ran last."""
    CLOCK = 1
    """The number of the clock that is read."""


ACTION_BYTES = 152
"""Size of ``struct sigaction`` of the C library."""
ZONE = 0xFFE5
"""Fill of memory between variables, 16 bits at a time: a quiet NaN as f16, bf16 and f32, a rare integer."""


class StreamWord(IntEnum):
    """Words that describe one stream's connection."""

    MODE = 0
    BASE = 1
    BYTES = 2
    CALLBACK = 3
    """Callback of FETCH."""
    AFTER = 4
    """Callback of DRAIN."""
    WORDS = 5


class StreamMode(IntEnum):
    """Service of a stream: two bits."""

    RING = 0
    """Elements lie in connected memory, which is read or written round and round."""
    FETCH = 1
    """A callback fills a staging area (at BASE) before each copy."""
    DRAIN = 2
    """A callback empties the staging area after each copy, or learns that it was used."""
    BOTH = 3
    """A callback before and one after."""


class Verdict(IntEnum):
    """Why a thread left the program."""

    DONE = 0
    STOPPED = 1
    FAILED = 2


class Assembler:
    """Collects instructions; jumps name labels that are placed before or after."""

    def __init__(self) -> None:
        self._code: list[tuple[int, ...]] = []
        self._labels: list[int] = []
        self._fixes: list[tuple[int, int, int]] = []
        self.num_registers = 0

    @property
    def here(self) -> int:
        """Number of the next instruction."""
        return len(self._code)

    def register(self, count: int = 1) -> int:
        """The first of ``count`` fresh registers."""
        self.num_registers += count
        return self.num_registers - count

    def label(self) -> int:
        """A fresh label, to be placed once."""
        self._labels.append(-1)
        return len(self._labels) - 1

    def place(self, label: int) -> None:
        """Set ``label`` to the next instruction."""
        self._labels[label] = self.here

    def emit(self, op: Opcode, *operands: int, target: int | None = None) -> None:
        """Append an instruction; a ``target`` label becomes its last operand."""
        # The label's instruction is not known yet: note where its number belongs, and fill it in at the end.
        if target is not None:
            self._fixes.append((self.here, 1 + len(operands), target))
            operands = (*operands, 0)
        self._code.append((int(op), *operands) + (0,) * (WORDS - 1 - len(operands)))

    def emit_jsr(self, target: int, register: int) -> None:
        """Append the call of a function at label ``target``."""
        self._fixes.append((self.here, 1, target))
        self.emit(Opcode.JSR, 0, register)

    def finish(self) -> Int64:
        """The code, int64[instructions, 8]."""
        code = np.array(self._code, dtype=np.int64).reshape(-1, WORDS)
        for instruction, word, label in self._fixes:
            assert self._labels[label] >= 0
            code[instruction, word] = self._labels[label]
        return code
