"""Stacks of patterns: what they hold, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import SparsePatternError
from abele.sparsity import Pattern, random_pattern, split_stack, stack_patterns
from support.examples import examples


@given(st.lists(st.tuples(st.sampled_from((0.0, 0.3, 1.0)), st.integers(0, 9)), min_size=1, max_size=4))
@examples(8)
def test_stack_patterns__any_patterns__are_dense_matrices_below_each_other_and_come_apart_again(
    drawn: list[tuple[float, int]],
) -> None:
    patterns = [random_pattern((8, 12), density, (2, 4), seed=seed) for density, seed in drawn]
    whole = stack_patterns(patterns)
    np.testing.assert_array_equal(whole.mask, np.concatenate([p.mask for p in patterns]))
    assert list(split_stack(whole, len(patterns))) == patterns


def test_split_stack__equal_patterns__are_one_object() -> None:
    one = random_pattern((8, 8), 0.5, (4, 4))
    first, second = split_stack(stack_patterns([one, one]), 2)
    assert first is second


def test_stack_patterns__what_does_not_stack__is_an_error() -> None:
    with pytest.raises(SparsePatternError, match="at least one pattern"):
        stack_patterns([])
    with pytest.raises(SparsePatternError, match="do not stack"):
        stack_patterns([random_pattern((8, 8), 0.5), random_pattern((8, 4), 0.5)])
    with pytest.raises(SparsePatternError, match="is no stack of 3"):
        split_stack(Pattern.from_dense_mask(np.ones((4, 4))), 3)
