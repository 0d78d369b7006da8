"""``abele report --insights`` and ``--compare``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abele.compiler import compile_program
from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.numerics import f32
from abele.poplibs import popops
from abele.report import Report
from abele.report.compare import compare

Run = Callable[..., Any]


def saved(path: Path, *, count: int, tiles: int) -> Path:
    """The file of a program that adds so many times on so many tiles."""
    system = systems.get("bow-2000").evolve(ipu={"num_tiles": 32}, num_ipus=1, name="small", title="small")
    graph, program = Graph(system), Sequence()
    x = graph.variable(f32, (32, 6000), "x").map_rows([n % tiles for n in range(32)])
    for n in range(count):
        popops.add_in_place(graph, x, x, program, name=("first", "second")[n])
    compile_program(graph, program).report.save(path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    sizes = {"before": (1, 32), "after": (2, 4), "later": (1, 16)}
    return [str(saved(tmp_path / f"{name}.abele-report", count=c, tiles=t)) for name, (c, t) in sizes.items()]


def test_insights__file__say_what_limits_it(abele: Run, files: list[str]) -> None:
    found = abele("report", files[1], "--insights")
    assert found.status == 0
    assert "limited by" in found.out
    assert "it computes on 4 of 32 tiles" in " ".join(found.out.split())
    assert "map it over all 32 tiles instead of 4" in " ".join(found.out.split())


def test_insights__json__is_the_documented_object(abele: Run, files: list[str]) -> None:
    data = json.loads(abele("report", files[1], "--insights", "--json").out)
    assert data == json.loads(json.dumps(Report.load(files[1]).insights().to_json()))
    assert data["format"] == "abele-insights"


def test_insights__program_that_there_is_not__exits_with_2(abele: Run, files: list[str]) -> None:
    found = abele("report", files[0], "--insights", "--program", "3")
    assert found.status == 2
    assert "no program 3" in found.err


def test_compare__two_files__names_the_regression(abele: Run, files: list[str]) -> None:
    found = abele("report", *files[:2], "--compare")
    text = " ".join(found.out.split())
    assert found.status == 0
    assert "before after difference" in text
    assert "it computes on 4 tiles instead of 32" in text
    assert "it is new" in text


def test_compare__json__is_the_documented_object(abele: Run, files: list[str]) -> None:
    data = json.loads(abele("report", *files, "--compare", "--json").out)
    labels = ["before", "after", "later"]
    assert data == json.loads(json.dumps(compare([Report.load(f) for f in files], labels=labels).to_json()))
    assert [report["label"] for report in data["reports"]] == labels


def test_compare__one_file__exits_with_2(abele: Run, files: list[str]) -> None:
    found = abele("report", files[0], "--compare")
    assert found.status == 2
    assert "two to 8" in found.err


def test_compare__damaged_file__exits_with_2_and_names_it(abele: Run, files: list[str]) -> None:
    path = Path(files[1])
    path.write_bytes(path.read_bytes()[:-40])
    found = abele("report", *files, "--compare")
    assert found.status == 2
    assert "after.abele-report" in found.err


def test_report__several_files_without_compare__says_how(abele: Run, files: list[str]) -> None:
    found = abele("report", *files)
    assert found.status == 2
    assert "--compare" in found.err
