"""How many slots straight-line code takes: list scheduling of its operations on two pipes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from abele.codelet.slots import BUNDLE_BYTES, INSTRUCTION_BYTES, Cost


@dataclass(frozen=True)
class _Operation:
    pipe: str
    slots: int
    needs: tuple[int, ...]


@dataclass
class Schedule:
    """Operations of straight-line code, and what each needs.

    Model: in every slot each pipe starts the ready operation from which the longest chain of others hangs.
    """

    _operations: list[_Operation] = field(default_factory=list)
    _starts: list[int] | None = None

    def place(self, cost: Cost, needs: Iterable[int] = ()) -> int:
        """Add an operation that needs results of others; returns its number. Of one that uses both pipes, the part on
        the pipe named in ``cost.first`` comes first."""
        parts = [("main", cost.main), ("aux", cost.aux)]
        last = tuple(needs)
        for pipe, slots in parts if cost.first == "main" else reversed(parts):
            if slots:
                self._operations.append(_Operation(pipe, slots, last))
                last = (len(self._operations) - 1,)
        self._starts = None
        return last[0]

    @property
    def length(self) -> int:
        """Slots from the first bundle to the last."""
        return max((s + o.slots for s, o in zip(self._schedule(), self._operations, strict=True)), default=0)

    @property
    def code_bytes(self) -> int:
        """Size of the code: an instruction, or a bundle where two start together; a long operation is one, a call."""
        starts = self._schedule()
        alone = len(set(starts)) * 2 - len(starts)
        return alone * INSTRUCTION_BYTES + (len(starts) - len(set(starts))) * BUNDLE_BYTES

    def _schedule(self) -> list[int]:
        """First slot of every operation."""
        if self._starts is None:
            self._starts = self._listed()
        return self._starts

    def _listed(self) -> list[int]:
        operations = self._operations
        height = self._heights()
        users: list[list[int]] = [[] for _ in operations]
        missing = [len(o.needs) for o in operations]
        for number, operation in enumerate(operations):
            for need in operation.needs:
                users[need].append(number)
        starts = [0] * len(operations)
        earliest = [0] * len(operations)
        ready: dict[str, list[tuple[int, int]]] = {"main": [], "aux": []}
        waiting = [(0, n) for n, count in enumerate(missing) if not count]
        free, slot, left = {"main": 0, "aux": 0}, 0, len(operations)
        while left:
            while waiting and waiting[0][0] <= slot:
                number = heapq.heappop(waiting)[1]
                heapq.heappush(ready[operations[number].pipe], (-height[number], number))
            for pipe, queue in ready.items():
                if not queue or free[pipe] > slot:
                    continue
                number = heapq.heappop(queue)[1]
                starts[number], free[pipe], left = slot, slot + operations[number].slots, left - 1
                for user in users[number]:
                    missing[user] -= 1
                    earliest[user] = max(earliest[user], free[pipe])
                    if not missing[user]:
                        heapq.heappush(waiting, (earliest[user], user))
            slot = self._next(slot, free, ready, waiting)
        return starts

    @staticmethod
    def _next(
        slot: int, free: dict[str, int], ready: dict[str, list[tuple[int, int]]], waiting: list[tuple[int, int]]
    ) -> int:
        """The next slot in which something can start."""
        times = [max(free[pipe], slot + 1) for pipe, queue in ready.items() if queue]
        times += [max(waiting[0][0], slot + 1)] if waiting else []
        return min(times, default=slot + 1)

    def _heights(self) -> list[int]:
        """Slots from the start of each operation to the end of the longest chain that hangs from it."""
        height = [o.slots for o in self._operations]
        for number in reversed(range(len(height))):
            for need in self._operations[number].needs:
                height[need] = max(height[need], self._operations[need].slots + height[number])
        return height
