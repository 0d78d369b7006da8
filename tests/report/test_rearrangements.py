"""Rearrangements of programs, and their cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abele.cli import main
from abele.compiler import compile_program
from abele.graph import Copy, Graph, Sequence
from abele.poplibs import poplin, popops
from abele.report import Report


def copied() -> Report:
    """A program that copies 8 KB from one tile to another, and works on it where it lies."""
    graph, prog = Graph("bow-2000:1"), Sequence()
    there = graph.variable("f32", (2048,), name="there", map=1)
    here = graph.variable("f32", (2048,), name="here", map=0)
    prog.add(Copy(there, here, name="fetch"))
    popops.exp_in_place(graph, here, prog)
    return compile_program(graph, prog).report


def test_rearrangements__copy__is_listed_with_what_it_sends_and_takes() -> None:
    report = copied()
    (row,) = report.rearrangements.rows
    steps = [r for r in report.steps.rows() if r["name"].startswith("fetch")]
    assert (row.operation, row.kind, row.bytes) == ("fetch", "copy", 8192)
    assert row.cycles == row.copied == sum(r["cycles"] for r in steps)
    # 4 bytes per cycle.
    assert row.cycles > 8192 / 4
    assert report.rearrangements.run_cycles == report.cycles().total
    assert 0 < report.rearrangements.share < 1


def test_rearrangements__operand_in_another_order__is_listed_with_its_product() -> None:
    graph, prog = Graph("bow-2000:1"), Sequence()
    a = graph.variable("f16", (256, 128), name="a").map_linear()
    b = graph.variable("f16", (128, 192), name="b").map_linear()
    with graph.scope("layer"):
        poplin.matmul(graph, a.T.reshape((128, 256)).T, b, prog)
    (row,) = compile_program(graph, prog).report.rearrangements.rows
    assert (row.operation, row.kind) == ("layer/matmul", "poplin.matmul")
    assert row.written > 0
    assert row.cycles == row.copied + row.gathered + row.written
    assert row.copied == 0


def test_rearrangements__program_that_works_where_data_lies__has_none() -> None:
    graph, prog = Graph("bow-2000:1"), Sequence()
    popops.exp_in_place(graph, graph.variable("f32", (2048,), name="x").map_linear(), prog)
    found = compile_program(graph, prog).report.rearrangements
    assert found.rows == ()
    assert found.text() == "nothing is rearranged"


def test_rearrangements__more_than_are_asked_for__are_counted() -> None:
    graph, prog = Graph("bow-2000:1"), Sequence()
    tensors = [graph.variable("f32", (64 * n,), name=f"t{n}", map=n) for n in range(1, 4)]
    for n, tensor in enumerate(tensors, 1):
        prog.add(Copy(tensor, graph.variable("f32", tensor.shape, name="to", map=0), name=f"copy{n}"))
    lines = compile_program(graph, prog).report.rearrangements.text(2).splitlines()
    assert lines[0].startswith("rearranged in ")
    assert lines[2].split() == ["cycles", "copied", "gathered", "written", "bytes", "kind", "operation", "source"]
    assert [line.split()[6] for line in lines[3:5]] == ["copy3", "copy2"]
    assert lines[5].strip() == "and 1 more"


@pytest.mark.parametrize("as_json", [False, True])
def test_report__rearrangements__prints_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    copied().save(tmp_path / "a.abele-report")
    given = ["report", str(tmp_path / "a.abele-report"), "--rearrangements", *(["--json"] if as_json else [])]
    monkeypatch.setattr("sys.argv", ["abele", *given])
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    if as_json:
        assert json.loads(out)["rows"][0]["operation"] == "fetch"
    else:
        assert "fetch" in out
        assert "8,192" in out
