"""Lists of intervals against their elements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.graph.intervals import Interval, cut_alike, cut_at, distinct, expand, merge_adjacent, order_of, runs


@given(
    one=st.lists(st.integers(1, 9), max_size=12),
    other=st.lists(st.integers(1, 9), max_size=12),
)
def test_cut_alike__two_lists_of_lengths__gives_parts_of_both(one, other):
    total = max(sum(one), sum(other))
    lists = [np.array([*n, total - sum(n)] if sum(n) < total else n, np.int64) for n in (one, other)]
    length, *parts = cut_alike(*lists)
    for lengths, part in zip(lists, parts, strict=True):
        elements = [(i, k) for i, n in enumerate(lengths) for k in range(n)]
        seen = zip(part.interval.tolist(), part.offset.tolist(), length.tolist(), strict=True)
        assert [(i, first + k) for i, first, n in seen for k in range(n)] == elements
    assert (length > 0).all()


@pytest.mark.parametrize("most", [1, 40, 1 << 20, 1 << 62])
@pytest.mark.parametrize("count", [0, 1, 7, 999, 1000, 5000])
def test_order_of__columns_of_any_length_and_span__is_that_of_a_stable_sort(count, most):
    rng = np.random.default_rng(count)
    for low in (0, -most):
        key = rng.integers(low, most, count)
        for column in (key, np.sort(key), np.sort(key)[::-1]):
            np.testing.assert_array_equal(order_of(column), np.argsort(column, kind="stable"))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64])
def test_order_of__other_types_of_numbers__is_that_of_a_stable_sort(dtype):
    info = np.iinfo(dtype)
    key = np.random.default_rng(0).integers(info.min, info.max, 3000, dtype=dtype)
    np.testing.assert_array_equal(order_of(key), np.argsort(key, kind="stable"))


@given(values=st.lists(st.integers(-5, 5), max_size=30))
def test_distinct__values_in_any_order__gives_each_once_and_its_own_array(values):
    column = np.array(values, np.int64)
    found = distinct(column)
    assert found.tolist() == sorted(set(values))
    assert not np.shares_memory(found, column)


def test_interval__between_two_elements__has_its_size_as_number_and_call():
    assert Interval(3, 7).size == Interval(3, 7).size() == 4


@given(parts=st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=12))
def test_merge_adjacent__intervals_in_rows__are_the_same_elements_without_a_join_left(parts):
    parts.sort(key=lambda part: part[2])
    begin, length, row = (np.array(column, np.int64) for column in zip(*parts, strict=True))
    joined, lengths, rows = merge_adjacent(begin, length, row)
    np.testing.assert_array_equal(expand(joined, lengths), expand(begin, length))
    np.testing.assert_array_equal(np.repeat(rows, lengths), np.repeat(row, length))
    assert not ((joined[1:] == (joined + lengths)[:-1]) & (rows[1:] == rows[:-1])).any()
    without, lengths, none = merge_adjacent(begin, length)
    np.testing.assert_array_equal(expand(without, lengths), expand(begin, length))
    assert none is None
    assert (without[1:] != (without + lengths)[:-1]).all()


def test_merge_adjacent__no_intervals__are_none():
    empty = np.empty(0, np.int64)
    assert [len(column) for column in merge_adjacent(empty, empty, empty)] == [0, 0, 0]


def test_runs__rows_of_addresses__begin_anew_at_each_gap_and_row():
    found = runs(np.array([[4, 5, 6], [7, 9, 10], [3, 2, 1]]))
    assert [column.tolist() for column in found] == [[4, 7, 9, 3, 2, 1], [3, 1, 2, 1, 1, 1], [0, 1, 1, 2, 2, 2]]
    assert [len(column) for column in runs(np.empty((3, 0), np.int64))] == [0, 0, 0]


def test_expand__intervals__is_each_address_in_order():
    assert expand(np.array([5, 0, 5]), np.array([2, 0, 3])).tolist() == [5, 6, 5, 6, 7]


@given(
    borders=st.lists(st.integers(0, 30), max_size=8, unique=True),
    parts=st.lists(st.tuples(st.integers(0, 25), st.integers(1, 9)), max_size=6),
)
def test_cut_at__any_borders__cuts_each_interval_at_those_inside_it(borders, parts):
    borders.sort()
    begin, length = np.array(parts, np.int64).reshape(-1, 2).T
    expected = []
    for number, (first, size) in enumerate(parts):
        cuts = [first, *(b for b in borders if first < b < first + size), first + size]
        expected += [(low, high - low, number) for low, high in itertools.pairwise(cuts)]
    found = cut_at(np.array(borders, np.int64), begin, length)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
