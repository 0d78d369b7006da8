"""``abele export``."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele import trace
from abele.report import Report
from abele.report.schema import TABLES

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report."""
    graph = ab.Graph("bow-2000:1")
    x = graph.variable(ab.f32, (64, 32), 'x, "quoted"\nin two lines').map_linear()
    y = graph.variable(ab.f32, (64, 32), "y").map_linear(first_tile=7)
    path = tmp_path_factory.mktemp("reports") / "run.abele-report"
    ab.compile_program(graph, ab.Repeat(2, ab.Copy(x, y))).report.save(path)
    return path


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace."""
    channel = trace.Channel("tests")
    with trace.recording(tmp_path_factory.mktemp("traces") / "run.abele-trace") as path:
        with channel.tracepoint("outer", {"k": 1}), channel.tracepoint("in,ner"):
            channel.instant("mark")
        series = channel.graph("g", "s").series("v")
        series.add(1.5)
        series.add(math.nan)
        channel.heatmap("h", [0, 1, 2]).add([0.5, 1.5, 1.5])
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_export__of_a_report_as_csv__has_a_file_per_table(abele: Run, saved: Path, tmp_path: Path) -> None:
    abele("export", str(saved), "--format", "csv", "-o", str(tmp_path / "out"))
    report = Report.load(saved)
    assert sorted(p.stem for p in (tmp_path / "out").iterdir()) == sorted(TABLES)
    for name in TABLES:
        table = getattr(report, name)
        found = rows(tmp_path / "out" / f"{name}.csv")
        assert len(found) == len(table)
        for column in table.names:
            assert [row[column] for row in found] == [str(value) for value in table[column].tolist()], (name, column)
    assert report.variables["name"][0] == 'x, "quoted"\nin two lines'


def test_export__of_one_table__is_one_file(abele: Run, saved: Path, tmp_path: Path) -> None:
    abele("export", str(saved), "-f", "csv", "--table", "variables", "-o", str(tmp_path / "v.csv"))
    assert [row["bytes"] for row in rows(tmp_path / "v.csv")] == ["8192", "8192"]
    found = abele("export", str(saved), "-f", "csv", "--table", "variable", "-o", str(tmp_path / "w.csv"))
    assert "did you mean 'variables'" in found.err


def test_export__of_a_report_as_json__is_that_of_the_report(abele: Run, saved: Path, tmp_path: Path) -> None:
    abele("export", str(saved), "-f", "json", "-o", str(tmp_path / "r.json"))
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads(json.dumps(Report.load(saved).to_json()))


def test_export__as_perfetto__is_what_the_package_reads(abele: Run, saved: Path, traced: Path, tmp_path: Path) -> None:
    pytest.importorskip("perfetto", reason="needs the perfetto package")
    from support.perfetto_trace import Parsed

    abele("export", str(saved), "-f", "perfetto", "--cycles", "-o", str(tmp_path / "r.pftrace"))
    report = Report.load(saved)
    assert len(Parsed((tmp_path / "r.pftrace").read_bytes()).slices) == int((report.spans["cycles"] > 0).sum()) > 0
    abele("export", str(traced), "-f", "perfetto", "-o", str(tmp_path / "t.pftrace"))
    assert {name for name, *_ in Parsed((tmp_path / "t.pftrace").read_bytes()).slices} == {"outer", "in,ner"}


def test_export__of_a_trace__as_csv_and_json__has_texts_and_numbers(abele: Run, traced: Path, tmp_path: Path) -> None:
    abele("export", str(traced), "-f", "csv", "-o", str(tmp_path))
    loaded = trace.Trace.load(traced)
    events = rows(tmp_path / "events.csv")
    assert [(e["label"], e["channel"], e["depth"], e["detail"]) for e in events] == [
        ("outer", "tests", "0", '{"k":1}'),
        ("in,ner", "tests", "1", ""),
    ]
    assert [int(e["begin_ns"]) for e in events] == loaded.events.begin_ns.tolist()
    assert [row["value"] for row in rows(tmp_path / "series.csv")] == ["1.5", "nan"]
    assert [(row["from"], row["to"], row["count"]) for row in rows(tmp_path / "heatmaps.csv")] == [
        ("0.0", "1.0", "1"),
        ("1.0", "2.0", "2"),
    ]
    assert [row["label"] for row in rows(tmp_path / "instants.csv")] == ["mark"]
    abele("export", str(traced), "-f", "json", "-o", str(tmp_path / "t.json"))
    document = json.loads((tmp_path / "t.json").read_text(), parse_constant=pytest.fail)
    assert document["series"]["value"] == [1.5, None]
    assert document["events"]["label"] == ["outer", "in,ner"]
    assert document["processes"]["id"] == loaded.processes.id.tolist()


def test_export__of_a_chrome_trace__works_as_of_ours(abele: Run, tmp_path: Path) -> None:
    path = tmp_path / "chrome.json"
    path.write_text(json.dumps([{"ph": "X", "ts": 1, "dur": 2, "name": "a", "pid": 1, "tid": 1}]))
    abele("export", str(path), "-f", "csv", "--table", "events", "-o", str(tmp_path / "e.csv"))
    assert [row["duration_ns"] for row in rows(tmp_path / "e.csv")] == ["2000"]
    abele("export", str(path), "-f", "csv", "-o", str(tmp_path / "all"))
    assert rows(tmp_path / "all" / "heatmaps.csv") == []


def test_export__of_a_trace_that_is_cut_short__says_so(abele: Run, traced: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.abele-trace"
    path.write_bytes(traced.read_bytes()[:-10])
    found = abele("export", str(path), "-f", "perfetto", "-o", str(tmp_path / "t.pftrace"))
    assert found.status == 0
    assert "cut.abele-trace: the recording has no end" in found.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "perfeto"], "did you mean 'perfetto'"),
        (["-f", "xml"], "one of perfetto, csv, json"),
        (["-f", "json", "--table", "events"], "--table chooses"),
        (["-f", "perfetto", "--cycles"], "--cycles needs a report"),
    ],
)
def test_export__with_a_wrong_argument__is_told(
    abele: Run, traced: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    found = abele("export", str(traced), *arguments, "-o", str(tmp_path / "x"))
    assert message in found.err
    assert found.status == 2
    assert not (tmp_path / "x").exists()


def test_export__of_what_is_no_file_or_to_where_nothing_goes__is_told(abele: Run, saved: Path, tmp_path: Path) -> None:
    assert "missing" in abele("export", str(tmp_path / "missing"), "-f", "json", "-o", "x").err
    blocked = tmp_path / "file"
    blocked.write_text("x")
    for form in ("csv", "json", "perfetto"):
        found = abele("export", str(saved), "-f", form, "-o", str(blocked / "deeper"))
        assert "cannot be written" in found.err
    assert np.array_equal(Report.load(saved).variables["bytes"], [8192, 8192])
