"""What programs read and write: whether several of them can run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from abele.errors import ControlProgramError
from abele.graph import Copy, Execute, LibraryCall, Program
from abele.graph.intervals import Int64, distinct


@dataclass(frozen=True)
class _Touched:
    """Sorted, disjoint ranges of global addresses: begins and ends, int64[k] each."""

    begin: Int64
    end: Int64

    @staticmethod
    def of(intervals: Iterable[tuple[Int64, Int64]]) -> _Touched:
        """What intervals, as begins and lengths, cover."""
        pairs = list(intervals)
        begin = np.concatenate([b for b, _ in pairs] or [np.empty(0, np.int64)])
        end = begin + np.concatenate([n for _, n in pairs] or [np.empty(0, np.int64)])
        keys = distinct(np.concatenate([begin, end]))
        depth = np.zeros(len(keys), dtype=np.int64)
        np.add.at(depth, np.searchsorted(keys, begin), 1)
        np.add.at(depth, np.searchsorted(keys, end), -1)
        covered = np.cumsum(depth) > 0
        edges = np.flatnonzero(np.diff(covered, prepend=False))
        return _Touched(keys[edges[::2]], keys[edges[1::2]])

    def meets(self, other: _Touched) -> int | None:
        """The first address that is in both, or None."""
        at = np.searchsorted(other.end, self.begin, side="right")
        hit = np.flatnonzero(at < len(other.end))
        hit = hit[np.maximum(other.begin[at[hit]], self.begin[hit]) < self.end[hit]]
        return int(max(other.begin[at[hit[0]]], self.begin[hit[0]])) if len(hit) else None


def check_independent(programs: Sequence[Sequence[Program]]) -> None:
    """Raise if one of several programs, given as lists of steps, writes what another reads or writes.

    Raises:
        ControlProgramError: One does.
    """
    written = [_Touched.of(_intervals(steps, written=True)) for steps in programs]
    read = [_Touched.of(_intervals(steps, written=False)) for steps in programs]
    for i, j in permutations(range(len(programs)), 2):
        for other in (written[j], read[j]):
            common = written[i].meets(other)
            if common is not None:
                raise ControlProgramError(
                    f"program {i} writes what program {j} reads or writes, so they cannot run side by side",
                    at=programs[i][0].debug.location or None,
                    because=f"both touch the element at global address {common:,}",
                    remedy="run them one after the other",
                )


def _intervals(steps: Iterable[Program], *, written: bool) -> Iterator[tuple[Int64, Int64]]:
    """What steps write, or what they read: begins and lengths."""
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
