"""Promises of every solver, for any items: all once, within limits, never below the bound; and optimal small sets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import InvalidOptionError, ItemSizeError, PackingError
from abele.packing import Method, PackingPlan, SizeHistogram, pack, pack_items
from abele.packing.assign import looked_up
from abele.packing.columns import FractionalPacking, exact_bound
from abele.packing.histogram_fit import GroupOfPacks, longest_pack_first, shortest_pack_first, strategies_of
from abele.packing.knapsack import Knapsack
from abele.packing.rounding import completed, rounded_with
from support.examples import examples

SETTINGS = examples(10)


@st.composite
def problems(draw: st.DrawFn, most_items: int = 60, most_capacity: int = 40) -> tuple[list[int], int, int | None]:
    """Lengths, a capacity and a depth."""
    capacity = draw(st.integers(1, most_capacity))
    lengths = draw(st.lists(st.integers(1, capacity), min_size=1, max_size=most_items))
    return lengths, capacity, draw(st.one_of(st.none(), st.integers(1, 6)))


def fewest(lengths: list[int], capacity: int, depth: int | None) -> int:
    """The fewest packs, by trying everything: the largest item left starts a pack, any others go with it."""
    limit = depth or len(lengths)

    @cache
    def left(items: tuple[int, ...]) -> int:
        if not items:
            return 0
        return 1 + min(left(rest) for rest in fillings(items[1:], capacity - items[0], limit - 1))

    def fillings(items: tuple[int, ...], room: int, depth_left: int) -> set[tuple[int, ...]]:
        found = {items}
        if depth_left:
            for place, length in enumerate(items):
                if length <= room and (place == 0 or items[place - 1] != length):
                    rest = items[:place] + items[place + 1 :]
                    found |= {items[:place] + tail for tail in fillings(rest[place:], room - length, depth_left - 1)}
        return found

    return left(tuple(sorted(lengths, reverse=True)))


def check(plan: PackingPlan, sizes: np.ndarray, capacity: tuple[int, ...], depth: int | None) -> None:
    """All items once, within capacities and depth, no fewer packs than the bound; the same of assigned items."""
    assert plan.bound <= plan.num_packs
    assert (plan.loads <= np.array(capacity)).all()
    packs = plan.assign(sizes, seed=5)
    assert len(packs) == plan.num_packs
    assert np.array_equal(np.sort(packs.items), np.arange(len(sizes)))
    assert (packs.depths >= 1).all()
    assert depth is None or packs.depths.max() <= depth
    rows = sizes.reshape(len(sizes), -1)
    assert (np.add.reduceat(rows[packs.items], packs.begins[:-1], axis=0) <= np.array(capacity)).all()


@pytest.mark.parametrize("method", ["columns", "lpfhp", "spfhp"])
@given(problem=problems())
@SETTINGS
def test_pack__any_lengths__holds_each_once_within_limits(
    method: Method, problem: tuple[list[int], int, int | None]
) -> None:
    lengths, capacity, depth = problem
    check(pack(lengths, capacity, depth=depth, method=method), np.array(lengths), (capacity,), depth)


@given(problem=problems(), depth=st.integers(1, 3))
@SETTINGS
def test_nnlshp__any_lengths__holds_each_once_within_limits(
    problem: tuple[list[int], int, int | None], depth: int
) -> None:
    lengths, capacity, _ = problem
    check(pack(lengths, capacity, depth=depth, method="nnlshp"), np.array(lengths), (capacity,), depth)


@given(problem=problems(most_items=9, most_capacity=15))
@examples(30)
def test_columns__few_items__are_between_bound_and_optimum_plus_one(problem: tuple[list[int], int, int | None]) -> None:
    lengths, capacity, depth = problem
    plan, optimum = pack(lengths, capacity, depth=depth), fewest(lengths, capacity, depth)
    assert plan.bound <= optimum <= plan.num_packs <= optimum + 1


def test_columns__where_best_fit_is_bad__are_optimal() -> None:
    # The worst case of best-fit decreasing: 11 packs where 9 do. 501 + 252 leave no room for 248.
    lengths = [501] * 24 + [252] * 24 + [251] * 24 + [248] * 48
    plan = pack(lengths, 1000)
    assert pack(lengths, 1000, method="lpfhp").num_packs == 44
    assert plan.num_packs == plan.bound == 36


@given(
    sizes=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 30)), min_size=1, max_size=50),
    depth=st.one_of(st.none(), st.integers(1, 5)),
)
@SETTINGS
def test_pack__two_capacities__holds_each_once_within_both(sizes: list[tuple[int, int]], depth: int | None) -> None:
    check(pack(sizes, (20, 30), depth=depth), np.array(sizes), (20, 30), depth)


def test_pack__second_capacity_that_never_limits__is_near_the_packing_of_the_first() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 2000)
    plan = pack(np.stack([lengths, np.ones_like(lengths)], axis=1), (100, 10_000))
    assert plan.bound == pack(lengths, 100).bound
    assert plan.num_packs <= 1.02 * plan.bound


@given(problem=problems(), values=st.integers(0, 2**32))
@SETTINGS
def test_exact_bound__any_values__is_no_more_than_any_packing(
    problem: tuple[list[int], int, int | None], values: int
) -> None:
    lengths, capacity, depth = problem
    histogram = SizeHistogram.of(lengths)
    worth = np.random.default_rng(values).random(len(histogram.counts)) ** 4
    bound = exact_bound(Knapsack.of(histogram, capacity, depth), histogram.counts, worth)
    assert bound <= pack(lengths, capacity, depth=depth, method="lpfhp").num_packs


@given(problem=problems(most_items=8, most_capacity=14), values=st.integers(0, 2**32))
@SETTINGS
def test_knapsack__each_kind__has_the_most_valuable_pattern(
    problem: tuple[list[int], int, int | None], values: int
) -> None:
    lengths, capacity, depth = problem
    knapsack = Knapsack.of(SizeHistogram.of(lengths), capacity, depth)
    worth = np.random.default_rng(values).integers(0, 50, len(knapsack.lengths))

    @cache
    def best(room: int, items: int) -> int:
        options = [
            int(value) + best(room - int(length), items - 1)
            for length, value in zip(knapsack.lengths, worth, strict=True)
            if items and length <= room
        ]
        return max([0, *options])

    table = knapsack.solve(worth)
    assert table.best[-1, -1] == best(capacity, knapsack.depth)
    for kind, row in enumerate(table.patterns()):
        members = row[row >= 0]
        assert members[0] == kind
        assert len(members) <= knapsack.depth
        assert knapsack.lengths[members].sum() <= capacity
        rest = best(capacity - int(knapsack.lengths[kind]), knapsack.depth - 1)
        assert worth[members].sum() == worth[kind] + rest


def test_strategies_of__equal_packs_in_another_order__are_one_with_the_largest_kind_first() -> None:
    groups = [GroupOfPacks(((0, 1), (2, 1)), 2, 3), GroupOfPacks(((1, 1),), 1, 5), GroupOfPacks(((2, 1), (0, 1)), 2, 4)]
    strategies, counts = strategies_of(groups)
    assert [row.tolist() for row in strategies] == [[2, 0], [1]]
    assert counts.tolist() == [7, 5]


def test_shortest_pack_first__a_fuller_pack_beside__goes_into_the_emptiest() -> None:
    groups = shortest_pack_first([4, 5, 8], [1, 1, 1], 10, 10)
    assert sorted(group.runs for group in groups) == [((1, 1), (0, 1)), ((2, 1),)]


def test_longest_pack_first__packs_with_the_same_room__heeds_the_depth_of_the_one_it_fills() -> None:
    # Both have 4 of 6 left. The latest has 2 items already, so that it takes one more, not two.
    there = [(4, GroupOfPacks(((1, 1),), 1, 1)), (4, GroupOfPacks(((0, 2),), 2, 1))]
    groups = longest_pack_first([1, 2], [0, 2], 6, 3, there)
    assert sorted(group.runs for group in groups) == [((0, 2), (1, 1)), ((1, 1), (1, 1))]


def test_rounded_with__fractions__tries_rounding_down_to_rounding_up_nearly_all() -> None:
    patterns = np.array([[0, 1], [1, -1], [1, 1]], np.int32)
    fractional = FractionalPacking(patterns, np.array([0.65, 2.0, 0.0]), 2.65, 3, 1, np.ones(2))
    tried: list[list[GroupOfPacks]] = []

    def complete(counts: np.ndarray, groups: Sequence[GroupOfPacks]) -> list[GroupOfPacks]:
        tried.append(list(groups))
        return list(groups)

    least = rounded_with(complete, np.array([1, 3]), fractional)
    whole, part = GroupOfPacks(((1, 1),), 1, 2), GroupOfPacks(((0, 1), (1, 1)), 2, 1)
    # From a shift of 0.4 on, 0.65 is a whole pack.
    assert tried == [[whole]] * 4 + [[part, whole]] * 6
    assert least == [whole]


def test_completed__items_without_a_slot__fill_the_room_that_packs_have_left() -> None:
    half_full, full = GroupOfPacks(((1, 1),), 1, 1), GroupOfPacks(((1, 2),), 2, 1)
    knapsack = Knapsack(np.array([2, 5]), 10, 5)
    assert [group.runs for group in completed(knapsack, np.array([2, 1]), [half_full])] == [((1, 1), (0, 2))]
    assert [group.runs for group in completed(knapsack, np.array([1, 2]), [full])] == [((1, 2),), ((0, 1),)]


def test_looked_up__one_item_of_two_sizes__is_found_by_both() -> None:
    kinds = np.array([[3, 4], [3, 5]])
    assert [found.tolist() for found in looked_up(np.array([[3, 4]]), kinds)] == [[0], [True]]
    assert looked_up(np.array([[3, 6]]), kinds)[1].tolist() == [False]


def test_knapsack__of_as_many_cells_as_allowed__is_small() -> None:
    lengths = np.arange(1, 1001)
    assert Knapsack(lengths, 4999, 4999).is_small
    assert not Knapsack(lengths, 5000, 5000).is_small
    # A depth that limits takes a table for each number of items.
    assert Knapsack(lengths, 3999, 3).is_small
    assert not Knapsack(lengths, 3999, 4).is_small


def test_pack__long_capacity__costs_no_more_than_a_short_one() -> None:
    lengths = np.random.default_rng(1).integers(1, 2**30, 3000)
    plan = pack(lengths, 2**30)
    check(plan, lengths, (2**30,), None)
    assert plan.num_packs <= 1.01 * plan.bound


def test_pack__one_item_and_one_kind__are_optimal() -> None:
    assert pack([7], 7).num_packs == 1
    assert pack(SizeHistogram.counted({3: 10**12}), 10).num_packs == -(-(10**12) // 3)


def test_pack__tolerance__stops_earlier_with_a_valid_bound() -> None:
    lengths = np.random.default_rng(2).integers(1, 100, 5000)
    exact, loose = pack(lengths, 100, depth=3), pack(lengths, 100, depth=3, tolerance=0.05)
    assert loose.bound <= exact.bound <= exact.num_packs <= loose.num_packs <= 1.05 * loose.bound + 3
    again = pack(lengths[:4000], 100, depth=3, like=exact)
    check(again, lengths[:4000], (100,), 3)


@pytest.mark.parametrize("seed", [None, 3])
def test_pack_items__same_seed__same_packs(seed: int | None) -> None:
    lengths = np.random.default_rng(3).integers(1, 64, 4000)
    first, second = (pack_items(lengths, 64, depth=4, seed=seed) for _ in range(2))
    assert np.array_equal(first.items, second.items)
    assert np.array_equal(first.begins, second.begins)
    if seed is not None:
        other = pack_items(lengths, 64, depth=4, seed=seed + 1)
        assert not np.array_equal(first.items, other.items)


@pytest.mark.parametrize(
    ("lengths", "capacity", "options", "error", "text"),
    [
        ([], 8, {}, PackingError, "there are no items to pack"),
        ([3, 0], 8, {}, ItemSizeError, "item 1 has size 0: sizes are at least 1"),
        ([3, -2], 8, {}, ItemSizeError, "item 1 has size -2"),
        ([3, 9], 8, {}, ItemSizeError, "items are over the capacity of 8: 1 of 2, the largest of size 9"),
        ([3, 2.5], 8, {}, ItemSizeError, "entry 1 is 2.5"),
        ([3, float("nan")], 8, {}, ItemSizeError, "entry 1 is nan"),
        (["a"], 8, {}, ItemSizeError, "sizes are whole numbers"),
        ([2**41], 8, {}, ItemSizeError, "below 1,099,511,627,776"),
        ([2**70], 8, {}, ItemSizeError, "below 2**63"),
        ([[[1]]], 8, {}, ItemSizeError, "sizes have shape [1, 1, 1]"),
        ([[1, 2]], 8, {}, PackingError, "items have 2 sizes each, a pack has 1 capacities"),
        ([3], 0, {}, PackingError, "the capacity of a pack is at least 1"),
        ([3], 8.5, {}, PackingError, "the capacity of a pack is a whole number, got 8.5"),
        ([3], (), {}, PackingError, "at least one capacity"),
        ([3], 8, {"depth": 0}, PackingError, "the depth of a pack is at least 1"),
        ([3], 8, {"depth": True}, PackingError, "the depth of a pack is a whole number, got True"),
        ([3], 8, {"method": "colums"}, InvalidOptionError, "no method of packing is called 'colums'"),
        ([3], 8, {"too_long": "cut"}, InvalidOptionError, "too_long is 'refuse' or 'split'"),
        ([3], 8, {"tolerance": float("nan")}, PackingError, "the tolerance is a proportion"),
        ([3] * 9, 2000, {"method": "nnlshp", "depth": 3}, PackingError, "at most 1,024 tokens"),
        ([3] * 9, 20, {"method": "nnlshp", "depth": 4}, PackingError, "at most 3 sequences"),
        ([[3, 4]], (8, 8), {"method": "spfhp"}, InvalidOptionError, "spfhp packs one length at a time"),
        ([[9, 4]], (8, 8), {"too_long": "split"}, ItemSizeError, "the largest of size 9 × 4"),
    ],
)
def test_pack__wrong_argument__is_named(
    lengths: list[int], capacity: int, options: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        pack(lengths, capacity, **options)  # type: ignore[arg-type]
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({3: -1}, "a count is negative: -1 items of size 3"),
        ({3: 0}, "there are no items"),
        ({}, "there are no items"),
        ({3: 2**62, 4: 2**62}, "more than the"),
        ({3: 1.5}, "counts are whole numbers, got 1.5"),
        ([1, 2], "size 0: sizes are at least 1"),
    ],
)
def test_histogram__wrong_counts__are_named(counts: dict[int, int], text: str) -> None:
    with pytest.raises(PackingError) as raised:
        SizeHistogram.counted(counts)
    assert text in str(raised.value)


def test_histogram__counted_and_of__are_the_same() -> None:
    lengths = np.array([5, 3, 5, 9, 3, 5])
    counted = SizeHistogram.counted({9: 1, 5: 3, 3: 2, 7: 0})
    for same in (SizeHistogram.of(lengths), SizeHistogram.of(lengths.astype(np.float32)), counted):
        assert (same.lengths.tolist(), same.counts.tolist()) == ([3, 5, 9], [2, 3, 1])
    assert SizeHistogram.counted(np.bincount(lengths)).counts.tolist() == [2, 3, 1]


def test_columns__too_many_lengths_for_them__are_best_fit_and_say_so() -> None:
    lengths = np.arange(1, 4_001)
    plan = pack(lengths, 4_000, depth=4)
    assert plan.method == "lpfhp"
    assert plan.num_packs == pack(lengths, 4_000, depth=4, method="lpfhp").num_packs
