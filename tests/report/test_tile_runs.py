"""Runs of tiles say the same as one number per tile."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.report.tiles import dense_runs, runs_of, spread, summed

numbers = st.lists(st.integers(0, 2), min_size=1, max_size=40).map(lambda n: np.array(n, np.int64))


@given(numbers, st.randoms())
def test_dense_runs__any_two_columns__spread_to_what_they_were(cycles: np.ndarray, random: object) -> None:
    sent = np.roll(cycles, 1)
    first, count, values = dense_runs(cycles=cycles, sent=sent)
    assert np.array_equal(spread(first, count, values["cycles"], len(cycles)), cycles)
    assert np.array_equal(spread(first, count, values["sent"], len(cycles)), sent)
    ends = first + count
    assert (first[1:] >= ends[:-1]).all()
    touching = first[1:] == ends[:-1]
    assert ((np.diff(values["cycles"]) != 0) | (np.diff(values["sent"]) != 0))[touching].all()


def test_runs_of__five_tiles_of_a_pod__are_as_many_rows_as_differ() -> None:
    first, count, values = runs_of(np.array([3, 4, 5, 1472, 376_831]), cycles=np.array([7, 7, 8, 7, 0]))
    assert (first.tolist(), count.tolist(), values["cycles"].tolist()) == ([3, 5, 1472], [2, 1, 1], [7, 8, 7])


def test_dense_runs__a_whole_pod_that_does_the_same__is_one_row() -> None:
    first, count, values = dense_runs(cycles=np.full(94_208, 12))
    assert (first.tolist(), count.tolist(), values["cycles"].tolist()) == ([0], [94_208], [12])


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 9), st.integers(0, 5)), max_size=12))
def test_summed__runs_that_overlap__add_up_on_each_tile(runs: list[tuple[int, int, int]]) -> None:
    dense = np.zeros(30, np.int64)
    for first, count, value in runs:
        dense[first : first + count] += value
    columns = np.array(runs, np.int64).reshape(-1, 3).T
    first, count, values = summed(columns[0], columns[1], value=columns[2])
    assert np.array_equal(spread(first, count, values["value"], 30), dense)
    assert (first[1:] >= (first + count)[:-1]).all()
    assert np.array_equal(spread(*columns, 30), dense)
