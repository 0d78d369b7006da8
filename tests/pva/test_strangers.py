"""Reports from strangers: whatever the reader of files lets through is answered, or refused with an error of ours."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abele import pva
from abele.errors import AbeleError, FileFormatError
from abele.report import Report, Table, Text
from abele.report.schema import TABLES
from support.examples import examples

ODD_NUMBERS = (-1, 0, 1, 2, 7, 1471, 1472, 2**31 - 1, 2**61)
ODD_WORDS = ("", "IPU 0", "IPU 1", "sync", "Call", "Function", "Block", "a/b", "replicas", "\x1b[2J", "\ud800")


def ask_all(report: Report) -> None:
    """Ask all that there is; errors of ours are answers."""
    found = pva.openReport(report)
    compilation, execution = found.compilation, found.execution
    for tile in compilation.tiles[:3]:
        tile.memory.category.vertexCode, tile.memory.total.excludingGaps, tile.memory.alwaysLiveBytes  # noqa: B018
    for variable in compilation.variables:
        variable.name, variable.size, variable.shape, variable.role, variable.location, variable.bytesByTile  # noqa: B018
    for live in compilation.livenessProgramSteps:
        live.program.name, live.notAlwaysLiveMemory.bytes, live.bytesByTile  # noqa: B018
        live.notAlwaysLiveMemory.variables.bytes.sum()
    visitor = pva.ProgramVisitor()
    for program in compilation.programs:
        program.accept(visitor)
        program.name, program.executions, program.count, program.location, program.kind, program.operation  # noqa: B018
        assert all(child._id != program._id for child in program.children())
        assert len(list(program.walk())) <= len(compilation.programs)
        for name in ("vars", "computeset", "function"):
            with contextlib.suppress(AbeleError):
                getattr(program, name)
        if program.type == pva.ProgramType.OnTileExecute:
            with contextlib.suppress(AbeleError):
                [vertex.name for vertex in program.computeset.vertices]
    for run in (*execution.runs, *execution.modelled):
        with contextlib.suppress(AbeleError):
            for step in run.steps:
                step.program.name, step.cycles, step.cyclesByTile, list(step.groups)
                with contextlib.suppress(AbeleError):
                    assert len(step.ipus) == compilation.target.numIPUs
        for tile in (0, 1471):
            with contextlib.suppress(AbeleError):
                [block.program.name for block in run.blocks(tile)]
    for operation in pva.OperationAnalysis(found).operations:
        operation.debugContext.json, operation.cycles, len(operation.programs)


@st.composite
def damage(draw: st.DrawFn) -> tuple[str, str, float, object]:
    """A table, one of its columns, where in it, and what is to stand there."""
    table = draw(st.sampled_from(sorted(TABLES)))
    column = draw(st.sampled_from(sorted(TABLES[table].columns)))
    value = draw(st.sampled_from(ODD_WORDS if TABLES[table].columns[column].is_text else ODD_NUMBERS))
    return table, column, draw(st.floats(0, 0.999)), value


def damaged(report: Report, table: str, column: str, where: float, value: object) -> Report:
    held: Table = getattr(report, table)
    row = int(where * len(held))
    if not len(held):
        return report
    old = held.columns[column]
    if isinstance(old, Text):
        codes = old.codes.copy()
        codes[row] = len(old.words)
        return replace(report, **{table: Table({**held.columns, column: Text(codes, (*old.words, str(value)))})})
    values = old.copy()
    values[row] = value if values.dtype.kind == "f" or -(2**31) <= int(str(value)) < 2**31 else values.max()
    return replace(report, **{table: Table({**held.columns, column: values})})


@settings(examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(damage(), min_size=1, max_size=4))
def test_report__changed_at_random__is_answered_or_refused(
    dense: pva.Report, tmp_path: Path, changes: list[tuple[str, str, float, object]]
) -> None:
    report = dense.columns
    for change in changes:
        report = damaged(report, *change)
    report.save(tmp_path / "r", full_paths=True)
    try:
        loaded = Report.load(tmp_path / "r")
    except FileFormatError:
        return
    ask_all(loaded)


def test_report__as_it_was_written__is_answered(dense: pva.Report, overlapped: pva.Report) -> None:
    for report in (dense, overlapped):
        ask_all(report.columns)


@pytest.mark.slow
def test_report__changed_at_random__answers_queries(dense: pva.Report, tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="needs DuckDB")
    columns = dense.columns
    for table in TABLES:
        for column, spec in TABLES[table].columns.items():
            report = damaged(columns, table, column, 0.5, ODD_WORDS[-1] if spec.is_text else 2**31 - 1)
            found = report.sql(f"from {table}")
            assert len(found) == len(getattr(columns, table))
