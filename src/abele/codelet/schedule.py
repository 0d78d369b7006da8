"""Slots of straight-line code: list scheduling of its operations on two pipes.

The bundles of straight-line code are what a compiler would make of it, so they are scheduled as compilers do: in order
of slots, each pipe takes one of the operations whose operands are there. Finding the shortest schedule is NP-hard, and
compiled code is not the shortest either. The result depends on the order of the source alone, so costs are the same on
every machine. Events (an operation gets ready, a pipe gets free) are kept in heaps, so long code costs n·log n.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from abele.codelet.slots import BUNDLE_BYTES, INSTRUCTION_BYTES
from abele.expr import Slots


@dataclass(frozen=True)
class _Operation:
    pipe: str
    slots: int
    needs: tuple[int, ...]


@dataclass
class StraightCode:
    """Operations of straight-line code, and what each needs.

    Model: in every slot each pipe starts, of the operations whose needs are met, the one that comes first in the
    source. Source order rather than the longest chain first fits compiled code better: see the check against the naive
    STREAM triad among the tests.

    Attributes:
        branches: True if a branch on the main pipe ends it, in its last bundle or in one of its own.
    """

    branches: bool = False
    _operations: list[_Operation] = field(default_factory=list)
    _starts: list[int] | None = None

    def place(self, cost: Slots, needs: Iterable[int] = ()) -> int:
        """Add an operation that needs results of others; returns its number. Of one that uses both pipes, the part on
        the pipe named in ``cost.first`` comes first."""
        parts = [("main", cost.main), ("aux", cost.aux)]
        last = tuple(needs)
        for pipe, slots in parts if cost.first == "main" else reversed(parts):
            if slots:
                self._operations.append(_Operation(pipe, slots, last))
                # The second part of an operation on both pipes waits for its first.
                last = (len(self._operations) - 1,)
        self._starts = None
        return last[0]

    @property
    def starts(self) -> list[int]:
        """First slot of every operation."""
        if self._starts is None:
            self._starts = self._listed()
        return self._starts

    @property
    def length(self) -> int:
        """Slots from the first bundle to the last."""
        ends = [s + o.slots for s, o in zip(self.starts, self._operations, strict=True)]
        length = max(ends, default=0)
        if not self.branches:
            return length
        main = max((e for e, o in zip(ends, self._operations, strict=True) if o.pipe == "main"), default=0)
        return max(length, main + 1)

    @property
    def code_bytes(self) -> int:
        """Size of the code: an instruction, or a bundle where two start together; a long operation is one, a call."""
        together = len(self.starts) - len(set(self.starts))
        alone = len(self.starts) - 2 * together + self.branches
        return alone * INSTRUCTION_BYTES + together * BUNDLE_BYTES

    def _listed(self) -> list[int]:
        operations = self._operations
        users: list[list[int]] = [[] for _ in operations]
        missing = [len(o.needs) for o in operations]
        for number, operation in enumerate(operations):
            for need in operation.needs:
                users[need].append(number)
        starts, earliest = [0] * len(operations), [0] * len(operations)
        ready: dict[str, list[int]] = {"main": [], "aux": []}
        waiting = [(0, n) for n, count in enumerate(missing) if not count]
        free, slot, left = {"main": 0, "aux": 0}, 0, len(operations)
        while left:
            # What is ready by now, ordered by its place in the source.
            while waiting and waiting[0][0] <= slot:
                number = heapq.heappop(waiting)[1]
                heapq.heappush(ready[operations[number].pipe], number)
            for pipe, queue in ready.items():
                if not queue or free[pipe] > slot:
                    continue
                number = heapq.heappop(queue)
                starts[number], free[pipe], left = slot, slot + operations[number].slots, left - 1
                for user in users[number]:
                    missing[user] -= 1
                    # Latency is one slot: a result is there once its operation's slots are over.
                    earliest[user] = max(earliest[user], free[pipe])
                    if not missing[user]:
                        heapq.heappush(waiting, (earliest[user], user))
            slot = _next(slot, free, ready, waiting)
        return starts


def _next(slot: int, free: dict[str, int], ready: dict[str, list[int]], waiting: list[tuple[int, int]]) -> int:
    """The next slot in which something can start."""
    times = [max(free[pipe], slot + 1) for pipe, queue in ready.items() if queue]
    times += [max(waiting[0][0], slot + 1)] if waiting else []
    return min(times, default=slot + 1)
