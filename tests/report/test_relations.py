"""Joins over relations give what a loop over their rows gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.report.relations import flat_ranges, joined_rows, rows_of, summed_by, sums_of
from abele.report.schema import PHASE_TILES

owners = st.lists(st.integers(0, 6), max_size=20).map(sorted)
wanted = st.lists(st.integers(-1, 8), max_size=12)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=20))
def test_flat_ranges__any_ranges__their_numbers_one_after_the_other(ranges: list[tuple[int, int]]) -> None:
    first, count = np.array([r[0] for r in ranges], np.int64), np.array([r[1] for r in ranges], np.int64)
    numbers, owner = flat_ranges(first, count)
    assert numbers.tolist() == [n for a, k in ranges for n in range(a, a + k)]
    assert owner.tolist() == [i for i, (_, k) in enumerate(ranges) for _ in range(k)]


@given(owners, wanted)
def test_joined_rows__any_owners__are_the_rows_of_each_in_turn(phase: list[int], numbers: list[int]) -> None:
    table = PHASE_TILES.table(phase=phase)
    rows, place = joined_rows(table, "phase", np.array(numbers, np.int32))
    pairs = [(r, i) for i, n in enumerate(numbers) for r, each in enumerate(phase) if each == n]
    assert list(zip(rows.tolist(), place.tolist(), strict=True)) == pairs
    for i, n in enumerate(numbers):
        found = rows_of(table, "phase", n)
        assert list(range(found.start, found.stop)) == [r for r, place in pairs if place == i]


@given(owners, wanted)
def test_sums_of__any_owners__add_up_the_rows_of_each(phase: list[int], numbers: list[int]) -> None:
    values = np.arange(len(phase)) + 1
    sums = sums_of(PHASE_TILES.table(phase=phase), "phase", values, np.array(numbers, np.int64))
    assert sums.tolist() == [sum(v for v, each in zip(values, phase, strict=True) if each == n) for n in numbers]
    assert sums.dtype == np.float64


@given(wanted)
def test_summed_by__rows_of_none__are_left_out(numbers: list[int]) -> None:
    sums = summed_by(np.array(numbers, np.int64), np.full(len(numbers), 3), 9)
    assert sums.tolist() == [3.0 * numbers.count(n) for n in range(9)]
    assert sums.dtype == np.float64


def test_rows_of__numbers_beyond_the_type_of_the_column__own_nothing() -> None:
    table = PHASE_TILES.table(phase=[0, 0, 3])
    assert [rows_of(table, "phase", n) for n in (-5, 1 << 40)] == [slice(0, 0), slice(3, 3)]
