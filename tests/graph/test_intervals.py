"""Lists of intervals against their elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.graph.intervals import cut_alike, distinct, order_of


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
