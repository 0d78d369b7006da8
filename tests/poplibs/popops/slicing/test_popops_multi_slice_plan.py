"""Plans of embeddings: what they choose, what they cost, what they refuse."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench, system_of

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, LibraryCall, walk
from abele.machine import systems
from abele.numerics import f16, f32, u8
from abele.poplibs.popops import slicing
from abele.poplibs.popops.slicing import SlicePlan, embedding
from abele.poplibs.popops.slicing.multi_cost import add_cycles, slice_cycles
from abele.poplibs.popops.slicing.plan_search import candidates
from abele.validation.measure import compile_row
from abele.validation.parameters import Parameters
from support.examples import examples


def gc200() -> Graph:
    return Graph(systems.get("gc200").with_ipus(1))


def test_plan__large_table_few_indices__splits_entries_and_narrow_columns() -> None:
    plan = embedding.plan(gc200(), "half", 100_000, 200, 1440)
    assert (plan.entry_split, plan.column_split, plan.lookup_split) == (14, 100, 1)
    assert plan.costs["table bytes"] == 4 * 7143


def test_plan__least_storage__is_on_all_tiles_within_the_temporary_data_allowed() -> None:
    # BERT-Large's words: 63.3 MB, which 1,472 tiles hold evenly, and 16 columns are what the matrix units sum.
    plans = {
        aim: embedding.plan(gc200(), "half", 30_912, 1024, 1024, options={"planMinimisationTarget": aim} | share)
        for aim, share in (("memory", {}), ("storage", {"availableMemoryProportion": 0.15}))
    }
    least = plans["storage"]
    assert (least.entry_split, least.column_split) == (23, 64)
    assert least.costs["table bytes"] == 30_912 * 1024 * 2 // 1472
    assert plans["memory"].costs["table bytes"] > 1.1 * least.costs["table bytes"]
    assert plans["memory"].costs["temporary bytes"] < least.costs["temporary bytes"] < 0.15 * 638_976
    tight = {"planMinimisationTarget": "storage", "availableMemoryProportion": 0.06}
    allowed = embedding.plan(gc200(), "half", 30_912, 1024, 1024, options=tight)
    assert allowed.costs["temporary bytes"] < 0.06 * 638_976
    assert least.costs["table bytes"] < allowed.costs["table bytes"]


def test_plan__small_table_many_indices__splits_indices() -> None:
    plan = embedding.plan(gc200(), "half", 1000, 200, 21_600)
    assert (plan.entry_split, plan.column_split, plan.lookup_split) == (1, 100, 14)


@examples(8)
@given(
    st.integers(1, 3000), st.integers(1, 64), st.integers(0, 500), st.integers(1, 5), st.sampled_from([1, 7, 64, 300])
)
def test_plan__any_table__every_element_has_one_tile(
    entries: int, columns: int, num: int, groups: int, tiles: int
) -> None:
    graph = Graph(system_of(tiles))
    plan = embedding.plan(graph, "f16", entries, columns, num, group_size=groups)
    assert plan.tiles <= tiles
    table = slicing.create_grouped_sliceable_tensor(graph, "f16", groups, (entries, columns), (0,), (1,), plan)
    slices = slicing.create_grouped_slice_tensor(graph, table, (0,), (1,), num, plan)
    assert table.shape == (groups, entries, columns)
    assert slices.shape == (groups, num, 1, columns)
    assert graph.mapping_of(table).is_complete
    assert graph.mapping_of(slices).is_complete


@pytest.mark.parametrize("aim", ["memory", "cycles"])
def test_plan__of_all_candidates__has_the_least_cost(aim: str) -> None:
    graph, given_ = Graph(system_of(24)), {"planMinimisationTarget": aim}
    best = embedding.plan(graph, "f32", 12, 6, 10, options=given_)
    found = candidates(SlicePlan(f32, 12, 6, 10), 24)
    names = {"slicedDimSplit": found.entry_split, "unslicedDimSplit": found.column_split}
    names["lookupSplit"] = found.lookup_split
    key = "cycles" if aim == "cycles" else "bytes on the fullest tile"
    for i in range(len(found.entry_split)):
        splits = {name: int(values[i]) for name, values in names.items()}
        other = embedding.plan(graph, "f32", 12, 6, 10, options=given_ | {"planConstraints": splits})
        assert best.costs[key] <= other.costs[key]


def test_candidates__small_table__are_those_of_brute_force() -> None:
    found = candidates(SlicePlan(f16, 7, 6, 5), 16)
    got = set(zip(*(v.tolist() for v in (found.entry_split, found.column_split, found.lookup_split)), strict=True))
    filled = {n: {p for p in range(1, n + 1) if len({i // -(-n // p) for i in range(n)}) == p} for n in (7, 5)}
    wanted = {(e, c, n) for e, c, n in itertools.product(filled[7], (1, 3), filled[5]) if e * c * n <= 16}
    assert got == wanted


def test_plan__little_memory_for_temporaries__takes_a_slower_plan() -> None:
    roomy, tight = (
        embedding.plan(
            gc200(),
            "float",
            5000,
            256,
            50_000,
            options={"planMinimisationTarget": "cycles", "availableMemoryProportion": p},
        )
        for p in (0.6, 0.16)
    )
    assert tight.costs["temporary bytes"] <= 0.16 * 638_976 < roomy.costs["temporary bytes"]
    assert roomy.costs["cycles"] < tight.costs["cycles"]


def test_plan__one_point__expects_the_worst_data() -> None:
    splits = {"slicedDimSplit": 8, "unslicedDimSplit": 1, "lookupSplit": 1}
    even, point = (
        embedding.plan(
            Graph(system_of(64)),
            "f32",
            64,
            8,
            600,
            options={"indicesDistribution": distribution, "planConstraints": splits},
        )
        for distribution in ("uniform", "onePoint")
    )
    worst, outside = 6 * (30 + 100 * (19 + 8)), 6 * (30 + 100 * 8)
    assert point.costs["slice cycles"] - even.costs["slice cycles"] == 7 / 8 * (worst - outside)
    assert point.costs["update cycles"] > even.costs["update cycles"]


def test_slice_cycles__by_hand__are_those_of_the_reference() -> None:
    num, width = np.array([240, 1, 7]), np.array([2, 24, 4])
    assert slice_cycles(num, width, f16).tolist() == [6 * (30 + 40 * 21), 6 * (30 + 19 + 4), 6 * (30 + 2 * 23)]
    assert float(slice_cycles(num[:1], width[:1], f32, update=True)[0]) == 6 * (29 + 40 * 21)
    assert float(slice_cycles(num[:1], np.array([8]), u8)[0]) == 6 * (30 + 40 * (19 + 6))
    assert float(slice_cycles(num[:1], width[:1], f16, share=0.25)[0]) == 6 * (30 + 40 * (0.25 * 21 + 0.75 * 8))


def test_add_cycles__by_hand__are_those_of_the_reference() -> None:
    def cycles(width: int, kind: Any, scaled: bool) -> float:
        return float(add_cycles(np.array([10]), np.array([width]), kind, scaled=scaled)[0])

    assert cycles(2, f16, True) == 6 * (33 + 6 + 10 * 13)
    assert cycles(8, f16, False) == 6 * (33 + 10 * (12 + 3 * 4))
    assert cycles(4, f16, False) == 6 * (33 + 10 * 9)
    assert cycles(3, f16, False) == 6 * (33 + 10 * 60)
    assert cycles(2, f32, False) == 6 * (32 + 10 * 8)
    assert cycles(8, f32, True) == 6 * (32 + 4 + 10 * (11 + 7 * 3))


@pytest.mark.parametrize(
    ("chip", "line", "cycles"),
    [
        ("gc2", "--shape {1000,200} --num-indices 21600", 204_003),
        ("gc200", "--shape {1000,200} --num-indices 21600", 177_759),
        ("gc2", "--shape {100000,200} --num-indices 1440", 154_767),
        ("gc200", "--shape {100000,200} --num-indices 1440", 155_289),
    ],
)
def test_lookup_and_update__published_rows__are_within_10_percent(chip: str, line: str, cycles: int) -> None:
    report = compile_row("embedding", Parameters.parse(line), systems.get(chip).with_ipus(1)).report
    assert report.cycles().total == pytest.approx(cycles, rel=0.1)


def test_plan_multiple__several_numbers__is_the_plan_of_the_most() -> None:
    graph = Graph(system_of(64))
    assert embedding.plan_multiple(graph, "f32", 100, 8, (5, 40, 7)) == embedding.plan(graph, "f32", 100, 8, 40)


def test_plan__printed__tells_splits_and_costs() -> None:
    text = str(embedding.plan(gc200(), "half", 1000, 200, 21_600))
    assert text.startswith("slices of 1000 x 200 f16, 21600 indices\n  entries in 1 parts of 1000\n")
    assert "  columns in 100 parts of 2\n  indices in 14 parts of 1543\n  tiles   1400\n" in text
    assert "temporary bytes" in text


def test_library_call__planned__tells_its_plan() -> None:
    bench = Bench(4)
    plan = embedding.plan(bench.graph, "f32", 6, 4, 3)
    table = slicing.create_sliceable_tensor(bench.graph, "f32", (6, 4), (0,), (1,), plan)
    offsets = slicing.create_indices_tensor(bench.graph, (0,), 3, plan)
    slicing.multi_slice(bench.graph, table, offsets, (0,), (1,), bench.prog, plan)
    call = next(step for step in walk(bench.prog) if isinstance(step, LibraryCall))
    assert call.attributes["plan"] == plan


def test_create_sliceable_tensor__without_plan__keeps_entries_together() -> None:
    graph = Graph(system_of(64))
    table = slicing.create_sliceable_tensor(graph, "f32", (100, 16), (0,), (1,))
    tiles = graph.mapping_of(table.flatten()).tiles_of(np.arange(1600)).reshape(100, 16)
    assert (tiles == tiles[0]).all()
    assert len(set(tiles[0].tolist())) == 16


def test_create_sliceable_tensor__too_large_for_one_tile__splits_entries() -> None:
    graph = Graph(system_of(64))
    table = slicing.create_sliceable_tensor(graph, "f32", (400_000, 2), (0,), (1,))
    assert np.bincount(graph.mapping_of(table).tile).max() > 0
    tiles = graph.mapping_of(table.flatten()).tiles_of(np.arange(800_000)).reshape(-1, 2)
    assert len(set(tiles[:, 0].tolist())) > 1


def test_create_sliceable_tensor__several_dimensions__are_entries_together() -> None:
    graph = Graph(system_of(8))
    table = slicing.create_sliceable_tensor(graph, "f32", (3, 8, 5), (0, 2), (1, 2))
    tiles = graph.mapping_of(table.flatten()).tiles_of(np.arange(120)).reshape(3, 8, 5)
    assert (tiles == tiles[:1, :, :1]).all()
    assert slicing.create_slice_tensor(graph, table, (0, 2), (1, 2), 6).shape == (6, 1, 8, 2)


def test_plan__wrong_arguments__are_refused() -> None:
    graph = Graph(system_of(4))
    with pytest.raises(TensorError, match=r"no table 1 x 0 x 4 with \[3\] indices"):
        embedding.plan(graph, "f32", 0, 4, 3)
    with pytest.raises(TensorError, match=r"with \[\] indices"):
        embedding.plan_multiple(graph, "f32", 5, 4, ())
    with pytest.raises(TypeMismatchError, match="partialType i32 does not go with a table of f32"):
        embedding.plan(graph, "f32", 5, 4, 3, options={"partialType": "int"})
    with pytest.raises(InvalidOptionError, match="a plan is used for slices or for updates"):
        embedding.plan(graph, "f32", 5, 4, 3, options={"usedForSlice": False, "usedForUpdate": False})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"planConstraint": {}}, "has no option 'planConstraint'; did you mean 'planConstraints'"),
        ({"planConstraints": "{"}, "takes a JSON object by slicedDimSplit, unslicedDimSplit"),
        ({"planConstraints": {"lookups": 2}}, "takes a JSON object"),
        ({"planConstraints": {"lookupSplit": 0}}, "takes a JSON object"),
        ({"planConstraints": {"unslicedDimSplit": 3}}, "no plan for 5 x 4 on 4 tiles has column_split 3"),
        ({"operationForUpdate": "sub"}, "takes one of add, none, max, mul, got 'sub'"),
        ({"availableMemoryProportion": 2}, "takes a number between 0 and 1"),
    ],
)
def test_plan__wrong_option__is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        embedding.plan(Graph(system_of(4)), "f32", 5, 4, 3, options=options)


def test_create_sliceable_tensor__misspelt_option__is_refused() -> None:
    graph = Graph(system_of(4))
    with pytest.raises(InvalidOptionError, match="sliceable has no option 'usedForSlices'; did you mean"):
        slicing.create_sliceable_tensor(graph, "f32", (5, 4), (0,), (1,), options={"usedForSlices": True})


def test_plan__same_splits__are_equal_whatever_they_cost() -> None:
    plan = embedding.plan(Graph(system_of(4)), "f32", 5, 4, 3)
    assert plan == replace(plan, costs={})


def test_plan__few_indices_of_a_table_from_elsewhere__is_spread_and_fits() -> None:
    graph = Graph("bow-2000:1")
    room = graph.system.ipu.tile.total_bytes
    found = {
        aim: embedding.plan(graph, f32, 30_000, 256, 2, options={"planMinimisationTarget": aim, "usedForUpdate": False})
        for aim in ("cycles", "cyclesWithTable")
    }
    held = {aim: plan.costs["table bytes"] for aim, plan in found.items()}
    assert held["cycles"] <= room
    assert held["cyclesWithTable"] < held["cycles"] / 2
