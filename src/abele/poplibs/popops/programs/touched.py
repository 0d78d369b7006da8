"""Elements that programs read and write: whether several of them can run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from abele.arrays import Int64
from abele.errors import ControlProgramError
from abele.graph import Copy, Execute, LibraryCall, Program
from abele.graph.interval_set import IntervalSet
from abele.graph.intervals import distinct


def check_independent(programs: Sequence[Sequence[Program]]) -> None:
    """Raise if one of several programs, given as lists of steps, writes data of another.

    Raises:
        ControlProgramError: One does.
    """
    written, read = (
        [IntervalSet.union(IntervalSet.of(*i) for i in _intervals(steps, written=w)) for steps in programs]
        for w in (True, False)
    )
    for i, j in permutations(range(len(programs)), 2):
        for other in (written[j], read[j]):
            if not written[i].meets(other):
                continue
            common = int((written[i] & other).begin[0])
            raise ControlProgramError(
                f"program {i} writes what program {j} reads or writes, so they cannot run side by side",
                at=programs[i][0].debug.location or None,
                because=f"both touch the element at global address {common:,}",
                remedy="run them one after the other",
            )


def _intervals(steps: Iterable[Program], *, written: bool) -> Iterator[tuple[Int64, Int64]]:
    """Begins and lengths of the intervals that steps write, or read."""
    for step in steps:
        match step:
            case Execute():
                yield from _of_vertices(step, written=written)
            case Copy():
                for view in step.writes() if written else step.reads():
                    yield view.intervals()
            case LibraryCall():
                for view in step.outputs if written else step.inputs:
                    yield view.intervals()
                yield from _intervals(step.body, written=written)
            case _:
                yield from _intervals(step.children(), written=written)


def _of_vertices(step: Execute, *, written: bool) -> Iterator[tuple[Int64, Int64]]:
    wanted = ("out", "inout") if written else ("in", "inout")
    for group in step.compute_set.groups:
        for declared in group.codelet.fields:
            if declared.direction in wanted:
                edge = group.edges[declared.name]
                regions = edge.regions.take(distinct(edge.index))
                yield regions.begin, regions.length
