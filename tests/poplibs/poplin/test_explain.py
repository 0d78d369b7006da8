"""Explained plans, reports of them, plans made ahead, and counts of operations."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Sequence
from abele.numerics import f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin.conv_params.params import ConvParams

CONV = ConvParams(2, 16, 32, (14, 14), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1))


def macs(params: ConvParams) -> int:
    """Products of a convolution by going through every output and kernel position."""
    pairs = 1
    for d in range(len(params.field)):
        at = np.arange(params.output_field[d])[:, None] * params.stride[d] - params.padding_lower[d]
        reached = at + np.arange(params.kernel[d])[None, :] * params.dilation[d]
        pairs *= int(((reached >= 0) & (reached < params.field[d])).sum())
    return params.batch * params.out_channels * params.in_channels // params.groups * pairs


def test_explain_matmul__call_made_with_created_operands__has_the_plan() -> None:
    graph, main = Graph("bow"), Sequence()
    shapes = (512, 256), (256, 128)
    explained = poplin.explain_matmul(graph, *shapes, f16)
    a, b = (make(graph, f16, *shapes) for make in (poplin.create_matmul_input_lhs, poplin.create_matmul_input_rhs))
    poplin.matmul(graph, a, b, main)
    assert main.steps[-1].attributes["plan"].plans[0] == explained.plan


def test_explain_convolution__call_made_with_created_operands__has_the_plan() -> None:
    graph, main = Graph("bow"), Sequence()
    explained = poplin.explain_convolution(graph, CONV, f16)
    x, w = poplin.create_input(graph, CONV, f16), poplin.create_weights(graph, CONV, f16)
    poplin.convolution(graph, x, w, CONV, main)
    assert main.steps[-1].attributes["plan"].plans[0] == explained.plan


def test_explain__graph__stays_as_it_is() -> None:
    graph = Graph("bow")
    poplin.explain_matmul(graph, (64, 64), (64, 64), f16)
    poplin.explain_convolution(graph, CONV, f16)
    poplin.preplan_matmuls(graph, [((64, 64), (64, 64), f16, None)])
    poplin.preplan_convolutions(graph, [(CONV, f16, {"availableMemoryProportion": 0.4})])
    assert not list(graph.variables)


@pytest.mark.parametrize("proportion", [0.02, 0.6])
def test_constraints__given_back__give_the_same_plan(proportion: float) -> None:
    graph, shapes = Graph("bow"), ((2048, 1024), (1024, 2048))
    options = {"availableMemoryProportion": proportion}
    free = poplin.explain_matmul(graph, *shapes, f16, options=options)
    pinned = poplin.explain_matmul(graph, *shapes, f16, options=options | {"planConstraints": free.constraints})
    assert pinned.plan == free.plan
    assert len(pinned.schedule.plans) == len(free.schedule.plans)


def test_constraints__parts_of_the_users_choice__are_kept_to() -> None:
    given = json.dumps({"method": {"type": "HMAC"}, "0": {"partition": {"batchSplit": 8, "inChanSplit": 2}}})
    explained = poplin.explain_matmul(Graph("bow"), (64, 64), (64, 64), f16, options={"planConstraints": given})
    assert explained.plan.method.kind == "hmac"
    assert (explained.plan.split["b"], explained.plan.split["ci"]) == (8, 2)
    assert explained.runner_up is not None
    assert explained.runner_up.cycles < explained.plan.cycles


def test_constraints__one_way_alone_allows_them__that_way_is_taken() -> None:
    kernel = ConvParams(1, 3, 64, (32, 32), (7, 7), stride=(2, 2))
    given = json.dumps({"0": {"partition": {"inChanSplit": 8}}})
    explained = poplin.explain_convolution(Graph("bow"), kernel, f16, options={"planConstraints": given})
    assert explained.plan.split["ci"] == 8
    assert any("expanded into the channels" in step for step in explained.before)


def test_constraints__no_way_allows_them__is_refused() -> None:
    given = json.dumps({"0": {"partition": {"outChanSplit": 900}}})
    with pytest.raises(InvalidOptionError, match="900 parts of co, between 1 and"):
        poplin.explain_convolution(Graph("bow"), CONV, f16, options={"planConstraints": given})


def test_reports__stream_given__is_written_to_it() -> None:
    out = io.StringIO()
    text = poplin.matmul_report_plan(Graph("bow"), f16, f32, (64, 64), (64, 64), out=out)
    assert out.getvalue() == text + "\n"
    assert "f16 with f32 partials to f32" in text
    assert "temporary on the fullest tile" in poplin.reportPlanInfo(Graph("bow"), CONV, f16)


def test_estimated_costs__terms__add_up_to_the_call() -> None:
    graph = Graph("bow")
    terms = poplin.report_plan_estimated_costs(graph, CONV, f16)
    assert sum(terms.values()) == poplin.explain_convolution(graph, CONV, f16).cycles
    assert terms["partial products"] > 0


def test_matmul_report__shapes_that_do_not_fit__are_refused() -> None:
    with pytest.raises(TensorError, match="are not those of matrices to be multiplied"):
        poplin.matMulReportPlan(Graph("bow"), f16, f16, (4, 5), (6, 7))


@pytest.mark.parametrize(
    "params",
    [
        CONV,
        ConvParams(1, 8, 8, (9,), (3,), stride=(2,), groups=4),
        ConvParams(1, 4, 4, (6, 5), (2, 3), dilation=(2, 1)),
    ],
)
def test_flops__all_passes__are_twice_the_products(params: ConvParams) -> None:
    for count in (poplin.getFwdFlops, poplin.get_bwd_flops, poplin.get_wu_flops):
        assert count(params) == 2 * macs(params)


def test_perfect_cycles__half__is_at_the_rate_of_the_units() -> None:
    # 64 multiply-accumulates a cycle and tile with partials in half on a Bow; 16 in f32.
    params = ConvParams(16, 256, 256, (56, 56), (1, 1))
    ideal = macs(params) / 1472
    for count in (poplin.getFwdPerfectCycleCount, poplin.getBwdPerfectCycleCount, poplin.getWuPerfectCycleCount):
        assert count(Graph("bow"), params, "half") == pytest.approx(ideal / 64, rel=1e-3)
        assert count(Graph("bow"), params, "float") == pytest.approx(ideal / 16, rel=1e-3)
    with pytest.raises(TypeMismatchError, match="do not take i32"):
        poplin.getFwdPerfectCycleCount(Graph("bow"), params, "int")


def test_planner__page__runs() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "planner.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)
    assert names["again"]
