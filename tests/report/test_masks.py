"""Cost of masks of attention, told apart from the attention itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abele.cli import main
from abele.compiler import compile_program
from abele.expr.derivative import arg
from abele.graph import Graph, Sequence
from abele.network import NetworkBuilder
from abele.network.ops import build
from abele.poplibs import popops
from abele.report import Report
from abele.session import Session, Settings

TOKENS, HEADS, WIDTH = 64, 2, 16


def attention(mask: str, layers: int = 1) -> Report:
    """Softmax of queries by keys, with a mask made from sequence numbers, a bias that is a weight, or none."""
    net = NetworkBuilder()
    shape = (1, HEADS, TOKENS, WIDTH)
    x, ids = net.input(shape, "f32", "x"), net.input((1, TOKENS), "f32", "ids")
    bias = net.parameter((1, 1, TOKENS, TOKENS), "f32", "bias")
    if mask == "made":
        places = [build.reshape(net, ids, s) for s in ((1, 1, TOKENS, 1), (1, 1, 1, TOKENS))]
        bias = build.map_(net, (arg(0) - arg(1)) * (arg(0) - arg(1)) * -1000.0, places)
    for _ in range(layers):
        scores = build.matmul(net, x, build.transpose(net, x))
        if mask != "none":
            scores = build.map_(net, arg(0) + arg(1), [scores, bias])
        x = build.matmul(net, build.softmax(net, scores, -1), x)
    net.output(x)
    return Session.of(net.finish(), settings=Settings(system="bow-2000:1")).report


def test_masks__made_from_ids__are_told_as_made_once_and_applied_in_each_layer() -> None:
    report = attention("made", layers=2)
    found = report.masks
    assert [row.role for row in found.rows].count("made") == 1
    assert [row.role for row in found.rows].count("applied") == 2
    assert found.cycles == found.cycles_of("made") + found.cycles_of("applied") == sum(r.cycles for r in found.rows)
    assert all(row.cycles >= row.compute + row.exchange > 0 for row in found.rows)
    assert found.overhead == pytest.approx(found.cycles / (found.run_cycles - found.cycles))
    streams = sum(r["cycles"] * r["executions"] for r in report.steps.rows() if r["kind"] == "stream")
    assert found.run_cycles == report.cycles().total - streams


@pytest.mark.parametrize("mask", ["none", "learnt"])
def test_masks__scores_without_a_mask_or_with_a_weight_as_bias__have_none(mask: str) -> None:
    found = attention(mask).masks
    assert found.rows == ()
    assert found.overhead == 0
    assert found.text() == "no attention has a mask"


def test_masks__program_without_attention__has_none() -> None:
    graph, prog = Graph("bow-2000:1"), Sequence()
    popops.exp_in_place(graph, graph.variable("f32", (64,), name="x").map_linear(), prog)
    assert compile_program(graph, prog).report.masks.rows == ()


def test_report_masks__on_the_command_line__are_text_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.abele-report"
    attention("made").save(file)
    told = []
    for further in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["abele", "report", "--masks", *further, str(file)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        told.append(capsys.readouterr().out)
    assert told[0].startswith("masks take ")
    assert "applied" in told[0]
    assert {row["role"] for row in json.loads(told[1])["rows"]} == {"made", "applied"}
