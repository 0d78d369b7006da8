"""Patterns of several matrices of one size as one: stacked along rows, first matrix on top.

>>> from abele.sparsity import Pattern
>>> p = Pattern.from_dense_mask([[1, 0], [0, 1]])
>>> stack_patterns([p, p]).shape, [q.num_blocks for q in split_stack(stack_patterns([p, p]), 2)]
((4, 2), [2, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from abele.errors import SparsePatternError
from abele.sparsity.pattern import Pattern, whole_sizes


def stack_patterns(patterns: Sequence[Pattern]) -> Pattern:
    """The pattern of matrices below each other; values are those of the first, then those of the second, and so on.

    Raises:
        SparsePatternError: None, or patterns of another shape or block.
    """
    return _stacked(tuple(patterns))


@lru_cache(64)
def _stacked(patterns: tuple[Pattern, ...]) -> Pattern:
    if not patterns:
        raise SparsePatternError("a stack has at least one pattern")
    first = patterns[0]
    for other in patterns[1:]:
        if (other.shape, other.block) != (first.shape, first.block):
            raise SparsePatternError(f"{other} and {first} do not stack: their shapes or blocks differ")
    if len(patterns) == 1:
        return first
    ends = np.cumsum([p.num_blocks for p in patterns])
    starts = [p.row_starts[:-1] + end - p.num_blocks for p, end in zip(patterns, ends, strict=True)]
    return Pattern(
        (len(patterns) * first.shape[0], first.shape[1]),
        first.block,
        np.concatenate([*starts, ends[-1:]]),
        np.concatenate([p.columns for p in patterns]),
    )


@lru_cache(64)
def split_stack(pattern: Pattern, count: int) -> tuple[Pattern, ...]:
    """The patterns of ``count`` matrices of one size in a stack; equal ones are one object.

    Raises:
        SparsePatternError: The block rows do not divide.
    """
    count = whole_sizes("a number of matrices", (count,))[0]
    if count < 1 or pattern.grid[0] % count:
        raise SparsePatternError(f"{pattern} is no stack of {count:,}: it has {pattern.grid[0]:,} block rows")
    rows, height = pattern.shape[0] // count, pattern.grid[0] // count
    known: dict[Pattern, Pattern] = {}
    found = []
    for first in range(0, pattern.grid[0], max(height, 1)):
        starts = pattern.row_starts[first : first + height + 1]
        columns = pattern.columns[starts[0] : starts[-1]]
        one = Pattern((rows, pattern.shape[1]), pattern.block, starts - starts[0], columns)
        found.append(known.setdefault(one, one))
    return tuple(found)
