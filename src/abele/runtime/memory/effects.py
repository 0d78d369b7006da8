"""Effects of program steps: elements read and written, and contents that survive from round to round.

The usual data flow facts of a basic block, over sets of elements instead of variables: *exposed* (read before it is
written), *written* (may), *sure* (must). They compose: after each other, alternatives and repetition each have a line.
Elements and not variables, because one variable often holds state in a part of it and scratch in another. What is
exposed and written is exactly what one round of a loop can tell the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from abele.graph import (
    ComputeSet,
    Edge,
    Execute,
    LibraryCall,
    Program,
)
from abele.graph.elements import elements_of
from abele.graph.flow import InOrder, OneOf, Rounds, While
from abele.graph.interval_set import EMPTY, IntervalSet


@dataclass(frozen=True, eq=False, slots=True)
class Effects:
    """Elements that a step touches.

    Attributes:
        exposed: Read before the step itself has written them.
        written: Written, perhaps.
        sure: Written in any case.
    """

    exposed: IntervalSet = EMPTY
    written: IntervalSet = EMPTY
    sure: IntervalSet = EMPTY

    def then(self, later: Effects) -> Effects:
        """The effects of this step and a later one after each other."""
        # A later read is covered only by what this step writes in any case.
        exposed = self.exposed | (later.exposed - self.sure)
        return Effects(exposed, self.written | later.written, self.sure | later.sure)

    def perhaps(self) -> Effects:
        """The effects of this step where it may also not run."""
        return Effects(self.exposed, self.written, EMPTY)

    def either(self, other: Effects) -> Effects:
        """The effects of one of two steps."""
        return Effects(self.exposed | other.exposed, self.written | other.written, self.sure & other.sure)

    @property
    def persistent(self) -> IntervalSet:
        """Elements that one round of this step leaves for the next: read from the round before, and written."""
        return self.exposed & self.written

    @property
    def touched(self) -> IntervalSet:
        """All elements that the step reads or writes, but for those it writes first and then reads."""
        return self.exposed | self.written


NOTHING = Effects()


class EffectsOf:
    """Effects of the steps of a program; a library call counts by its operands, not by its body."""

    def __init__(self) -> None:
        self._compute_sets: dict[ComputeSet, Effects] = {}
        self._steps: dict[Program, Effects] = {}

    def __call__(self, step: Program) -> Effects:
        """Effects of one step with all that is inside."""
        if step not in self._steps:
            self._steps[step] = self._of(step)
        return self._steps[step]

    def sequence(self, steps: Iterable[Program]) -> Effects:
        """Effects of steps after each other.

        Neighbours are joined first: adding one step after the other would go through all sets so far for each of them.
        """
        found = list(map(self, steps))
        while len(found) > 1:
            joined = [a.then(b) for a, b in zip(found[::2], found[1::2], strict=False)]
            found = joined + found[len(joined) * 2 :]
        return found[0] if found else NOTHING

    def compute_set(self, compute_set: ComputeSet) -> Effects:
        """Effects of one superstep: all reads come before all writes."""
        if compute_set not in self._compute_sets:
            self._compute_sets[compute_set] = _superstep(compute_set)
        return self._compute_sets[compute_set]

    def _of(self, step: Program) -> Effects:
        match step:
            case Execute():
                return self.compute_set(step.compute_set)
            case LibraryCall():
                written = IntervalSet.union(map(elements_of, step.outputs))
                return Effects(IntervalSet.union(map(elements_of, step.inputs)), written, written)
        match step.flow():
            case Rounds(count, body):
                return self(body) if count else NOTHING
            case While(condition, predicate, _, body):
                # The condition runs at least once; the body perhaps never, so nothing in it is sure.
                tested = self(condition).then(Effects(elements_of(predicate)))
                return tested.then(self(body).perhaps())
            case OneOf(selector, ways):
                return Effects(elements_of(selector)).then(reduce(Effects.either, map(self, ways)))
            case InOrder(steps):
                written = IntervalSet.union(map(elements_of, step.writes()))
                own = Effects(IntervalSet.union(map(elements_of, step.reads())), written, written)
                return self.sequence(steps).then(own)


def edge_elements(edge: Edge) -> IntervalSet:
    """The elements that an edge is wired to."""
    used = edge.regions.take(edge.index) if len(edge.index) < edge.regions.num else edge.regions
    return IntervalSet.of(used.begin, used.length)


def _superstep(compute_set: ComputeSet) -> Effects:
    read, written = [], []
    for group in compute_set.groups:
        for field in group.codelet.fields:
            if field.direction == "state":
                continue
            elements = edge_elements(group.edges[field.name])
            if field.direction != "out":
                read.append(elements)
            if field.direction != "in":
                written.append(elements)
    writes = IntervalSet.union(written)
    return Effects(IntervalSet.union(read), writes, writes)
