"""Products of sparse matrices in NumPy: what they mean, for interpreters and tests.

>>> from abele.sparsity import Pattern
>>> p = Pattern.from_dense_mask([[0, 1], [1, 1]])
>>> sparse_times(p, np.array([[[2.0]], [[3.0]], [[4.0]]]), np.array([[1.0], [10.0]])).tolist()
[[20.0], [43.0]]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import TensorError
from abele.sparsity.pattern import Pattern


def sparse_times(pattern: Pattern, values: npt.ArrayLike, dense: npt.ArrayLike, *, transposed: bool = False) -> Array:
    """S · dense, or Sᵀ · dense; elements of ``dense`` that meet no held block are not read.

    Args:
        pattern: Blocks that S holds.
        values: Its values [blocks, *block].
        dense: [k, n] for S [m, k]; [m, n] where S is transposed.
        transposed: True to multiply by the transpose.

    Raises:
        TensorError: The dense operand has another number of rows.
    """
    held, given = np.asarray(values), np.asarray(dense)
    (height, width), (rows, columns) = pattern.block, pattern.grid
    if transposed:
        (height, width), (rows, columns) = (width, height), (columns, rows)
        held = held.transpose((0, 2, 1))
    if given.ndim != 2 or given.shape[0] != columns * width:
        raise TensorError(f"a dense operand of {columns * width:,} rows is wanted, got {list(given.shape)}")
    to, at = (pattern.columns, pattern.rows) if transposed else (pattern.rows, pattern.columns)
    read = given.reshape((columns, width, given.shape[1]))[at]
    made = np.zeros((rows, height, given.shape[1]), np.result_type(held, given))
    np.add.at(made, to, np.einsum("bij,bjn->bin", held, read))
    return made.reshape((rows * height, given.shape[1]))


def sampled(pattern: Pattern, a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """a · bᵀ at the places of a pattern: a [m, n] and b [k, n] give values [blocks, *block].

    Raises:
        TensorError: Operands whose rows are not those of the pattern.
    """
    left, right = np.asarray(a), np.asarray(b)
    if (left.shape[0], right.shape[0]) != pattern.shape or left.shape[1:] != right.shape[1:]:
        raise TensorError(f"{list(left.shape)} and {list(right.shape)} are no rows and columns of {pattern}")
    (height, width), (rows, columns) = pattern.block, pattern.grid
    up = left.reshape((rows, height, -1))[pattern.rows]
    across = right.reshape((columns, width, -1))[pattern.columns]
    return np.asarray(np.einsum("bin,bjn->bij", up, across))
