"""``abele report --memory``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import abele as ab
from abele.poplibs import popops
from abele.report import Report
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
