"""Shares of products, and the tables that say where elements lie."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.kernels.products.choose import MAX_TILE_BYTES, choose_shares
from abele.kernels.routines.blocking import Kept, blocking
from abele.kernels.routines.multiply import offsets, run_of

SIZES = blocking(16, 32, 32 << 10, 1 << 20)
digit = st.integers(1, 40)


@given(outer=st.tuples(digit, digit), inner=st.tuples(digit, digit), depth=st.integers(1, 3000), count=digit)
def test_shares__of_any_product__are_whole_digits_and_fit_a_cache(outer, inner, depth, count):
    m, n = (a * b for a, b in zip(outer, inner, strict=True))
    rows, columns, _ = choose_shares((m, n, depth), inner, count, SIZES)
    assert 0 < rows <= m
    assert 0 < columns <= n
    assert rows % inner[0] == columns % inner[1] == 0
    assert (
        4 * rows * columns <= MAX_TILE_BYTES or (rows, columns) == inner or rows * columns <= 64 * inner[0] * inner[1]
    )


def test_shares__of_a_large_product__are_enough_for_sixteen_threads():
    rows, columns, _ = choose_shares((512, 3072, 768), (1, 1), 1, SIZES)
    assert -(-512 // rows) * -(-3072 // columns) >= 16


@pytest.mark.parametrize(
    ("shape", "kept"),
    [((96, 1500, 1500), Kept.ROWS), ((1500, 96, 1500), Kept.COLUMNS), ((4096, 4096, 1 << 20), Kept.NOTHING)],
)
def test_shares__of_few_rows__keep_them_packed(shape, kept):
    assert choose_shares(shape, (1, 1), 1, SIZES)[2] == kept


def test_offsets__of_digits__count_through_the_fastest_first():
    assert offsets(((2, 100), (3, 1))).tolist() == [0, 1, 2, 100, 101, 102]
    assert offsets(((4, -1),)).tolist() == [0, -1, -2, -3]


def test_runs__of_digits__are_what_lies_next_to_each_other():
    assert run_of(((5, 16), (16, 1))) == 80
    assert run_of(((5, 64), (16, 1))) == 16
    assert run_of(((5, 1), (16, 64))) == 0
    assert run_of(((5, 1), (1, 64))) == 5


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 4, 5, 20, 60])), min_size=1, max_size=3))
def test_runs__of_any_digits__have_neighbours_in_a_row(digits):
    places, run = offsets(tuple(digits)), run_of(tuple(digits))
    if run > 1:
        assert (np.diff(places.reshape(-1, run), axis=1) == 1).all()
