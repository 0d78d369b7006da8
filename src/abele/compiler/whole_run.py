"""The whole run in few spans: every execution of every row, with equal trips of loops as one.

A trip of a loop looks at when the resources that its rows need are free, and at nothing else; and what it does to them
is linear in the max-plus algebra (``schedule``). So if a trip leaves all of them later by the same number of cycles,
the next one finds the same, only later, and so do all that follow: their spans are those of this trip, one period on
after the other. Trips are therefore walked one by one until that is so, and the others are one loop around the spans of
the last one. Resources that no row of the loop brings together need not agree: each such part has a period of its own,
and a loop. Where links let groups take turns, some trips together may repeat while a single one does not.

What was tried: one period for all resources, which a loop over IPUs that do not meet never reaches.

Example: if the second of 1,000 trips leaves all resources 50 cycles later than the first did, it stands for all trips
from it on, with a period of 50.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.compiler.schedule import (
    WHOLE,
    Item,
    RepeatedItems,
    Run,
    State,
    advance,
    needs_of,
    power,
    rows_of,
    times,
)
from abele.compiler.timeline import Part

MOST_SPANS = 1 << 18
"""Most spans of a program: BERT-Large on a Pod16 has 172,844."""
_MOST_TOGETHER = 4
"""Trips that may repeat together."""


class WholeRun(NamedTuple):
    """The executions of a program.

    Attributes:
        row: Row of each span, int64[n].
        meet: Position of its set of groups among those of the row, int64[n].
        start: Cycle at which it starts, in the first trip of the loops around it, int64[n].
        end: Cycle at which it ends there, int64[n].
        loop: The loop that it is in, int64[n]; −1 for none.
        parent: The loop around each loop, int64[loops]; −1 for none. It has a higher number.
        trips: Number of trips, int64[loops].
        period: Cycles from one trip to the next, int64[loops].
        known: Cycle from which on the spans of each sync group are left out, int64[groups]; −1 where none are.
    """

    row: Int64
    meet: Int64
    start: Int64
    end: Int64
    loop: Int64
    parent: Int64
    trips: Int64
    period: Int64
    known: Int64


def whole_run(items: Sequence[Item], parts: Sequence[Part], num_groups: int, *, most: int = MOST_SPANS) -> WholeRun:
    """Every execution of a program.

    Args:
        items: The program, as rows and loops.
        parts: Timeline of each row of the steps table.
        num_groups: Sync groups.
        most: Most spans; later ones are left out.
    """
    rows, classes = needs_of(items, parts)
    size = max(classes.values(), default=-1) + 1
    walk = _RunWalk(rows, size, np.full(len(parts), -1, dtype=np.int64), most)
    walk.through(items, np.zeros((size, 1)), 1.0)
    known = [
        -1.0 if walk.known is None else walk.known[classes[g], 0] if g in classes else -1.0 for g in range(num_groups)
    ]
    spans = np.array(walk.spans, dtype=np.int64).reshape(-1, 5).T
    loops = np.array(walk.loops, dtype=np.int64).reshape(-1, 3).T
    row, meet, start, end, loop = spans
    parent, trips, period = loops
    return WholeRun(
        row=row,
        meet=meet,
        start=start,
        end=end,
        loop=loop,
        parent=parent,
        trips=trips,
        period=period,
        known=np.rint(known).astype(np.int64),
    )


class _Trip(NamedTuple):
    """Start of a trip: the state, and the numbers of spans and loops so far."""

    state: State
    spans: int
    loops: int


@dataclass
class _RunWalk(Run):
    """Walk through the program that lists equal trips once.

    Attributes:
        spans: Row, meet, start, end and loop of each span.
        loops: Parent, trips and period of each loop.
        known: The state at which there was no more room.
    """

    spans: list[list[int]] = field(default_factory=list)
    loops: list[list[int]] = field(default_factory=list)
    known: State | None = None
    _of_span: list[int] = field(default_factory=list)
    _of_loop: list[int] = field(default_factory=list)
    _parts: dict[int, tuple[Int64, ...]] = field(default_factory=dict)

    def through(self, items: Sequence[Item], state: State, scale: float) -> State:
        """State after some items, whose spans are listed."""
        for item in items:
            if self.known is not None:
                state = self._past([item], state, scale)
            elif isinstance(item, RepeatedItems):
                state = self._around(item, state, scale)
            else:
                for row in range(item.first, item.end):
                    self._tell(row, state, scale)
        return state

    def _tell(self, row: int, state: State, scale: float) -> None:
        needs = self.rows[row]
        if self.known is None and len(self.spans) + len(needs.meets) > self.room:
            self.known = state.copy()
        starts = advance(needs, state, scale)
        if self.known is not None:
            return
        for meet, start in enumerate(starts):
            resource = int(needs.meets[meet][0])
            self.spans.append([row, meet, round(start), round(float(state[resource, 0])), -1])
            self._of_span.append(resource)

    def _around(self, loop: RepeatedItems, state: State, scale: float) -> State:
        whole = int(loop.trips + WHOLE)
        part = loop.trips - whole
        before: list[_Trip] = []
        left = whole
        while left:
            if self.known is not None:
                state = times(power(self._matrix(loop, scale), left), state)
                break
            before.append(_Trip(state.copy(), len(self.spans), len(self.loops)))
            state = self.through(loop.items, state, scale)
            left -= 1
            together = self._together(loop, before, state) if left and self.known is None else 0
            if together:
                first = before[-together]
                further = left // together
                if further:
                    state = self._repeat(loop, first, state, further)
                    left -= further * together
                    before = []
            del before[:-_MOST_TOGETHER]
        return self.through(loop.items, state, scale * part) if part > WHOLE else state

    def _together(self, loop: RepeatedItems, before: Sequence[_Trip], state: State) -> int:
        """The fewest trips up to now after which all parts of a loop are as they were, only later; 0 if none are."""
        for count in range(1, len(before) + 1):
            later = state - before[-count].state
            if all(bool((later[part] == later[part[0]]).all()) for part in self._apart(loop)):
                return count
        return 0

    def _repeat(self, loop: RepeatedItems, first: _Trip, state: State, further: int) -> State:
        """Put the spans since ``first`` into loops of ``further`` more trips; gives the state after those."""
        later = (state - first.state)[:, 0]
        number_of = np.full(self.num_resources, -1)
        begin = len(self.loops)
        for part in self._apart(loop):
            number_of[part] = len(self.loops)
            self.loops.append([-1, further + 1, round(float(later[part[0]]))])
            self._of_loop.append(int(part[0]))
        for at in range(first.spans, len(self.spans)):
            if self.spans[at][4] < 0:
                self.spans[at][4] = int(number_of[self._of_span[at]])
        for at in range(first.loops, begin):
            if self.loops[at][0] < 0:
                self.loops[at][0] = int(number_of[self._of_loop[at]])
        state = state.copy()
        state[:, 0] += np.where(number_of >= 0, later * further, 0.0)
        return state

    def _apart(self, loop: RepeatedItems) -> tuple[Int64, ...]:
        """Resources of a loop, in parts that no row of it brings together."""
        if id(loop) not in self._parts:
            root = list(range(self.num_resources))

            def top(resource: int) -> int:
                while root[resource] != resource:
                    root[resource] = root[root[resource]]
                    resource = root[resource]
                return resource

            used: set[int] = set()
            for row in rows_of(loop):
                needs = self.rows[row]
                meets = [np.append(meet, needs.links) for meet in needs.meets]
                for meet in meets:
                    used.update(meet.tolist())
                    for resource in meet[1:].tolist():
                        root[top(resource)] = top(int(meet[0]))
            parts: dict[int, list[int]] = {}
            for resource in sorted(used):
                parts.setdefault(top(resource), []).append(resource)
            self._parts[id(loop)] = tuple(np.array(part, dtype=np.int64) for part in parts.values())
        return self._parts[id(loop)]
