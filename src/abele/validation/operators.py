"""Operator benchmarks of a CSV file on GC2 and GC200, several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from rich.console import Console
from rich.progress import track

from abele.errors import AbeleError
from abele.validation.figures import Comparison, Figure
from abele.validation.measure import Result, measure
from abele.validation.rows import CHIPS, Row

_SOURCE = "Graphcore's IPUModel, published operator benchmarks"


@dataclass(frozen=True)
class Operators:
    """What became of operator benchmarks.

    Attributes:
        results: Figures of those that could be built.
        failures: For each of the others its name, chip and error.
    """

    results: tuple[Result, ...]
    failures: tuple[str, ...]


def compare_rows(
    rows: Sequence[Row],
    chips: Sequence[str] = tuple(CHIPS.values()),
    *,
    jobs: int | None = None,
    console: Console | None = None,
) -> Operators:
    """Figures of every row on every chip that it has published figures of.

    Args:
        rows: The benchmarks.
        chips: Names of the systems.
        jobs: Processes; one a core by default.
        console: Where progress is shown, or None.
    """
    results, failures = [], []
    with ProcessPoolExecutor(jobs or os.cpu_count() or 1, mp_context=get_context("spawn")) as pool:
        pending = [
            (row, chip, pool.submit(measure, row, chip)) for row in rows for chip in chips if chip in row.references
        ]
        for row, chip, future in _watched(pending, console):
            try:
                results.append(future.result())
            except AbeleError as error:
                failures.append(f"{row.name} on {chip}: {type(error).__name__}: {error}")
    return Operators(tuple(results), tuple(failures))


def _watched(
    pending: list[tuple[Row, str, Future[Result]]], console: Console | None
) -> Iterator[tuple[Row, str, Future[Result]]]:
    yield from pending if console is None else track(pending, "operators", console=console)


def comparisons(found: Operators) -> tuple[Comparison, Comparison]:
    """Cycles, and memory, of operators as comparisons; kinds are kinds of operators."""
    cycles, held = [], []
    for r in found.results:
        name = f"{r.name}, {r.chip}"
        cycles.append(Figure(name, r.tool, r.predicted_cycles, r.reference_cycles, "cycles", _SOURCE))
        held.append(Figure(name, r.tool, r.predicted_bytes, r.reference_bytes, "B", _SOURCE))
    about = (
        "One model beside another: Graphcore's own cycle model of complete PopLibs operators, on both generations. "
        "Each row is built through the library as its command line says, and all its programs are counted."
    )
    about_memory = (
        "Bytes over all tiles of the same programs. The published totals hold no vertex code and no stacks, as "
        "that model compiles no codelets; these categories, and gaps, are left out of ours."
    )
    return (
        Comparison("operators", "operators: cycles", about, tuple(cycles)),
        Comparison("memory", "operators: memory", about_memory, tuple(held)),
    )
