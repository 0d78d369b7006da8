"""Several capacities by column generation: the knapsack against trying everything, bounds against optima."""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.packing import PackStream, SizeHistogram, pack
from abele.packing.columns import VectorKnapsack, exact_bound
from support.examples import examples

SETTINGS = examples(10)
CAPACITY = (8, 6)
Sizes = list[tuple[int, ...]]


@st.composite
def items(draw: st.DrawFn, most: int = 8, capacity: tuple[int, ...] = CAPACITY) -> Sizes:
    size = st.tuples(*(st.integers(1, limit) for limit in capacity))
    return draw(st.lists(size, min_size=1, max_size=most))


DEPTHS = st.one_of(st.none(), st.integers(1, 4))


def fewest(sizes: Sizes, capacity: tuple[int, ...], depth: int | None) -> int:
    """The fewest packs, by trying all ways to put each item in turn into an open pack or a new one."""
    limit = depth or len(sizes)

    @cache
    def after(place: int, packs: tuple[tuple[tuple[int, ...], int], ...]) -> int:
        if place == len(sizes):
            return len(packs)
        found = after(place + 1, tuple(sorted((*packs, (sizes[place], 1)))))
        for at, (load, count) in enumerate(packs):
            filled = tuple(a + b for a, b in zip(load, sizes[place], strict=True))
            if count < limit and all(a <= c for a, c in zip(filled, capacity, strict=True)):
                found = min(
                    found, after(place + 1, tuple(sorted((*packs[:at], (filled, count + 1), *packs[at + 1 :]))))
                )
        return found

    return after(0, ())


@given(sizes=items(), depth=DEPTHS)
@examples(30)
def test_columns__few_items_of_two_sizes__are_between_bound_and_optimum_plus_one(
    sizes: Sizes, depth: int | None
) -> None:
    plan, optimum = pack(sizes, CAPACITY, depth=depth), fewest(sizes, CAPACITY, depth)
    assert plan.bound <= optimum <= plan.num_packs <= optimum + 1


@given(sizes=items(most=40, capacity=(9, 7, 5)), depth=DEPTHS)
@SETTINGS
def test_columns__three_capacities__hold_each_item_once_and_no_worse_than_greedy(
    sizes: Sizes, depth: int | None
) -> None:
    plan = pack(sizes, (9, 7, 5), depth=depth)
    assert (plan.loads <= [9, 7, 5]).all()
    assert depth is None or plan.strategies.depths.max() <= depth
    packs = plan.assign(sizes)
    assert np.array_equal(np.sort(packs.items), np.arange(len(sizes)))
    greedy = pack(sizes, (9, 7, 5), depth=depth, method="lpfhp")
    assert greedy.bound <= plan.bound <= plan.num_packs <= greedy.num_packs


@given(sizes=items(most=5, capacity=(6, 5)), depth=st.integers(1, 4), seed=st.integers(0, 2**32))
@SETTINGS
def test_vector_knapsack__any_values__is_the_best_of_all_multisets(sizes: Sizes, depth: int, seed: int) -> None:
    knapsack = VectorKnapsack.of(SizeHistogram.of(sizes * 4), (6, 5), depth)
    values = np.random.default_rng(seed).integers(0, 1000, len(knapsack.sizes))
    best = 0
    for count in range(1, depth + 1):
        for members in combinations_with_replacement(range(len(values)), count):
            if (knapsack.sizes[list(members)].sum(axis=0) <= [6, 5]).all():
                best = max(best, int(values[list(members)].sum()))
    assert knapsack.best_value(values) == best
    table = knapsack.solve(values / 1000)
    assert table.best[-1, -1] == pytest.approx(best / 1000)
    for kind, row in enumerate(table.patterns()):
        members = row[row >= 0]
        assert members[0] == kind
        assert len(members) <= depth
        assert (knapsack.sizes[members].sum(axis=0) <= [6, 5]).all()


@given(sizes=items(), depth=DEPTHS, seed=st.integers(0, 2**32))
@SETTINGS
def test_exact_bound__any_values_of_two_sizes__is_no_more_than_the_fewest(
    sizes: Sizes, depth: int | None, seed: int
) -> None:
    histogram = SizeHistogram.of(sizes)
    values = np.random.default_rng(seed).random(len(histogram.counts))
    knapsack = VectorKnapsack.of(histogram, CAPACITY, depth)
    assert exact_bound(knapsack, histogram.counts, values) <= fewest(sizes, CAPACITY, depth)


def test_columns__sizes_that_exclude_each_other__prove_what_no_capacity_alone_does() -> None:
    # Two of a kind do not fit in one capacity, one of each not in the other: sums alone say 63 packs.
    sizes = [(6, 4), (5, 7)] * 50
    plan = pack(sizes, (10, 10))
    assert plan.num_packs == plan.bound == 100
    alone = [pack([size[column] for size in sizes], 10).bound for column in (0, 1)]
    assert max(alone) < 100


@pytest.mark.parametrize(("depth", "greedy"), [(None, 305), (8, 320)])
def test_columns__graphs_of_nodes_and_edges__are_within_a_hundredth_of_their_bound(
    depth: int | None, greedy: int
) -> None:
    generator = np.random.default_rng(0)
    nodes = generator.integers(9, 30, 2000)
    graphs = np.stack([nodes, nodes * 2 + generator.integers(0, 6, 2000)], axis=1)
    plan = pack(graphs, (128, 288), depth=depth, tolerance=0.004)
    assert plan.num_packs <= 1.01 * plan.bound
    assert plan.num_packs < greedy == pack(graphs, (128, 288), depth=depth, method="lpfhp").num_packs


def test_columns__capacities_too_large_for_a_table__are_packed_greedily() -> None:
    sizes = np.random.default_rng(1).integers(1, 5000, (200, 2))
    assert not VectorKnapsack.of(SizeHistogram.of(sizes), (10_000, 10_000), None).is_small
    plan = pack(sizes, (10_000, 10_000))
    assert plan.num_packs == pack(sizes, (10_000, 10_000), method="lpfhp").num_packs


def test_stream__two_capacities__holds_each_item_once() -> None:
    sizes = np.random.default_rng(2).integers(1, 30, (500, 2))
    stream = PackStream((64, 64), depth=5, window=200)
    made = [*stream.push(sizes), *stream.finish()]
    assert sorted(np.concatenate(made).tolist()) == list(range(500))
    assert all((sizes[items].sum(axis=0) <= 64).all() for items in made)
