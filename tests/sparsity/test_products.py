"""Products of sparse matrices in NumPy, against the dense ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TensorError
from abele.sparsity import Pattern, random_pattern
from abele.sparsity.products import sampled, sparse_times
from support.examples import examples


@examples(40)
@given(
    grid=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    block=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    columns=st.integers(0, 5),
    density=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_products__any_pattern__are_those_of_the_dense_matrix(
    grid: tuple[int, int], block: tuple[int, int], columns: int, density: float, seed: int
) -> None:
    shape = grid[0] * block[0], grid[1] * block[1]
    pattern, rng = random_pattern(shape, density, block, seed=seed), np.random.default_rng(seed)
    values = rng.normal(size=(pattern.num_blocks, *block))
    right, left = rng.normal(size=(shape[1], columns)), rng.normal(size=(shape[0], columns))
    dense = pattern.to_dense(values)
    np.testing.assert_allclose(sparse_times(pattern, values, right), dense @ right, atol=1e-12)
    np.testing.assert_allclose(sparse_times(pattern, values, left, transposed=True), dense.T @ left, atol=1e-12)
    np.testing.assert_allclose(sampled(pattern, left, right), pattern.values_of(left @ right.T), atol=1e-12)


def test_products__places_that_are_not_held__are_not_read() -> None:
    pattern = Pattern.from_dense_mask([[1, 0]])
    assert sparse_times(pattern, [[[2.0]]], [[3.0], [np.nan]]).tolist() == [[6.0]]


def test_products__operands_of_other_sizes__are_refused() -> None:
    pattern = Pattern.from_dense_mask([[1, 0]])
    with pytest.raises(TensorError, match="2 rows is wanted"):
        sparse_times(pattern, [[[2.0]]], [[3.0]])
    with pytest.raises(TensorError, match="no rows and columns"):
        sampled(pattern, [[1.0]], [[3.0]])
