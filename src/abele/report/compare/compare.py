"""From reports to their comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from abele.errors import InvalidOptionError
from abele.report.compare.changes import (
    figures_of,
    first_change,
    memory_change,
    op_changes,
    overlap_change,
    step_cycles,
)
from abele.report.compare.model import ComparedReport, CostChange, ReportComparison
from abele.report.compare.tables import (
    Side,
    match,
    matched_memory,
    matched_ops,
    matched_steps,
    matched_variables,
)
from abele.report.programs import check_program, program_name
from abele.report.report import Report
from abele.words import counted, visible

MOST = 8
"""Reports that are compared at most."""
ROWS = 1000
"""Default number of rows of a table."""
CHANGES = 5
"""Operations that are listed for each report after the first."""
_ALIKE = 0.5
"""Part of the operations of the smaller report that must have a match for the two to be of one program."""


def compare(
    reports: Sequence[Report],
    *,
    program: int = 0,
    labels: Sequence[str] | None = None,
    rows: int = ROWS,
    changes: int = CHANGES,
) -> ReportComparison:
    """Reports beside each other, all against the first.

    Args:
        reports: Two to eight, in any order of making.
        program: Index of the program that is compared; 0 is the one that is run.
        labels: A short name for each; by default the names of the programs.
        rows: Rows of each table, those that changed most.
        changes: Operations that are told in words for each report after the first.

    Returns:
        Figures, tables, what changed first, and regressions and gains. Cycles are those of one step.

    Raises:
        InvalidOptionError: Too few or too many reports, no such program in one of them, or labels of another number.
    """
    _check(reports, program, labels)
    sides = [Side(report, program) for report in reports]
    ops, memory, variables = matched_ops(sides), matched_memory(sides), matched_variables(sides)
    tables = {"ops": ops, "steps": matched_steps(sides), "variables": variables, "memory": memory}
    told: list[CostChange] = []
    for n in range(1, len(sides)):
        told += op_changes(ops, sides, n, changes)
        told += [c for c in (overlap_change(sides, n), memory_change(sides, memory, variables, n)) if c is not None]
    return ReportComparison(
        reports=tuple(_described(side, label) for side, label in zip(sides, _labels(reports, labels), strict=True)),
        figures=figures_of(sides),
        tables={name: table.table(rows) for name, table in tables.items()},
        first_change=(None, *(first_change(sides, n) for n in range(1, len(sides)))),
        insights=tuple(sorted(told, key=lambda change: _order(change, sides))),
        notes=tuple(_notes(sides)),
    )


def _check(reports: Sequence[Report], program: int, labels: Sequence[str] | None) -> None:
    if not 2 <= len(reports) <= MOST:
        raise InvalidOptionError(
            f"{counted(len(reports), 'report')} to compare",
            remedy=f"two to {MOST}; the first is what others are against",
        )
    if labels is not None and len(labels) != len(reports):
        raise InvalidOptionError(f"{counted(len(labels), 'label')} for {counted(len(reports), 'report')}")
    for n, report in enumerate(reports):
        check_program(report, program, f"report {n}")


def _labels(reports: Sequence[Report], labels: Sequence[str] | None) -> list[str]:
    """Short names that differ."""
    given = list(labels) if labels is not None else [str(report.meta.get("name") or "") for report in reports]
    named = [visible(label) or f"report {n}" for n, label in enumerate(given)]
    return [label if named.count(label) == 1 else f"{label} #{n}" for n, label in enumerate(named)]


def _described(side: Side, label: str) -> ComparedReport:
    meta = side.report.meta
    return ComparedReport(
        name=visible(str(meta.get("name", ""))),
        label=label,
        system=visible(str(side.report.target.get("name", ""))),
        created=visible(str(meta.get("created", ""))),
        program=program_name(side.report, side.program) or str(side.program),
    )


def _order(change: CostChange, sides: Sequence[Side]) -> tuple[bool, float]:
    """Regressions first, the worst first, as part of the former cost."""
    whole = step_cycles(sides[0]) if change.unit == "cycles" else sides[0].report.memory.available_bytes
    return change.kind != "regression", -abs(change.difference) / max(whole, 1)


def _notes(sides: Sequence[Side]) -> Iterator[str]:
    first = sides[0]
    for n, side in enumerate(sides[1:], 1):
        ours, theirs = first.report.target, side.report.target
        if ours.get("name") != theirs.get("name") or ours.get("num_ipus") != theirs.get("num_ipus"):
            clocks = {float(each.get("clock_hz", 0)) for each in (ours, theirs)}
            advice = "; clocks differ, so compare seconds" if len(clocks) > 1 else ""
            yield f"report {n} is of another system: {_system(side)} instead of {_system(first)}{advice}"
        if first.steps_per_run != side.steps_per_run:
            yield (
                f"a run of report {n} is {counted(side.steps_per_run, 'step')} instead of {first.steps_per_run:,}: "
                "cycles are those of one step"
            )
        least = min(len(first.op_words), len(side.op_words))
        both = int((match([first.op_words, side.op_words]) >= 0).all(axis=1).sum())
        if least and both < _ALIKE * least:
            yield f"report {n} seems to be of another program: {counted(both, 'operation')} of {least:,} match"
        versions = [str(each.report.meta.get("abele_version", "")) for each in (first, side)]
        if versions[0] != versions[1]:
            yield f"report {n} is of version {visible(versions[1])} of Abele instead of {visible(versions[0])}"
    for n, side in enumerate(sides):
        assumed = np.asarray(side.steps.column("basis") == "assumed", dtype=bool)
        if assumed.any():
            yield f"report {n} assumes what data decides: no run has counted it"


def _system(side: Side) -> str:
    target = side.report.target
    return f"{visible(str(target.get('name', '')))} with {counted(int(target.get('num_ipus', 1)), 'IPU')}"
