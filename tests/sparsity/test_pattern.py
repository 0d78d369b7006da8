"""Patterns of sparse matrices: against dense matrices, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import SparsePatternError
from abele.sparsity import (
    Pattern,
    banded_pattern,
    bigbird_pattern,
    causal_pattern,
    n_of_m_pattern,
    random_pattern,
    strided_pattern,
    union_of,
)


@st.composite
def _matrices(draw: st.DrawFn) -> tuple[Pattern, np.ndarray]:
    block = draw(st.sampled_from([(1, 1), (2, 3), (4, 4)]))
    grid = draw(st.integers(0, 6)), draw(st.integers(1, 6))
    shape = grid[0] * block[0], grid[1] * block[1]
    pattern = random_pattern(shape, draw(st.sampled_from([0, 0.1, 0.5, 1])), block, seed=draw(st.integers(0, 99)))
    return pattern, np.random.default_rng(0).random((pattern.num_blocks, *block)) + 1


@given(_matrices())
def test_pattern__to_dense_and_back__is_the_same(made: tuple[Pattern, np.ndarray]) -> None:
    pattern, values = made
    dense = pattern.to_dense(values)
    again, same = Pattern.from_dense(dense, pattern.block)
    assert again == pattern
    assert hash(again) == hash(pattern)
    np.testing.assert_array_equal(same, values)
    np.testing.assert_array_equal(pattern.values_of(dense), values)
    assert np.count_nonzero(dense) == pattern.num_values


@given(_matrices())
def test_pattern__transposed_and_recut__is_the_same_matrix(made: tuple[Pattern, np.ndarray]) -> None:
    pattern, values = made
    dense = pattern.to_dense(values)
    turned, order = pattern.transposed()
    np.testing.assert_array_equal(turned.to_dense(values[order].transpose((0, 2, 1))), dense.T)
    finer, places = pattern.recut((1, 1))
    np.testing.assert_array_equal(finer.to_dense(values.reshape(-1)[places]), dense)


@given(st.randoms(use_true_random=False))
def test_from_coordinates__any_order__sorts(random: object) -> None:
    pattern = random_pattern((6, 9), 0.5, (1, 3), seed=1)
    values = np.arange(pattern.num_blocks * 3.0).reshape((-1, 1, 3))
    shuffled = np.arange(pattern.num_blocks)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again, order = Pattern.from_coordinates((6, 9), pattern.rows[shuffled], pattern.columns[shuffled], (1, 3))
    assert again == pattern
    np.testing.assert_array_equal(values[shuffled][order], values)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Pattern((2, 4), (1, 1), [0, 2, 2], [1, 1]), "block 1 of block row 0 has column 1 after 1"),
        (lambda: Pattern((2, 4), (1, 1), [0, 2, 2], [1, 0]), "columns of a row ascend"),
        (lambda: Pattern((2, 4), (1, 1), [0, 1, 2], [1, 4]), "block 1 lies at block column 4; there are 4"),
        (lambda: Pattern((2, 4), (1, 1), [0, 1, 2], [1, -1]), "block 1 lies at block column -1"),
        (lambda: Pattern((2, 4), (1, 1), [0, 2], [1, 2]), "row starts of 2 block rows are 3 ascending numbers"),
        (lambda: Pattern((2, 4), (1, 1), [0, 3, 2], [1, 2]), "row starts of 2 block rows"),
        (lambda: Pattern((3, 4), (2, 2), [0, 0], []), "3 rows are no multiple of a block's 2\n  try      2 or 4 rows"),
        (lambda: Pattern((2, 4), (0, 1), [0, 0], []), "blocks of at least 1 x 1, got [2, 4] and [0, 1]"),
        (lambda: Pattern.from_coordinates((4, 4), [1, 0, 1], [2, 0, 2]), "row 1, column 2 of the grid is there twice"),
        (lambda: Pattern.from_coordinates((4, 4), [1, 0], [2]), "2 rows and 1 columns do not name blocks together"),
        (lambda: n_of_m_pattern(np.ones((2, 6)), 2, 4), "do not divide into groups of 4"),
    ],
)
def test_pattern__wrong__says_where(make: object, text: str) -> None:
    with pytest.raises(SparsePatternError, match=re.escape(text)):
        make()  # type: ignore[operator]


def test_makers__known_masks__hold() -> None:
    shape, block = (64, 64), (8, 8)
    eye = np.eye(8, dtype=bool)
    np.testing.assert_array_equal(banded_pattern(shape, 0, block).mask, eye)
    np.testing.assert_array_equal(strided_pattern(shape, 8, block).mask, eye)
    np.testing.assert_array_equal(causal_pattern(random_pattern(shape, 1, block)).mask, np.tri(8, dtype=bool))
    bird = bigbird_pattern(shape, block, window=1, num_global=1, num_random=2, seed=5)
    assert bird.mask[0].all()
    assert bird.mask[:, 0].all()
    assert bird.mask.sum(1).tolist() == [8, 5, 6, 6, 6, 6, 6, 5]
    assert union_of([banded_pattern(shape, 0, block), causal_pattern(bird)]) == causal_pattern(bird)


def test_difference_text__of_two_patterns__counts_the_others_and_names_the_first() -> None:
    one = Pattern.from_coordinates((4, 4), [0, 1, 3], [1, 1, 0])[0]
    other = Pattern.from_coordinates((4, 4), [0, 2, 3], [1, 3, 0])[0]
    assert one.difference_text(other) == "1 of its 3 blocks are others, the first at row 2, column 3 of the grid"
    assert one.difference_text(Pattern.from_coordinates((4, 4), [0], [1])[0]) == "it lacks 2 blocks of 3"
    assert one.difference_text(random_pattern((8, 4), 0.5)).startswith("it is Pattern(8 x 4")


def test_n_of_m__two_of_four__are_the_largest() -> None:
    matrix = np.array([[1.0, -4.0, 3.0, 2.0, 0.0, 0.0, 0.0, 9.0]])
    assert n_of_m_pattern(matrix, 2, 4).columns.tolist() == [1, 2, 4, 7]
