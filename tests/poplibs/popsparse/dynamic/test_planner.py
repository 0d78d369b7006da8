"""Plans of dynamic sparse products: sizes, bounds, keys, options, and what is refused."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

from abele.errors import InvalidOptionError, OutOfMemoryError, SparsePatternError, TypeMismatchError
from abele.graph import Graph
from abele.numerics import f16
from abele.poplibs.popsparse import dynamic
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.options import HalfPartialsWarning
from abele.poplibs.popsparse.dynamic.planner import SparseMemoryWarning
from abele.poplibs.popsparse.dynamic.spills import deviations, expected_passes
from abele.poplibs.popsparse.explanation import SparseProblem
from abele.sparsity import Pattern, random_pattern
from poplibs.popsparse.dynamic.sparse_kit import grid, tiles_of

ELEMENT = dynamic.SparsityParams()


def plan(
    m: int, k: int, n: int, density: float, block: int = 1, dtype: str = "half", target: Any = "bow", **options: Any
) -> Any:
    params = dynamic.MatMulParams.createWithNzRatio(
        dynamic.SparsityParams(blockDimensions=(block, block)), density, 1, m, k, n
    )
    return dynamic.Partitioner(params, dtype, target, options, dynamic.PlanningCache()).plan


def test_search__of_the_largest_published_size__takes_less_than_a_second() -> None:
    began = time.process_time()
    plan(8192, 8192, 256, 1 / 16, 16)
    plan(8192, 8192, 256, 1 / 32, 1)
    assert time.process_time() - began < 1


def test_buckets__of_a_plan__are_sized_as_published() -> None:
    made = plan(4096, 4096, 256, 1 / 16, 16, **grid(16, 8, 11))
    held = -(-4096 // (16 * 8 * 11))
    assert made.nz_slots == round(held * 1.3)
    rows = np.ceil(2 * (1 - (1 - 1 / 16) ** 32))
    by_row = np.ceil(np.ceil(16 * 32 / 11 / 16) / rows)
    wanted = 2 * 7 + np.ceil(rows * (2 + by_row) * 1.3)
    assert made.meta_slots == wanted + wanted % 2
    assert made.num_tiles == 16 * 8 * 11


def test_oversize__larger__buckets_are_larger() -> None:
    sizes = [plan(512, 512, 64, 0.1, metaInfoBucketOversizeProportion=o, **grid(8, 8, 4)) for o in (0.0, 0.3, 1.0)]
    assert [p.nz_slots for p in sizes] == sorted(p.nz_slots for p in sizes)
    assert [p.meta_slots for p in sizes] == sorted(p.meta_slots for p in sizes)


def test_constraint__grid_6_4_1__is_kept_and_beyond_the_tiles_refused() -> None:
    assert plan(96, 96, 8, 0.1, target=tiles_of(), **grid(6, 4, 1)).parts == (6, 4, 1)
    with pytest.raises(InvalidOptionError, match="7 parts of x x 4 parts of y x 1 parts of z; there are 24 tiles"):
        plan(96, 96, 8, 0.1, target=tiles_of(), **grid(7, 4, 1))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ('{"partition": {"w": 2}}', "no constraint 'w'"),
        ('{"partition": {"x": 0}}', "0 parts of x"),
        ('{"exchange": {"gradWExchangeBuckets": 3}}', "3 is neither true nor false"),
        ("[1]", "is no object"),
        ("{", "is not understood"),
    ],
)
def test_constraints__that_are_none__are_refused_with_an_example(given: str, text: str) -> None:
    with pytest.raises(InvalidOptionError, match="planConstraints") as raised:
        plan(32, 32, 8, 0.1, planConstraints=given)
    assert text in str(raised.value)


def test_memory__none_allowed__is_no_plan_and_too_little_is_a_warning() -> None:
    with pytest.raises(InvalidOptionError, match="of 0 leaves no plan"):
        plan(32, 32, 8, 0.1, availableMemoryProportion=0)
    with pytest.warns(SparseMemoryWarning, match="are allowed"):
        plan(4096, 4096, 4096, 0.25, 16, availableMemoryProportion=0.05)


def test_batch__off_the_grain__is_refused_with_the_next_size() -> None:
    with pytest.raises(SparsePatternError, match=r"6 dense columns \(batch\) are no multiple of 4") as raised:
        plan(32, 32, 6, 0.1)
    assert "pad to 8 columns" in str(raised.value)
    assert plan(32, 32, 6, 0.1, dtype="float").columns >= 2
    assert plan(32, 32, 5, 0.25, 4).columns >= 1


def test_types__of_integers_and_unknown_options__are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="f16, f32 or 8-bit floats, not i32"):
        plan(32, 32, 8, 0.1, dtype="int")
    with pytest.raises(InvalidOptionError, match="metaInfoBucketOversizeProportion"):
        plan(32, 32, 8, 0.1, metaInfoBucketOversizePropotion=0.1)


def test_partials__half_by_element__are_float_with_a_warning() -> None:
    with pytest.warns(HalfPartialsWarning, match="summed in f32"):
        made = plan(32, 32, 8, 0.1, partialsType="half")
    assert made.options.partials.name == "f32"
    assert plan(32, 32, 8, 0.1, 4, partialsType="half").options.partials.name == "f16"


def test_cache__same_shape_with_another_type_machine_or_constraint__has_a_plan_for_each() -> None:
    cache = dynamic.PlanningCache()
    params = dynamic.MatMulParams.createWithNzRatio(ELEMENT, 0.1, 1, 96, 96, 8)
    for dtype, target, options in (
        ("half", "bow", {}),
        ("float", "bow", {}),
        ("float", tiles_of(), {}),
        ("float", tiles_of(), grid(6, 4, 1)),
        ("float", tiles_of(), grid(6, 4, 1)),
    ):
        dynamic.Partitioner(params, dtype, target, options, cache)
    assert cache.size() == 4


@pytest.mark.parametrize("ratio", [-0.1, 1.1])
def test_params__share_outside_0_and_1__is_refused(ratio: float) -> None:
    with pytest.raises(InvalidOptionError, match="between 0 and 1"):
        dynamic.MatMulParams.createWithNzRatio(ELEMENT, ratio, 1, 8, 8, 8)


def test_params__sizes_off_the_block__are_refused_with_the_next_ones() -> None:
    with pytest.raises(SparsePatternError, match="30 rows") as raised:
        dynamic.MatMulParams.createWithNzRatio(dynamic.SparsityParams(blockDimensions=(4, 4)), 0.1, 1, 30, 32, 8)
    assert "28 or 32" in str(raised.value)
    with pytest.raises(SparsePatternError, match="65 values are declared for 64 elements"):
        dynamic.MatMulParams.createWithNumNonZeroValues(ELEMENT, 65, 1, 8, 8, 8)


def test_params__count_and_type__follow_from_ratio_and_block() -> None:
    params = dynamic.MatMulParams.createWithNzRatio(ELEMENT, 0.1, 1, 100, 201, 32)
    assert params.numNonZeroValues == 2010
    blocked = dynamic.SparsityParams(dynamic.SparsityType.Element, blockDimensions=(4, 2))
    assert blocked.type == dynamic.SparsityType.Block


def test_vertex__by_element__costs_what_is_published() -> None:
    assert costs.element_forward_worker(10, 4, 8, True) == 28 + 10 * (15 + 12)
    assert costs.element_forward_worker(10, 4, 4, True) == 30 + 10 * (11 + 8)
    assert costs.element_forward_worker(10, 4, 13, True) == 33 + 10 * (12 + 16 + 12 + 13 + 8 + 11 + 8)
    assert costs.element_transposed_worker(10, 7, 8, True) == 20 + 10 * (18 + 20)
    assert costs.element_grad_w_worker(10, 4, 2, False) == 32 + 10 * (7 + 16)
    assert costs.reduce_cycles(48, 3, False) == 6 * (32 + 16 * 2)
    assert costs.zero_cycles(800) == 6 * (12 + 17)


def test_plan__explained__has_grid_buckets_and_stages() -> None:
    problem = SparseProblem(1024, 1024, 64, 1 / 16, 16, f16)
    found = dynamic.explain_dynamic(Graph("bow"), problem)
    made = plan(1024, 1024, 64, 1 / 16, 16)
    assert dict(found.split)["blocks of a bucket"] == made.nz_slots
    assert found.cycles == made.pass_cycles("fwd")
    assert [stage for stage, _ in found.terms] == ["exchange", "compute", "spills", "reduction"]
    assert sum(size for _, size in found.memory) >= made.temporary_bytes


@pytest.mark.parametrize(("block", "density"), [(1, 0.05), (16, 1 / 16)])
def test_figure__of_an_even_pattern__is_near_the_plan_and_far_from_the_worst(block: int, density: float) -> None:
    found = dynamic.sparse_figure(512, 512, 64, density, block, target=tiles_of(96))
    assert found.compiled == pytest.approx(found.planned, rel=0.35)
    assert found.compiled < found.worst
    assert sum(cycles for _, cycles in found.parts) == found.compiled


def test_pattern_cost__of_a_skewed_pattern__is_above_that_of_an_even_one() -> None:
    params = dynamic.MatMulParams.createWithNzRatio(ELEMENT, 0.2, 1, 96, 96, 8)
    made = dynamic.Partitioner(params, "half", tiles_of(), {**grid(6, 4, 1), "metaInfoBucketOversizeProportion": 0.5})
    even = dynamic.pattern_cost(made.place(random_pattern((96, 96), 0.1)))
    rng = np.random.default_rng(0)
    held = np.zeros((96, 96), bool)
    held[:16] = rng.random((16, 96)) < 0.55
    skewed = dynamic.pattern_cost(made.place(Pattern.from_dense_mask(held)))
    assert len(even.passes) == 0
    assert len(skewed.passes) > 0
    assert skewed.first > even.first
    assert skewed.imbalance > even.imbalance


def test_figure__of_a_product_beyond_the_chip__is_refused_before_it_is_built() -> None:
    with pytest.warns(SparseMemoryWarning), pytest.raises(OutOfMemoryError, match="of a dynamic sparse product take"):
        dynamic.sparse_figure(4096, 4096, 8192, 1 / 16, 16)


@pytest.mark.parametrize(("columns", "groups"), [(4, 0), (8, 0), (13, 0), (16, 1), (64, 7)])
def test_element_cycles__many_columns__charge_each_group_of_eight(columns: int, groups: int) -> None:
    assert costs.further_groups_worker("forward", 10, columns, True) == 10 * 16 * groups
    assert costs.further_groups_worker("transposed", 10, columns, True) == 0


@pytest.mark.parametrize("mean", [9.0, 40.0])
def test_deviations__of_a_binomial_count__have_its_tail(mean: float) -> None:
    places = 300
    for room in range(int(mean) + 1, int(mean + 5 * mean**0.5)):
        chance = np.array([math.comb(places, c) for c in range(room + 1, places + 1)], float)
        counts = np.arange(room + 1, places + 1)
        share = mean / places
        tail = float((chance * share**counts * (1 - share) ** (places - counts)).sum())
        found = deviations(np.array(float(room)), np.array(mean), np.array(float(places)))
        assert math.erfc(float(found) / math.sqrt(2)) / 2 == pytest.approx(tail, rel=0.3)


def test_figure__of_uneven_large_blocks__spills_no_farther_than_the_next_cells() -> None:
    figure = dynamic.sparse_figure(4096, 4096, 64, 1 / 4, 16)
    assert len(figure.cost.passes) <= 3
    assert figure.compiled < 1.3 * figure.planned


@pytest.mark.parametrize(
    ("side", "columns", "parts"), [(4096, 64, (32, 7, 6)), (4096, 64, (24, 7, 8)), (1024, 64, (22, 32, 2))]
)
def test_expected_passes__of_random_patterns__are_those_that_the_partitioner_finds(
    side: int, columns: int, parts: tuple[int, int, int]
) -> None:
    params = dynamic.MatMulParams.createWithNzRatio(
        dynamic.SparsityParams(blockDimensions=(16, 16)), 1 / 16, 1, side, side, columns
    )
    partitioner = dynamic.Partitioner(params, "half", "bow", grid(*parts), dynamic.PlanningCache())
    made = partitioner.plan
    places = float(np.prod(made.cell))
    room = deviations(np.array(float(parts[2] * made.nz_slots)), np.array(places / 16), np.array(places))
    expected = float(expected_passes(room, np.array(parts[0] * parts[1])))
    found = [partitioner.place(random_pattern((side, side), 1 / 16, (16, 16), seed=seed)).passes for seed in range(24)]
    # Three deviations of the mean of 24 patterns.
    error = 3 * float(np.std(found)) / math.sqrt(len(found))
    assert abs(expected - float(np.mean(found))) < error + 0.1
