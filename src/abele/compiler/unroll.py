"""Unrolling: a lowered program as rows and loops, with as many trips as a run makes.

Counts are those of a whole run, while the schedule needs trips per entry: a loop that ran 60 times within a loop of 20
is one of 3 trips. So the walk carries how often the part that it is in is entered, and divides. Trips may be fractions,
which the schedule takes as parts of a row's cycles: the sum over the run stays exact for every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abele.arrays import Int64
from abele.compiler.lower import Step, StepBlock


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
