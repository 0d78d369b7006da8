"""Patterns of sparse matrices: which blocks of a matrix are held, in the order of compressed rows.

>>> p = Pattern.from_dense_mask([[1, 0, 0], [0, 1, 1]])
>>> p.num_blocks, p.row_starts.tolist(), p.columns.tolist()
(3, [0, 1, 3], [0, 1, 2])
"""

from abele.sparsity.makers import (
    banded_pattern,
    bigbird_pattern,
    causal_pattern,
    n_of_m_pattern,
    random_pattern,
    strided_pattern,
)
from abele.sparsity.pattern import Pattern, even_array, grid_of, union_of, whole_pair, whole_sizes
from abele.sparsity.stacks import split_stack, stack_patterns

__all__ = [
    "Pattern",
    "banded_pattern",
    "bigbird_pattern",
    "causal_pattern",
    "even_array",
    "grid_of",
    "n_of_m_pattern",
    "random_pattern",
    "split_stack",
    "stack_patterns",
    "strided_pattern",
    "union_of",
    "whole_pair",
    "whole_sizes",
]
