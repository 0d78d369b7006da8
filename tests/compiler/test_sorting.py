from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler.sorting import sort_order


@given(st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**62)), max_size=40))
def test_sort_order__any_keys__is_the_stable_order(keys: list[int]) -> None:
    array = np.array(keys, dtype=np.int64)
    np.testing.assert_array_equal(sort_order(array), np.argsort(array, kind="stable"))
