"""Code for thread 0 alone: loops and programs in which meetings of threads take longer than sharing the work saves.

A step of a recurrence, of a solver or of a sampler is a few short leaves, which thread 0 runs anyway; threads then meet
once or thrice a trip only to find that there is nothing to share. The way that is cheaper is chosen for each loop, from
the inside out, by the instructions of its leaves:

    alone = sum of all leaves,    shared = short leaves + other leaves / threads + meetings

A trip of a loop inside counts as often as it runs, each at what is cheaper. Where data decides how often, both ways
are multiplied by the same number, whatever it is. A program of which all is cheaper alone does not wake the other
threads at all; if it is certain to take less than :data:`BRIEF_CYCLES`, the calling thread runs it.

Example: 100 trips of three leaves of 500 instructions, two threads: alone 100 · 1,500; shared 100 · (1,500 + 2,000).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from abele.arrays import Int64
from abele.kernels.plan.native_plan import MEETING_CYCLES
from abele.runtime.control.bytecode import Opcode

WAKING_CYCLES = 180 * MEETING_CYCLES
"""Instructions on vectors in the time that it takes longer to wake all threads than to run on the calling one. Two
cores of an EPYC of the fifth generation take 90 microseconds."""
BRIEF_CYCLES = 2_000_000
"""Instructions on vectors in about half a millisecond: Ctrl-C may wait for as long."""


@dataclass(frozen=True, slots=True)
class CodeSpan:
    """Instructions of a program, a function or a loop.

    Attributes:
        begin: The first; of a loop ALONE.
        end: The one behind the last; of a loop TOGETHER.
        trips: Rounds of a loop; None where data decides.
    """

    begin: int
    end: int
    trips: int | None = 1


@dataclass(frozen=True, slots=True)
class Effort:
    """Time of some code, in instructions on vectors.

    Attributes:
        alone: On one thread.
        shared: On all, with what is cheaper alone run so.
        certain: False if data decides how long it takes.
        divided: True if some of it, run any number of times, is cheaper on all threads.
        streams: True if it moves streams on, which all threads have to know.
    """

    alone: float = 0.0
    shared: float = 0.0
    certain: bool = True
    divided: bool = False
    streams: bool = False

    def __add__(self, other: Effort) -> Effort:
        return Effort(
            self.alone + other.alone,
            self.shared + other.shared,
            self.certain and other.certain,
            self.divided or other.divided,
            self.streams or other.streams,
        )

    def rounds(self, trips: int | None) -> Effort:
        """As the body of a loop."""
        count = 1 if trips is None else trips
        prefers = self.shared < self.alone
        return Effort(
            count * self.alone,
            count * self.shared,
            self.certain and trips is not None,
            self.divided or (trips is None and prefers),
            self.streams,
        )


_NOTHING = Effort()
_BEHIND = 2
"""Instructions from the end of a loop to where all threads go on: TOGETHER, and a barrier for those that waited."""
_UNKNOWN = 1e12
"""Instructions on vectors of a long leaf, or of one without a known time."""


class LoneSpans:
    """Chooses what thread 0 runs alone.

    Args:
        code: The instructions, int64[instructions, 8].
        loops: The loops.
        wholes: Programs and functions.
        work: Instructions on vectors of the leaf that an instruction runs, infinite where they are not known.
        threads: Host threads.

    Attributes:
        loops: Loops that thread 0 runs alone.
        programs: First instructions of the programs that it runs alone; True where they are brief.
    """

    def __init__(
        self,
        code: Int64,
        loops: Sequence[CodeSpan],
        wholes: Sequence[CodeSpan],
        work: Mapping[int, float],
        threads: int,
    ) -> None:
        self._ops, self._targets = code[:, 0].tolist(), code[:, 1].tolist()
        self._work, self._threads = work, threads
        self._loops = {span.begin: span for span in loops}
        self._wholes = {span.begin: span for span in wholes}
        self._functions: dict[int, Effort] = {}
        self.loops: list[CodeSpan] = []
        self.programs: dict[int, bool] = {}
        for span in wholes:
            if self._ops[span.end - 1] == Opcode.HALT:
                effort = self._code(span.begin, span.end)
                if effort.alone <= effort.shared + WAKING_CYCLES and not effort.divided:
                    self.programs[span.begin] = effort.certain and effort.alone <= BRIEF_CYCLES

    def _code(self, begin: int, end: int) -> Effort:
        """Time of some instructions."""
        effort, at = _NOTHING, begin
        while at < end:
            if self._ops[at] == Opcode.ALONE:
                loop = self._loops[at]
                effort, at = effort + self._loop(loop), loop.end + _BEHIND
            else:
                effort, at = effort + self._instruction(at), at + 1
        return effort

    def _loop(self, loop: CodeSpan) -> Effort:
        effort = self._code(loop.begin + 1, loop.end).rounds(loop.trips)
        meeting = effort.alone + MEETING_CYCLES
        if meeting > effort.shared or effort.streams or effort.divided:
            return effort
        self.loops.append(loop)
        return Effort(effort.alone, meeting, effort.certain)

    def _function(self, begin: int) -> Effort:
        """Time of a function, which is looked at once."""
        if begin not in self._functions:
            self._functions[begin] = self._code(begin, self._wholes[begin].end)
        return self._functions[begin]

    def _instruction(self, at: int) -> Effort:
        match self._ops[at]:
            case Opcode.SOLO | Opcode.CALL | Opcode.COUNT | Opcode.SEEDED as op:
                work, threads = self._work[at], 1 if op == Opcode.SOLO else self._threads
                known = min(work, _UNKNOWN)
                return Effort(known, known / threads, math.isfinite(work))
            case Opcode.FETCH:
                return Effort(streams=True)
            case Opcode.JSR:
                return self._function(self._targets[at])
            case Opcode.CALLBACK:
                return Effort(shared=2 * MEETING_CYCLES, certain=False)
            case Opcode.BARRIER:
                return Effort(shared=MEETING_CYCLES)
        return _NOTHING
