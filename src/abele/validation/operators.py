"""Operator benchmarks of a CSV file on GC2 and GC200, several at a time.

Whatever becomes of one does not touch the others: each has figures, or a reason why it has none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

from rich.console import Console
from rich.progress import track

from abele.validation.figures import Comparison, Figure
from abele.validation.measure import CHIPS, BenchmarkRow, RowResult, measure
from abele.validation.options import understood

_SOURCE = "Graphcore's IPUModel, published operator benchmarks"


@dataclass(frozen=True)
class Operators:
    """Results of operator benchmarks.

    Attributes:
        results: Figures of those that could be built.
        failures: For each of the others its name, chip and error.
    """

    results: tuple[RowResult, ...]
    failures: tuple[str, ...]

    @property
    def remarks(self) -> tuple[str, ...]:
        """For each row with parameters that its kind of operator does not know, its name and theirs."""
        found = {
            r.name: f"{r.name}: {', '.join('--' + n for n in r.left_out)} of {r.tool} is not known and changes nothing"
            for r in self.results
            if r.left_out
        }
        return tuple(found.values())


def compare_rows(
    rows: Sequence[BenchmarkRow],
    chips: Sequence[str] = tuple(CHIPS.values()),
    *,
    jobs: int | None = None,
    console: Console | None = None,
) -> Operators:
    """Figures of every row on every chip that it has published figures of; on all of ``chips`` if it has none at all.

    Args:
        rows: The benchmarks.
        chips: Names of the systems.
        jobs: Processes; one per core by default.
        console: Console for progress, or None.
    """
    pending = [(row, chip) for row in rows for chip in chips if chip in row.references or not row.references]
    results: list[RowResult] = []
    failures: list[str] = []
    for (row, chip), found in _watched(_attempts(pending, jobs or os.cpu_count() or 1), len(pending), console):
        if isinstance(found, RowResult):
            results.append(found)
        else:
            failures.append(f"{row.name} on {chip}: {found}")
    return Operators(tuple(results), tuple(failures))


_Task = tuple[BenchmarkRow, str]
_Found = tuple[_Task, RowResult | str]


def attempt(row: BenchmarkRow, chip: str) -> RowResult | str:
    """The figures of one row, or why it has none."""
    if row.unread:
        return row.unread
    try:
        return measure(row, chip)
    except Exception as error:
        _, left_out = understood(row.tool, row.parameters)
        unknown = f" (not known: {', '.join('--' + name for name in left_out)})" if left_out else ""
        head, *more = f"{type(error).__name__}: {error}".split("\n")
        return "\n".join([head + unknown, *more])


def _attempts(pending: Sequence[_Task], jobs: int) -> Iterator[_Found]:
    """Result of each task, in order; a killed process loses the row that it was at alone."""
    context = get_context("spawn")
    start = 0
    while start < len(pending):
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            futures = [pool.submit(attempt, row, chip) for row, chip in pending[start:]]
            try:
                for task, future in zip(pending[start:], futures, strict=True):
                    yield task, future.result()
                    start += 1
                continue
            except BrokenProcessPool:
                pass
        # The processes of a broken pool are all gone: rows that were under way are tried one by one.
        for task in pending[start : start + jobs]:
            yield task, _alone(*task)
        start += jobs


def _alone(row: BenchmarkRow, chip: str) -> RowResult | str:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(attempt, row, chip).result()
        except BrokenProcessPool:
            return "its process was killed, likely for want of memory"


def _watched(found: Iterator[_Found], total: int, console: Console | None) -> Iterator[_Found]:
    yield from found if console is None else track(found, "operators", total, console=console)


def comparisons(found: Operators) -> tuple[Comparison, ...]:
    """Cycles, memory and largest partial sums of operators as comparisons; kinds are kinds of operators."""
    cycles, held, partials = [], [], []
    for r in found.results:
        name = f"{r.name}, {r.chip}"
        if r.reference_cycles is not None:
            cycles.append(Figure(name, r.tool, r.predicted_cycles, r.reference_cycles, "cycles", _SOURCE))
        if r.reference_bytes is not None:
            held.append(Figure(name, r.tool, r.predicted_bytes, r.reference_bytes, "B", _SOURCE))
        if r.reference_partials is not None and r.predicted_partials:
            partials.append(Figure(name, r.tool, r.predicted_partials, r.reference_partials, "B", _SOURCE))
    about = (
        "One model beside another: Graphcore's own cycle model of complete PopLibs operators, on both generations. "
        "Each row is built through the library as its command line says, and all its programs are counted."
    )
    about_memory = (
        "Bytes over all tiles of the same programs. Where the published tool compiled none, code of vertices and of "
        "control and stacks are left out of ours: its totals hold them for convolutions, octave convolutions, products "
        "and solvers. Gaps are left out everywhere."
    )
    return (
        Comparison("operators", "operators: cycles", about, tuple(cycles)),
        Comparison("memory", "operators: memory", about_memory, tuple(held)),
        Comparison("partials", "operators: largest partial sums", _about_partials(partials), tuple(partials)),
    )


def _about_partials(figures: Sequence[Figure]) -> str:
    same = sum(f.predicted == f.reference for f in figures)
    return (
        "Bytes of the fullest tile from the start of interleaved memory to the end of the largest partial sums, which "
        "published programs leave there: whether plans are the same. "
        f"In {same} of {len(figures)} they are, to the byte; other plans are most of the errors of memory."
    )
