"""Text forms of objects: one line, and a card for notebooks."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele.report import RUNS, Table

EVIL = "<script>alert(1)</script>&\x1b[2J\u202e'\"$x$"


class Pairs(HTMLParser):
    """Reads a card: its words, and whether every element that is opened is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert {name for name, _ in attrs} <= {"style"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(thing: Any) -> str:
    """The words of a card, which is well-formed, runs nothing and loads nothing."""
    html = thing._repr_html_()
    parser = Pairs()
    parser.feed(html)
    assert not parser.open
    assert parser.seen <= {"div", "table", "thead", "tbody", "tr", "th", "td", "span"}
    assert "url(" not in html
    assert "\x1b" not in html
    return " ".join(parser.words)


@pytest.fixture(scope="module")
def engine() -> ab.Engine:
    graph = ab.Graph("bow-2000")
    x = graph.variable(ab.f32, (6, 1000), name=EVIL).map_rows(range(6))
    y = graph.variable(ab.f32, (6, 1000), name="y").map(0)
    return ab.Engine(graph, {"copy": ab.Copy(x, y), EVIL: ab.Copy(y, x)}, threads=1)


def test_everything__one_line__says_what_matters(engine: ab.Engine) -> None:
    graph, executable = engine.graph, engine.executable
    assert repr(graph) == "Graph(bow-2000: 5,888 tiles; 2 variables of 48,000 B, 0 compute sets, 0 vertices)"
    assert repr(graph.system) == "System('bow-2000': 4 Bow IPUs, 5,888 tiles at 1.85 GHz, 3,762 MB)"
    assert repr(graph.system.ipu) == "Ipu('Bow': 1,472 tiles at 1.85 GHz)"
    assert repr(executable).startswith("Executable(bow-2000: 2 programs 'copy', '<script>")
    assert ", fits: tile 0 holds " in repr(executable)
    assert repr(engine).endswith("; mode native, 1 thread, loaded)")
    assert repr(executable.report).startswith("Report(bow-2000: ")
    assert repr(executable.report).endswith(", not run)")
    assert repr(executable.report.with_run(name="a", mode="native")).endswith(", 1 run)")
    assert repr(RUNS.table(threads=[1])).startswith("Table(1 row: name, ")


def test_everything__one_line__is_one_line_of_printable_characters(engine: ab.Engine) -> None:
    report = engine.report.with_meta(name=EVIL * 100)
    tensors = (engine.graph.variable(ab.f32, (3,), name=f"{EVIL}\n" * 50).map(0),)
    for thing in (engine, engine.executable, report, engine.graph, engine.graph.system, report.ops, *tensors):
        assert repr(thing).isprintable()
        assert len(repr(thing)) < 600


def test_everything__card__is_escaped_and_complete(engine: ab.Engine) -> None:
    report = engine.report.with_meta(name=EVIL)
    x = engine.graph.variable(ab.f16, (4, 4), name=EVIL).map(7)
    for thing in (engine, engine.executable, report, report.steps, report.ops, engine.graph, engine.graph.system, x):
        assert read(thing)
    assert "<script>alert(1)</script>" in read(engine.graph)
    assert "tile 7" in read(x)
    assert "variable" in read(x)
    assert "copy" in read(engine.executable)
    assert "exchange" in read(report)


def test_tensor__views__say_the_tiles_that_they_lie_on() -> None:
    graph = ab.Graph("bow")
    x = graph.variable(ab.f32, (6, 1000), name="x").map_rows(range(6))
    assert repr(x[2]) == "Tensor(f32[1000] of 'x', tile 2)"
    assert repr(x[::2, 5]) == "Tensor(f32[3] of 'x', tiles 0, 2, 4)"
    assert repr(graph.variable(ab.f32, (3,))) == "Tensor(f32[3] of 'variable', unmapped)"
    assert repr(x[:, :0]) == "Tensor(f32[6, 0] of nothing)"


def test_empty_graph_and_table__card__are_shown() -> None:
    assert "0 variables" in read(ab.Graph("bow"))
    assert "0 rows" in read(RUNS.empty())
    assert "0 rows" in read(Table({}))


def test_report__program_that_does_not_fit__says_so() -> None:
    graph = ab.Graph("bow")
    x = graph.variable(ab.f32, (2000, 1000), name="x").map(3)
    y = graph.variable(ab.f32, (2000, 1000), name="y").map_linear()
    report = ab.compile_program(graph, ab.Copy(x, y), allow_out_of_memory=True).report
    assert ", does not fit on 1 tile: tile 3 holds " in repr(report)
    assert "DOES NOT FIT on 1 tile;" in read(report)


def test_large_graph_and_tensor__line_and_card__take_no_time() -> None:
    graph = ab.Graph("pod16")
    x = graph.variable(ab.f32, (20_000, 40_000), name="x").map_linear()
    for i in range(3000):
        graph.variable(ab.f32, (16,), name=f"v{i}").map(i)
    start = time.perf_counter()
    lines = [repr(x), repr(x.T), repr(x[:, ::2]), repr(graph), x._repr_html_(), graph._repr_html_()]
    assert time.perf_counter() - start < 2
    assert all(len(line) < 20_000 for line in lines)
    assert "and 2,989 more" in lines[-1]


def test_report__loaded_from_file__shows_the_same(engine: ab.Engine, tmp_path: Path) -> None:
    report = engine.report
    report.save(tmp_path / "r")
    loaded = ab.Report.load(tmp_path / "r")
    assert repr(loaded) == repr(report)
    assert read(loaded) == read(report)
    assert np.array_equal(loaded.memory.bytes, report.memory.bytes)


def test_everything__one_line__can_be_printed_where_only_ascii_is_known(engine: ab.Engine) -> None:
    graph = ab.Graph("bow-2000")
    x = graph.variable(ab.f32, (6, 1000), name="x").map_rows(range(6))
    plain = ab.Engine(graph, ab.Copy(x, graph.variable(ab.f32, (6, 1000), name="y").map(0)))
    for thing in (graph, graph.system, x, plain, plain.executable, plain.report, plain.report.ops):
        assert repr(thing).isascii()
