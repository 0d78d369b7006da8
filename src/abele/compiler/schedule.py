"""Schedule: when the rows of a program start and end, as max-plus over the sync groups and links that they need.

A row starts when all resources that meet in it are free, and keeps them busy until its end: the end of each is the
largest of their ends before, plus the row's cycles. Only largest-of and plus occur, so a row is a linear map in the
max-plus algebra, where these two take the place of plus and times; so is a sequence of rows, and one trip of a loop is
a matrix. Its n-th power, by squaring, takes the state past n trips exactly, however the groups in it drift apart, and a
loop of a million trips costs twenty products. Resources that are always needed together are one row of the state, so
that matrices are as small as the groups that really differ: 1 for a program whose steps all meet everywhere.

What was tried: walking all trips, which is what the power is tested against; and looking for the trip after which the
state only shifts by a constant, which comes soon in most loops but after thousands of trips in some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.compiler.lower import Step, StepBlock
from abele.compiler.sync_groups import Link
from abele.compiler.timeline import Part

# Unrolling: a lowered program as rows and loops, with as many trips as a run makes.
#
# Counts are those of a whole run, while the schedule needs trips per entry: a loop that ran 60 times within a loop of
# 20 is one of 3 trips. So the walk carries how often the part that it is in is entered, and divides. Trips may be
# fractions, which the schedule takes as parts of a row's cycles: the sum over the run stays exact for every row.


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the steps table that run one after the other.

    Attributes:
        first: First row.
        end: One past the last.
    """

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class RepeatedItems:
    """Items of a loop, with their number of trips.

    Attributes:
        trips: Number of trips. A fraction stands for a branch that is taken in that share of all cases.
        items: Items of one trip, in order.
    """

    trips: float
    items: tuple[Rows | RepeatedItems, ...]


Item = Rows | RepeatedItems


def unroll(block: StepBlock, executions: Int64, first_row: Int64) -> tuple[Item, ...]:
    """A program as rows and loops.

    Args:
        block: One program of the lowered ones.
        executions: Times that each step runs in one run, int64[steps].
        first_row: First row of each step in the steps table, and the number of rows, int64[steps + 1].

    Model: a loop that depends on data makes its mean number of trips each time that it is entered, and each branch is
    taken in its share of all cases, in every trip of the loop around it.
    """
    return _merged(_Unrolling(executions, first_row).items(block, 1.0))


class _Unrolling:
    def __init__(self, executions: Int64, first_row: Int64) -> None:
        self.executions = executions
        self.first_row = first_row

    def items(self, item: Step | StepBlock, times: float) -> Iterator[Item]:
        """Rows and loops of a part of the program that is entered ``times`` times in a run."""
        if isinstance(item, Step):
            yield from self._scaled(item, times)
            return
        match item.kind:
            case "repeat":
                yield RepeatedItems(item.count, self._all(item.items, times * item.count))
            case "while":
                yield from self._while(item.items, times)
            case "if":
                for way in item.items:
                    yield from self._often(way, times)
            case _:
                for inner in item.items:
                    yield from self.items(inner, times)

    def _scaled(self, step: Step, times: float) -> Iterator[Item]:
        rows = Rows(int(self.first_row[step.index]), int(self.first_row[step.index + 1]))
        each = float(self.executions[step.index]) / times if times else 0.0
        if each == 1.0:
            yield rows
        elif each > 0.0:
            yield RepeatedItems(each, (rows,))

    def _all(self, items: Sequence[Step | StepBlock], times: float) -> tuple[Item, ...]:
        return _merged(found for item in items for found in self.items(item, times))

    def _often(self, way: Step | StepBlock, times: float) -> Iterator[Item]:
        """A branch that is taken in a part of the cases."""
        taken = self._entries(way)
        if taken and times:
            inside = self._all([way], taken)
            yield from inside if taken == times else [RepeatedItems(taken / times, inside)]

    def _while(self, items: Sequence[Step | StepBlock], times: float) -> Iterator[Item]:
        """Condition and decision, then trips of body, condition and decision; or an assumed trip without counts."""
        condition, decision, body = items
        looked, trips = self._entries(decision) or 0.0, self._entries(body)
        if trips is None:
            trips = max(looked - times, 0.0)
        if not times or not looked:
            return
        head = self._all([condition, decision], looked)
        if trips:
            yield RepeatedItems(trips / times, (*head, *self._all([body], trips)))
        if looked > trips:
            # The last look, which finds that the loop is over.
            yield RepeatedItems((looked - trips) / times, head)

    def _entries(self, item: Step | StepBlock) -> float | None:
        """Times that a part of the program is entered in a run; None if no step in it is counted."""
        if isinstance(item, Step):
            return float(self.executions[item.index])
        if item.kind == "while":
            looked, trips = self._entries(item.items[1]) or 0.0, self._entries(item.items[2]) or 0.0
            return looked if looked == trips else looked - trips
        found = (self._entries(inner) for inner in item.items) if item.kind != "if" else iter(())
        entries = next((n for n in found if n is not None), None)
        return entries if entries is None or item.kind != "repeat" else entries / item.count if item.count else None


def _merged(items: Iterator[Item]) -> tuple[Item, ...]:
    """Neighbouring rows as one item; nothing that is empty."""
    result: list[Item] = []
    for item in items:
        if item.first == item.end if isinstance(item, Rows) else not item.items:
            continue
        last = result[-1] if result else None
        if isinstance(item, Rows) and isinstance(last, Rows) and last.end == item.first:
            result[-1] = Rows(last.first, item.end)
        else:
            result.append(item)
    return tuple(result)


State = npt.NDArray[np.float64]
"""Cycle at which each resource is free, [resources, k], for k states of the machine at the start."""
Resource = int | Link
NEVER = -np.inf
MAX_TRACED = 16_384
"""Executions of rows that a trace holds."""
WHOLE = 1e-9
"""Tolerance of a whole number of trips: it comes from divisions."""


@dataclass(frozen=True, slots=True)
class Span:
    """One execution of a row, on one set of groups that meet in it.

    Attributes:
        row: The row.
        meet: Position of the set among those of the row.
        start: Cycle at which it starts.
        end: Cycle at which it ends.
    """

    row: int
    meet: int
    start: int
    end: int


@dataclass(frozen=True, eq=False, slots=True)
class ProgramSchedule:
    """Start and end of a program's rows and sync groups.

    Attributes:
        starts: Cycle at which each row first starts, int64[rows]; −1 for rows that do not run.
        free: Cycle after which each sync group is done, int64[groups].
        trace: The first executions of rows, in program order.
    """

    starts: Int64
    free: Int64
    trace: tuple[Span, ...]

    @property
    def end(self) -> int:
        """Cycles of the whole program."""
        return int(self.free.max(initial=0))


@dataclass(frozen=True, eq=False, slots=True)
class RowNeeds:
    """Resources of a row: for each set that meets, its resources; links; cycles, and cycles before the links are used.

    Attributes:
        cycles: Cycles of one execution.
        meets: Resources of each set that meets.
        links: Links that it needs.
        latency: Cycles before it needs them.
        lone: The resource if it needs but one, else −1.
    """

    cycles: float
    meets: tuple[npt.NDArray[np.intp], ...]
    links: npt.NDArray[np.intp]
    latency: float
    lone: int


def schedule(
    items: Sequence[Item], parts: Sequence[Part], num_groups: int, *, traced: int = MAX_TRACED
) -> ProgramSchedule:
    """The schedule of one program.

    Args:
        items: The program, as rows and loops.
        parts: Timeline of each row of the steps table.
        num_groups: Sync groups.
        traced: Executions of rows to keep.
    """
    rows, classes = needs_of(items, parts)
    run = Run(rows, max(classes.values(), default=-1) + 1, np.full(len(parts), -1, dtype=np.int64), traced)
    state = run.through(items, np.zeros((run.num_resources, 1)), 1.0)
    free = [state[classes[g], 0] if g in classes else 0.0 for g in range(num_groups)]
    return ProgramSchedule(run.starts, np.rint(free).astype(np.int64), tuple(run.trace))


def row_needs(items: Sequence[Item], parts: Sequence[Part]) -> tuple[dict[int, RowNeeds], int]:
    """Needs of each row that runs, by row, and the number of different resources; arguments as of :func:`schedule`."""
    rows, classes = needs_of(items, parts)
    return rows, max(classes.values(), default=-1) + 1


def needs_of(items: Sequence[Item], parts: Sequence[Part]) -> tuple[dict[int, RowNeeds], dict[Resource, int]]:
    """Needs of each row that runs, by row, and the row of the state of each resource; see :func:`schedule`."""
    used = sorted({row for item in items for row in rows_of(item)})
    different = {id(part): part for part in (parts[row] for row in used)}
    classes = _classes(list(different.values()))
    needs = {key: _row(part, classes) for key, part in different.items()}
    return {row: needs[id(parts[row])] for row in used}, classes


def rows_of(item: Item) -> Iterator[int]:
    """Every row that runs in an item, once for each place where it stands."""
    if isinstance(item, Rows):
        yield from range(item.first, item.end)
    else:
        for inner in item.items:
            yield from rows_of(inner)


def _classes(parts: Sequence[Part]) -> dict[Resource, int]:
    """Resources that are always needed together are one: a number for each that is needed at all."""
    needs: dict[Resource, list[tuple[int, int]]] = {}
    patterns = dict.fromkeys((p.meets, p.links) for p in parts)
    for number, (meets, links) in enumerate(patterns):
        for position, meet in enumerate(meets):
            for group in meet:
                needs.setdefault(group, []).append((number, position))
        for link in links:
            needs.setdefault(link, []).append((number, -1))
    # Resources with the same list of needs go through the same rows at the same times: their states are always equal.
    numbers: dict[tuple[tuple[int, int], ...], int] = {}
    return {resource: numbers.setdefault(tuple(where), len(numbers)) for resource, where in needs.items()}


def _row(part: Part, classes: dict[Resource, int]) -> RowNeeds:
    meets = tuple(np.unique([classes[g] for g in meet]) for meet in part.meets)
    links = np.unique(np.array([classes[p] for p in part.links], dtype=np.intp))
    lone = int(meets[0][0]) if len(meets) == 1 == len(meets[0]) and not len(links) else -1
    return RowNeeds(float(part.cycles), meets, links, float(part.cycles - part.link_cycles), lone)


@dataclass
class Run:
    """A walk through the program.

    Attributes:
        rows: Needs of the rows.
        num_resources: Resources that differ.
        starts: First start of each row so far.
        room: Executions that the trace still has room for.
        trace: First executions.
    """

    rows: dict[int, RowNeeds]
    num_resources: int
    starts: Int64
    room: int
    trace: list[Span] = field(default_factory=list)
    _matrices: dict[tuple[int, float], State] = field(default_factory=dict)

    def through(self, items: Sequence[Item], state: State, scale: float) -> State:
        """The state after some items, which are noted; cycles count ``scale`` times."""
        for item in items:
            if isinstance(item, RepeatedItems):
                state = self._loop(item, state, scale)
                continue
            for row in range(item.first, item.end):
                self._note(row, advance(self.rows[row], state, scale), state)
        return state

    def _note(self, row: int, starts: list[float], state: State) -> None:
        if self.starts[row] < 0:
            self.starts[row] = round(min(starts))
        if self.room <= 0:
            return
        self.room -= 1
        for meet, start in enumerate(starts):
            end = state[self.rows[row].meets[meet][0], 0]
            self.trace.append(Span(row, meet, round(start), round(end)))

    def _loop(self, loop: RepeatedItems, state: State, scale: float) -> State:
        """The trips that the trace has room for one by one, the others by the power of a matrix."""
        whole = int(loop.trips + WHOLE)
        part = loop.trips - whole
        done, room = 0, -1
        # The first trip always runs one by one, since it tells when rows first start. Further ones as long as they add
        # to the trace.
        while done < whole and (done == 0 or 0 < self.room != room):
            room = self.room
            state = self.through(loop.items, state, scale)
            done += 1
        if done < whole:
            state = times(power(self._matrix(loop, scale), whole - done), state)
        return self.through(loop.items, state, scale * part) if part > WHOLE else state

    def _matrix(self, loop: RepeatedItems, scale: float) -> State:
        """Max-plus matrix of one trip."""
        key = (id(loop), scale)
        if key not in self._matrices:
            self._matrices[key] = self._past(loop.items, _identity(self.num_resources), scale)
        return self._matrices[key]

    def _past(self, items: Sequence[Item], state: State, scale: float) -> State:
        """The states after some items, which are not noted."""
        for item in items:
            if isinstance(item, Rows):
                for row in range(item.first, item.end):
                    advance(self.rows[row], state, scale)
                continue
            whole = int(item.trips + WHOLE)
            part = item.trips - whole
            if whole == 1:
                state = self._past(item.items, state, scale)
            elif whole:
                state = times(power(self._matrix(item, scale), whole), state)
            if part > WHOLE:
                state = self._past(item.items, state, scale * part)
        return state


def advance(row: RowNeeds, state: State, scale: float) -> list[float]:
    """Let a row happen; returns when it starts in the first of the states, for each set that meets."""
    if row.lone >= 0:
        begin = float(state[row.lone, 0])
        state[row.lone] += row.cycles * scale
        return [begin]
    starts = []
    for resources in row.meets:
        start = state[resources].max(axis=0)
        if len(row.links):
            # Links are needed only when the phase's own start is over, so they may be busy for that long.
            start = np.maximum(start, state[row.links].max(axis=0) - row.latency * scale)
        state[resources] = start + row.cycles * scale
        if len(row.links):
            state[row.links] = start + row.cycles * scale
        starts.append(float(start[0]))
    return starts


def _identity(size: int) -> State:
    return np.where(np.eye(size, dtype=bool), 0.0, NEVER)


def times(left: State, right: State) -> State:
    """The max-plus product."""
    result = np.empty((len(left), right.shape[1]))
    for i, row in enumerate(left):
        # A row at a time: the whole product as one array would take size³ numbers.
        result[i] = (row[:, None] + right).max(axis=0)
    return result


def power(matrix: State, exponent: int) -> State:
    """The max-plus power, by squaring."""
    result = _identity(len(matrix))
    while exponent:
        if exponent & 1:
            result = times(matrix, result)
        exponent >>= 1
        if exponent:
            matrix = times(matrix, matrix)
    return result
