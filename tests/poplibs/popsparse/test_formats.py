"""The three formats against SciPy's, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import AbeleError, SparsePatternError, TypeMismatchError
from abele.poplibs.popsparse import COOMatrix, CSCMatrix, CSRMatrix
from abele.sparsity import random_pattern
from support.examples import examples

FORMATS = (COOMatrix, CSRMatrix, CSCMatrix)
BLOCKS = ((1, 1), (2, 2), (4, 4), (2, 3), (3, 1), (1, 5))


@examples(30)
@given(
    st.integers(0, 5), st.integers(0, 5), st.sampled_from(BLOCKS), st.floats(0, 1), st.integers(0, 2**16), st.booleans()
)
def test_formats__random_matrix__all_conversions_keep_it(
    rows: int, columns: int, block: tuple[int, int], density: float, seed: int, half: bool
) -> None:
    pattern = random_pattern((rows * block[0], columns * block[1]), density, block, seed=seed)
    values = np.random.default_rng(seed).normal(size=(pattern.num_blocks, *block)).astype("f2" if half else "f4")
    dense = pattern.to_dense(values)
    for kind in FORMATS:
        first = kind.from_pattern(pattern, values)
        for there in (first.to_coo(), first.to_csr(), first.to_csc(), first.canonicalise()):
            assert there.nzValues.dtype == values.dtype
            assert there.pattern == pattern
            np.testing.assert_array_equal(there.to_dense(), dense)
            np.testing.assert_array_equal(there.values, values)


@examples(20)
@given(st.sampled_from([(1, 1), (2, 2), (2, 3), (3, 2)]), st.integers(0, 2**16))
def test_csr__shuffled_columns__is_what_scipy_reads(block: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    theirs = scipy.sparse.random(12, 18, density=0.3, random_state=rng).tobsr(block)
    for row in range(theirs.indptr.size - 1):
        part = slice(theirs.indptr[row], theirs.indptr[row + 1])
        order = rng.permutation(theirs.indptr[row + 1] - theirs.indptr[row])
        theirs.indices[part], theirs.data[part] = theirs.indices[part][order], theirs.data[part][order]
    area = block[0] * block[1]
    ours = CSRMatrix(12, 18, theirs.data.reshape(-1), theirs.indices * block[1], theirs.indptr * area, block)
    np.testing.assert_array_equal(ours.to_dense(), theirs.toarray())
    assert (np.diff(ours.canonicalise().columnIndices)[np.diff(ours.pattern.rows) == 0] > 0).all()


def test_csc__non_square_blocks__pointers_are_of_block_columns() -> None:
    dense = np.zeros((4, 6))
    dense[0:2, 3:6] = [[1, 2, 3], [4, 5, 6]]
    dense[2:4, 0:3] = 7
    ours = CSCMatrix(4, 6, [7] * 6 + [1, 2, 3, 4, 5, 6], [0, 6, 12], [2, 0], (2, 3))
    np.testing.assert_array_equal(ours.to_dense(), dense)
    assert ours.to_csr().rowIndices.tolist() == [0, 6, 12]
    assert ours.to_csr().columnIndices.tolist() == [3, 0]
    assert (ours.getNumRowsInBlock(), ours.getNumColumnsInBlock(), ours.getBlockSize()) == (2, 3, 6)


@pytest.mark.parametrize(
    ("kind", "args", "text"),
    [
        (CSRMatrix, (2, 4, [1, 2, 3], [0, 3, 4], [0, 2, 3]), r"columnIndices\[2\] is 4; the matrix has 4 columns"),
        (CSRMatrix, (2, 4, [1, 2, 3], [0, 3, -1], [0, 2, 3]), "outside"),
        (CSRMatrix, (2, 4, [1, 2, 3], [0, 3], [0, 2, 3]), "2 indices for 3 blocks"),
        (CSRMatrix, (2, 4, [1, 2, 3], [0, 3, 2], [0, 3]), "2 pointers; 2 lines of blocks have 3"),
        (CSRMatrix, (2, 4, [1, 2, 3], [0, 3, 2], [0, 2, 2]), "from 0 to 2; there are 3 values"),
        (CSRMatrix, (2, 4, [1, 2, 3], [0, 3, 2], [1, 2, 3]), "from 1 to 3"),
        (CSRMatrix, (3, 4, [1, 2, 3], [0, 3, 2], [0, 2, 1, 3]), "falls from 2 to 1 at 2"),
        (CSRMatrix, (2, 4, [1, 2, 3], [0, 0, 2], [0, 2, 3]), "row 0, column 0 of the grid is there twice"),
        (
            CSRMatrix,
            (2, 4, [1] * 8, [0, 1], [0, 8], (2, 2)),
            r"columnIndices\[1\] is 1, .* no multiple of the 2 columns",
        ),
        (CSRMatrix, (4, 4, [1] * 8, [0, 2], [0, 2, 8], (2, 2)), r"rowIndices\[1\] is 2, .* 4 values of a block"),
        (CSRMatrix, (2, 4, [1] * 7, [0, 2], [0, 8], (2, 2)), "7 values are no whole number of blocks"),
        (CSRMatrix, (3, 4, [1] * 8, [0, 2], [0, 8], (2, 2)), "3 rows are no multiple of a block's 2"),
        (CSRMatrix, (2, 4, [1], [[0]], [0, 1, 1]), "got 2 dimensions"),
        (CSCMatrix, (4, 6, [1] * 6, [0, 6], [0], (2, 3)), "2 pointers; 2 lines of blocks have 3"),
        (CSCMatrix, (4, 6, [1] * 6, [0, 6, 6], [3], (2, 3)), r"rowIndices\[0\] is 3"),
        (CSCMatrix, (4, 6, [1] * 6, [0, 6, 6], [4], (2, 3)), "the matrix has 4 rows"),
        (COOMatrix, (2, 2, [1, 2], [0], [0, 1]), "columnIndices has 1 indices for 2 blocks"),
        (COOMatrix, (2, 2, [1, 2], [0, 1], [0, 2]), "the matrix has 2 rows"),
        (COOMatrix, (2, 2, [1, 2], [1, 1], [1, 1]), "twice"),
        (COOMatrix, (2, 2, [1], [0], [0], (0, 1)), "blocks of at least 1 x 1"),
    ],
)
def test_formats__wrong_indices__say_which(kind: Any, args: tuple[Any, ...], text: str) -> None:
    with pytest.raises(SparsePatternError, match=text):
        kind(*args)


@pytest.mark.parametrize("args", [(2, 2, ["a"], [0], [0]), (2, 2, [1j], [0], [0]), (2, 2, [1.0], [0.5], [0])])
def test_formats__wrong_types__are_refused(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeMismatchError):
        COOMatrix(*args)


def test_from_pattern__wrong_number_of_values__says_how_many_fit() -> None:
    with pytest.raises(AbeleError, match="3 values do not fill"):
        CSRMatrix.from_pattern(random_pattern((4, 4), 0.5, (2, 2)), [1.0, 2.0, 3.0])
