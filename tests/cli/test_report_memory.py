"""``abele report --memory``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import abele as ab
from abele.poplibs import popops
from abele.report import Report
from abele.report.fit_changes import FitChanges, TriedChange
from compiler.support import small_system

Run = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path) -> str:
    graph, program = ab.Graph(small_system(8)), ab.Sequence()
    x = graph.variable("f32", (8, 64), name="x").map_rows(range(8))
    y = popops.exp(graph, x.T.reshape((8, 64)), program, name="turn")
    popops.add_in_place(graph, x, y, program, name="collect")
    ab.compile_program(graph, program).report.save(tmp_path / "r")
    return str(tmp_path / "r")


def test_memory__file__prints_the_fullest_tile(abele: Run, file: str) -> None:
    found = abele("report", file, "--memory")
    assert found.status == 0
    assert found.out.strip() == Report.load(file).memory_use().text(25).strip()
    assert "exchange code" in found.out


def test_memory__json_of_a_tile__is_the_object(abele: Run, file: str) -> None:
    data = json.loads(abele("report", file, "--memory", "--tile", "2", "--json").out)
    assert data == json.loads(json.dumps(Report.load(file).memory_use(2).to_json()))


def test_memory__tile_alone_or_not_there__exits_with_2(abele: Run, file: str) -> None:
    assert abele("report", file, "--tile", "2").status == 2
    assert "no tile 8" in abele("report", file, "--memory", "--tile", "8").err


def test_fit__report_that_fits__says_so_and_one_that_does_not_names_who_can_try(
    abele: Run, file: str, tmp_path: Path
) -> None:
    assert abele("report", file, "--fit").out.strip().endswith("it fits")
    told = FitChanges(1_500, 1_000, fits=False, tried=(TriedChange(("recompute", "partials"), 900, fits=True),))
    report = Report.load(file).with_meta(**replace(told, found=told.tried).to_meta())
    report.save(tmp_path / "told")
    found = abele("report", str(tmp_path / "told"), "--fit")
    assert "it fits with 1 change" in found.out
    assert "recompute + partials" in found.out
    data = json.loads(abele("report", str(tmp_path / "told"), "--fit", "--json").out)
    assert data["found"] == [{"changes": ["recompute", "partials"], "bytes": 900, "fits": True}]
