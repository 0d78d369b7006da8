"""``abele report --host``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele.network.ir import NetworkBuilder
from abele.network.ops import build
from abele.poplibs import poplin, popops
from abele.report.host_profile import COLUMNS
from abele.session import Session

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a product that was measured."""
    graph = ab.Graph("bow-2000:1")
    x = graph.variable(ab.f32, (64, 32), "x").map_linear()
    w = graph.variable(ab.f32, (32, 48), "w").map_linear()
    graph.expose(x, "x")
    step = ab.Sequence()
    popops.exp_in_place(graph, poplin.matmul(graph, x, w, prog=step, name="dense"), prog=step)
    path = tmp_path_factory.mktemp("reports") / "run.abele-report"
    with ab.Engine(graph, ab.Repeat(3, step), threads=1, options={"profiler.host": True}) as engine:
        engine["x"] = np.ones((64, 32), np.float32)
        engine.run()
        engine.report.save(path)
    return path


def test_report__host__prints_a_line_per_leaf(abele: Run, measured: Path) -> None:
    out = abele("report", str(measured), "--host").out.splitlines()
    assert out[0].startswith("1 run on 1 thread: ")
    assert "GFLOP/s (f32)" in out[1]
    assert out[2].split() == [*COLUMNS]
    assert any("dense" in line and "kernel" in line and "test_report_host.py" in line for line in out[3:])


def test_report__host_as_json__has_both_tables_and_the_facts(abele: Run, measured: Path) -> None:
    found = json.loads(abele("report", str(measured), "--host", "--json").out)
    assert set(found) == {"facts", "leaves", "functions", "idle_threads"}
    assert found["facts"]["threads"] == 1
    assert found["facts"]["rates"]["flops_per_second"] > 0
    assert [row["executions"] for row in found["leaves"] if "poplin.matmul" in row["calls"]] == [3]


def test_report__host_with_top__prints_so_many_leaves(abele: Run, measured: Path) -> None:
    assert len(abele("report", str(measured), "--host", "--top", "1").out.splitlines()) == 4


def test_report__host_against__says_what_a_library_does_on_the_product(abele: Run, measured: Path) -> None:
    lines = abele("report", str(measured), "--host", "--against").out.splitlines()
    assert "1 product beside " in lines[2]
    assert any("· 48x64x32 f32: " in line and " GFLOP/s by " in line for line in lines)
    found = json.loads(abele("report", str(measured), "--host", "--against", "--json").out)
    assert found["facts"]["against"]["48x64x32 f32"]["flops"] == 2 * 64 * 48 * 32


def test_report__against_without_host_or_elsewhere__is_refused(
    abele: Run, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--host --against" in abele("report", str(measured), "--against").err
    monkeypatch.setattr("abele.host_facts.libraries.host_name", lambda: "Sinclair ZX81")
    finished = abele("report", str(measured), "--host", "--against")
    assert finished.status == 2
    assert "this is Sinclair ZX81" in finished.err


def test_report__host_after_calls_of_a_session__says_where_they_spent_their_time(abele: Run, tmp_path: Path) -> None:
    net = NetworkBuilder()
    x = net.input((4,), "f32", "x")
    net.output(build.nonlinearity(net, "tanh", x))
    with Session.of(net.finish()) as session:
        for _ in range(2):
            session.run([np.ones(4, np.float32)])
        session.report.save(tmp_path / "calls.abele-report")
        seconds = session.report.host_seconds
    out = abele("report", str(tmp_path / "calls.abele-report"), "--host").out
    assert out.startswith("2 calls: waiting for data 0 ns · sending inputs ")
    found = json.loads(abele("report", str(tmp_path / "calls.abele-report"), "--host", "--json").out)
    assert found == {"seconds": seconds}


def test_report__host_of_a_report_without__says_how_to_measure(abele: Run, tmp_path: Path) -> None:
    graph = ab.Graph("bow-2000:1")
    x = graph.variable(ab.f32, 8, "x").map(0)
    engine = ab.Engine(graph, ab.Copy(x, graph.variable(ab.f32, 8, "y").map(1)))
    engine.report.save(tmp_path / "plain.abele-report")
    finished = abele("report", str(tmp_path / "plain.abele-report"), "--host")
    assert finished.status == 1
    assert "no profile of the host: no run was measured" in finished.err
    assert "profiler.host" in finished.err
