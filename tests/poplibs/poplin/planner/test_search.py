from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele.errors import InvalidOptionError, OutOfMemoryError
from abele.graph import Graph, Sequence
from abele.llvm import cache
from abele.machine import systems
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.lowering.grid import VertexGrid
from abele.poplibs.poplin.operations.matmul_layout import _gradients, _joint_cycles, _together, best_layout
from abele.poplibs.poplin.options import Planning, Types
from abele.poplibs.poplin.planner import search
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poplin.planner.schedule import make_schedule
from abele.poplibs.poplin.planner.search import find_plan
from abele.poplibs.poplin.planner.target import SIDES, PlanningTarget, padded_sides, rearranging_cycles, target_of
from abele.poplibs.poplin.vertices.method import Method
from abele.runtime import Engine
from poplibs.poplin.support import system

BOW = target_of(system(1472))


def planned(problem: Contraction, target: PlanningTarget = BOW, proportion: float = 0.6) -> ContractionPlan:
    return find_plan(
        problem, tuple({"ci": 16, "co": 16}.get(d, 1) for d in problem.split_dims), target, Planning(proportion)
    )


def conv(batch: int, cin: int, cout: int, field: int, kernel: int) -> Contraction:
    params = ConvParams(batch, cin, cout, (field, field), (kernel, kernel))
    return problems.forward(params, f16, f32, f16)


def test_find_plan__matmul__prints_split_terms_and_memory() -> None:
    plan = planned(problems.matmul(1, 1024, 1024, 1024, f16, f16, f16))
    text = str(plan)
    assert text.startswith("plan for 1g 1024b 1024→1024 channels, f16 with f16 partials to f16\n  amp_1x1 16 units, ")
    assert f"{plan.cycles:>10,} cycles" in text
    assert "partial products" in text
    assert "B temporary on the fullest tile of 382,723 B allowed" in text
    assert sum(n for _, n in plan.terms) == plan.cycles


def test_make_schedule__memory_for_no_number_of_parts__allows_twice_as_much() -> None:
    # In one piece this product needs more than a tile has, and no parts of it do with 2 %.
    problem = problems.matmul(1, 8192, 50_257, 1024, f16, f32, f16)
    grains = tuple({"ci": 16, "co": 16}.get(d, 1) for d in problem.split_dims)
    found, twice = (make_schedule(problem, grains, BOW, Planning(share)) for share in (0.02, 0.04))
    assert found.plans == twice.plans
    assert len(found.plans) > 1
    with pytest.raises(OutOfMemoryError):
        planned(problem, proportion=0.02)


def test_make_schedule__gradient_by_inputs_of_a_large_head__is_cut_along_the_words() -> None:
    problem = problems.matmul(1, 1024, 50_257, 1024, f16, f32, f16)
    grains = tuple({"ci": 16, "co": 16}.get(d, 1) for d in problem.split_dims)
    found = make_schedule(problem, grains, BOW, Planning(0.15))
    assert found.adds_up
    assert sum(plan.problem.in_channels for plan in found.plans) == 50_257
    assert all(plan.temporary_bytes <= 0.15 * BOW.tile_bytes for plan in found.plans)
    # Parts of the rows or of the columns would send all gradients anew in each part.
    apart = [n for plan in found.plans for name, n in plan.terms if name.startswith("exchange of the ")]
    assert sum(apart) < 0.6 * found.cycles


@pytest.mark.parametrize(
    "problem",
    [
        problems.matmul(1, 1024, 1024, 1024, f16, f16, f16),
        problems.matmul(1, 512, 1000, 1000, f32, f32, f32),
        conv(512, 64, 32, 9, 3),
        conv(16, 32, 64, 8, 3),
        conv(4, 64, 64, 56, 3),
    ],
)
def test_find_plan__large_problem__leaves_few_tiles_idle(problem: Contraction) -> None:
    plan = planned(problem)
    busy = problem.macs / BOW.tiles
    sizes = np.prod([np.max(plan.pieces(d)[1]) for d in ("g", "b", "co", "ci")])
    fields = np.prod([np.max(plan.pieces(d)[1]) for d in problem.split_dims if d[0] in "ok"])
    assert plan.tiles > 0.7 * BOW.tiles
    assert sizes * fields < 2.2 * busy + 16 * 16


def test_find_plan__tiny_problem__does_not_spread_for_nothing() -> None:
    assert planned(problems.matmul(1, 4, 16, 16, f16, f16, f16)).tiles < 50


def test_find_plan__every_split__none_is_cheaper() -> None:
    problem, small = conv(2, 32, 32, 4, 3), target_of(system(8))
    best = planned(problem, small)
    units = [problem.extents[d] // g for d, g in zip(problem.split_dims, best.grains, strict=True)]
    splits = [s for s in product(*(range(1, 1 + min(4, n)) for n in units)) if np.prod(s) <= 8]
    assert len(splits) > 50
    pinned = [Planning(parts=tuple(zip(problem.split_dims, split, strict=True))) for split in splits]
    assert best.cycles <= min(find_plan(problem, best.grains, small, planning).cycles for planning in pinned)


@pytest.mark.parametrize(
    "planning",
    [
        Planning(0.6),
        Planning(0.02),
        Planning(0.6, beside=(("partial products", 20_000), ("exchange of the input", 300))),
        Planning(0.6, method="hmac"),
    ],
)
@pytest.mark.parametrize("problem", [conv(8, 64, 128, 28, 3), conv(4, 3, 64, 56, 7), conv(1, 512, 512, 7, 1)])
def test_best_plans__bound_by_their_early_terms__are_those_of_all_splits(
    problem: Contraction, planning: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABELE_CACHE_DIR", "off")  # plans on disk would be found again
    grains = tuple({"ci": 16, "co": 16}.get(d, 1) for d in problem.split_dims)
    found = [search.best_plans(problem, grains, BOW, planning, count) for count in (1, 2, 5)]
    monkeypatch.setattr(search, "_near", lambda least, *_: np.flatnonzero(least < np.iinfo(np.int64).max))
    assert found == [search.best_plans(problem, grains, BOW, planning, count) for count in (1, 2, 5)]


def test_find_plan__same_question__same_answer() -> None:
    problem = conv(16, 32, 64, 8, 3)
    first = planned(problem)
    find_plan.cache_clear()
    assert planned(problem) == first


def test_find_plan__plan_on_disk__equals_the_one_searched_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    problem = conv(16, 32, 64, 8, 3)
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_WORTH_SECONDS", 0.0)
    find_plan.cache_clear()
    first = planned(problem)
    assert list(tmp_path.rglob("*-choice.o"))
    find_plan.cache_clear()
    monkeypatch.setattr(search, "_splits", lambda *_, **__: pytest.fail("searched again"))
    again = planned(problem)
    assert (again, again.is_limited) == (first, first.is_limited)


def test_find_plan__first_time__is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_CACHE_DIR", "off")
    find_plan.cache_clear()
    questions = [conv(512, 64, 32, 9, 3), conv(16, 32, 64, 8, 3), problems.matmul(1, 512, 200, 64, f32, f32, f32)]
    begin = time.process_time()
    for question in questions:
        planned(question)
    assert (time.process_time() - begin) / len(questions) < 0.25


def test_find_plan__less_memory__uses_less() -> None:
    problem = problems.matmul(1, 2048, 2048, 2048, f16, f16, f16)
    usual, least = planned(problem), planned(problem, proportion=0)
    assert usual.temporary_bytes <= usual.available_bytes == int(0.6 * BOW.tile_bytes)
    assert least.temporary_bytes < usual.temporary_bytes
    assert least.cycles >= usual.cycles


def test_find_plan__tight_proportion__is_doubled_until_one_fits() -> None:
    plan = planned(problems.matmul(1, 2048, 2048, 2048, f16, f16, f16), proportion=0.001)
    assert plan.temporary_bytes <= plan.available_bytes < 2 * plan.temporary_bytes


def test_find_plan__nothing_fits__says_the_smallest_memory_that_would_do() -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        planned(problems.matmul(1, 4096, 4096, 4096, f32, f32, f32), target_of(system(4)))
    tile = caught.value.tiles[0]
    assert tile["needed_bytes"] > tile["available_bytes"] == BOW.tile_bytes
    assert f"the smallest needs {tile['needed_bytes']:,} B on a tile" in str(caught.value)
    assert "partials in f16" in str(caught.value)


@pytest.mark.parametrize(
    "given", [{"available_memory_proportion": 1.5}, {"options": {"availableMemoryProportion": 1.5}}]
)
def test_matmul__proportion_above_one__is_refused(given: dict[str, Any]) -> None:
    graph, prog = Graph(system(4)), Sequence()
    a, b = (graph.variable(f32, (4, 4), n).map_linear() for n in "ab")
    with pytest.raises(InvalidOptionError, match="'availableMemoryProportion' takes a number between 0 and 1, got 1"):
        poplin.matmul(graph, a, b, prog, **given)


def test_plan_constraints__parts_and_method__are_kept_to() -> None:
    constraints = '{"method": {"type": "AMP"}, "0": {"partition": {"batchSplit": 4, "inChanSplit": {"parallel": 2}}}}'
    graph, prog = Graph(system(64)), Sequence()
    a, b = graph.variable(f16, (64, 64), "a").map_linear(), graph.variable(f16, (64, 64), "b").map_linear()
    poplin.matmul(graph, a, b, prog, options={"planConstraints": constraints})
    (plan,) = prog.steps[0].attributes["plan"].plans  # type: ignore[attr-defined]
    assert (plan.split["b"], plan.split["ci"], plan.method.kind) == (4, 2, "amp_1x1")


@pytest.mark.parametrize(
    ("constraints", "text"),
    [
        ("{", "option 'planConstraints' is not understood"),
        (
            '{"0": {"partition": {"rowSplit": 4}}}',
            "no split, method or transform 'rowSplit'",
        ),
        ('{"0": {"transform": {"expandDims": [0]}}}', "no split, method or transform 'expandDims'"),
        ('{"0": {"transform": {"swapOperands": 3}}}', "swapOperands is 3, it is true or false"),
        ('{"0": {"partition": {"inChanSplit": {"parallel": 2, "serial": 3}}}}', "3 serial parts"),
        ('{"0": {"partition": {"batchSplit": 65}}}', "65 parts of b, between 1 and 64 are possible"),
        ('{"0": {"partition": {"batchSplit": 64, "outChanSplit": 4}}}', "256 parts at least, there are 64 tiles"),
        ('{"method": {"type": "OUTER_PRODUCT"}}', "outer_product vertices, which cannot do this work"),
    ],
)
def test_plan_constraints__that_cannot_be_kept__are_refused(constraints: str, text: str) -> None:
    graph, prog = Graph(system(64)), Sequence()
    a, b = graph.variable(f16, (64, 64), "a").map_linear(), graph.variable(f16, (64, 64), "b").map_linear()
    with pytest.raises(InvalidOptionError, match=text):
        poplin.matmul(graph, a, b, prog, options={"planConstraints": constraints})


@pytest.mark.parametrize("swaps", [False, True])
def test_plan_constraints__swapped_operands__are_kept_to(swaps: bool) -> None:
    options = {"planConstraints": json.dumps({"0": {"transform": {"swapOperands": swaps}}})}
    graph, prog = Graph(system(64)), Sequence()
    a = poplin.create_matmul_input_lhs(graph, f16, (48, 64), (64, 80), "a", options=options)
    b = poplin.create_matmul_input_rhs(graph, f16, (48, 64), (64, 80), "b", options=options)
    out = poplin.matmul(graph, a, b, prog, options=options)
    (plan,) = prog.steps[0].attributes["plan"].plans  # type: ignore[attr-defined]
    assert (plan.problem.batch, plan.problem.out_channels) == ((80, 48) if swaps else (48, 80))
    x, y = np.random.default_rng(0).normal(size=(2, 80, 80)).astype(np.float16)
    with Engine(graph, prog, keep=[a, b, out]) as engine:
        engine[a], engine[b] = x[:48, :64], y[:64]
        engine.run()
        np.testing.assert_allclose(engine[out], x[:48, :64].astype(float) @ y[:64].astype(float), rtol=2e-3, atol=0.02)


def test_plan_constraints__convolution_with_swapped_operands__is_refused() -> None:
    options = {"planConstraints": '{"0": {"transform": {"swapOperands": true}}}'}
    with pytest.raises(InvalidOptionError, match="swapOperands is True, it is false"):
        poplin.explain_convolution(Graph(system(64)), ConvParams(1, 4, 4, (8, 8), (3, 3)), f16, options=options)


@pytest.mark.parametrize("way", ["NONE", "INFERENCE_FWD"])
def test_matmul__few_columns__holds_the_left_operand_in_the_units(way: str) -> None:
    # Streaming the left matrix past four columns takes fewer cycles, but PopLibs has operands rearranged for that.
    options = {"fullyConnectedPass": way, "partialsType": "half"}
    shapes, graph = ((4096, 4096), (4096, 4)), Graph("bow")
    swapped = poplin.explain_matmul(graph, *shapes, f16, options=options).plan
    pinned = options | {"planConstraints": '{"0": {"transform": {"swapOperands": false}}}'}
    kept = poplin.explain_matmul(graph, *shapes, f16, options=pinned).plan
    assert (swapped.problem.batch, swapped.problem.out_channels) == (4, 4096)
    assert (kept.problem.batch, kept.problem.out_channels) == (4096, 4)
    charged = sum(rearranging_cycles(kept.problem, side, kept.tiles, BOW) for side in SIDES)
    assert kept.cycles < swapped.cycles < kept.cycles + charged


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "expected"),
    [
        # bytes a tile, then 5 cycles for 4 elements (3 where channels are no whole vectors), and 4 bytes a cycle
        (512, 512, f16, {"input": 224 + 90, "weights": 224 + 90, "output": 224 + 90}),
        (512, 511, f16, {"output": 297 + 89}),
        (512, 512, f32, {"output": 223 + 179}),
    ],
)
def test_rearranging__of_a_side__costs_what_poplibs_charges(
    rows: int, columns: int, dtype: ElementType, expected: dict[str, int]
) -> None:
    problem = problems.matmul(1, rows, 512, columns=columns, dtype=dtype, partials=f32, output=dtype)
    assert {side: rearranging_cycles(problem, side, 1472, BOW) for side in expected} == expected


def test_find_plan__channels_that_are_no_multiple_of_16__are_written_in_groups_of_one_pass() -> None:
    # 200 out-channels are 25 groups of 8: five tiles take 5 of them each, where groups of 16 would make it 6.
    gc200 = target_of(systems.get("gc200"))
    problem = problems.matmul(1, 30000, 512, columns=200, dtype=f16, partials=f32, output=f16)
    plan = find_plan(problem, (1, 1, 8, 16), gc200)
    assert plan.method.out_group == 8
    assert (plan.split["co"], plan.split["ci"]) == (5, 2)
    joint = find_plan(problem, (1, 1, 8, 16), gc200, Planning(training_pass="TRAINING_FWD"))
    assert joint.method.out_group == 16


def test_find_plan__groups_that_channels_do_not_fill__are_charged_for() -> None:
    # 600 out-channels are 75 whole groups of 8 and 37.5 of 16; groups of 16 have weights and output rearranged.
    gc200 = target_of(systems.get("gc200"))
    problem = problems.matmul(1, 20000, 256, columns=600, dtype=f16, partials=f32, output=f16)
    assert padded_sides(problem, Method("amp_1x1", 8, out_group=8)) == ()
    assert padded_sides(problem, Method("amp_1x1", 8)) == ("weights", "output")
    assert padded_sides(problem, Method("hmac")) == ()
    plan = find_plan(problem, (1, 1, 8, 16), gc200)
    assert (plan.method.out_group, plan.split["co"]) == (8, 38)
    odd = replace(problem, in_channels=250)
    assert padded_sides(odd, Method("amp_1x1", 8, out_group=8)) == ("input", "weights")
    terms = dict(find_plan(odd, (1, 1, 8, 10), gc200).terms)
    assert 0 < terms["rearranging of padded sides"] < terms["partial products"]


def test_find_plan__number_of_parts__is_the_smallest_with_its_largest_part() -> None:
    # 13 parts of 25 groups have two at most, and 14 are no better: PopLibs does not look at them.
    assert [n for n in search._part_counts(25, 1472).tolist() if n > 9] == [13, 25]


def test_find_plan__outer_product__writes_the_type_of_its_operands() -> None:
    plan = find_plan(problems.matmul(1, 1000, 1, columns=1000, dtype=f16, partials=f32, output=f16), (1, 1, 8, 1), BOW)
    assert plan.method.kind == "outer_product"
    assert (plan.problem.partials, plan.needs_finish) == (f16, False)


def test_target__bow__has_the_conv_units_of_its_types() -> None:
    found = [BOW.conv_units(*types) for types in ((f16, f16), (f16, f32), (f32, f32), (f32, f16))]
    assert found == [(16, 4), (8, 4), (16, 8), (0, 0)]


def test_grid__planned_sizes__are_those_of_the_largest_vertex() -> None:
    plan = planned(conv(3, 48, 32, 7, 3), target_of(system(64)))
    grid = VertexGrid(plan)
    work = grid.work()
    compute = dict(plan.terms)["partial products"]
    assert int(plan.method.cycles(work, BOW.load_bytes).max()) <= compute
    assert int(np.prod([grid.all.size[d] for d in ("b", "o0", "o1", "co", "ci", "k0", "k1")], axis=0).sum()) == np.prod(
        [plan.problem.extents[d] for d in plan.problem.split_dims]
    )


@pytest.mark.parametrize(("rows", "inner", "columns"), [(16, 1000, 100), (64, 96, 512), (300, 64, 48)])
def test_training_pass__layout__suits_all_three_passes_together(rows: int, inner: int, columns: int) -> None:
    shapes, types = ((rows, inner), (inner, columns)), Types(f16, f32, f16)
    joint, alone = Planning(training_pass="TRAINING_FWD"), Planning()
    together, forward = (best_layout(system(64), *shapes, types, p) for p in (joint, alone))
    shared = _together(together, *shapes, types, joint) if together.shared else None
    if shared is None:
        costs = [_joint_cycles(layout, *shapes, types, joint) for layout in (together, forward)]
    else:
        # One split for all passes is compared by what PopLibs charges beside the plans.
        apart = forward.call, *_gradients(forward, *shapes, types, joint)
        costs = [shared[0], sum(call.schedule.cycles + call.charge for call in apart)]
    assert costs[0] <= costs[1]
    assert forward.call.cycles <= together.call.cycles


@pytest.mark.parametrize("methods", [1, 2, 4])
def test_chosen__of_columns__takes_the_entry_of_each_number(methods: int) -> None:
    rng = np.random.default_rng(0)
    columns, number = [rng.integers(0, 99, 50) for _ in range(methods)], rng.integers(0, methods, 50)
    assert search._chosen(columns, number).tolist() == np.choose(number, columns).tolist()
