"""Lists of intervals against their elements."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.graph.intervals import cut_alike


@given(
    one=st.lists(st.integers(1, 9), max_size=12),
    other=st.lists(st.integers(1, 9), max_size=12),
)
def test_cut_alike__two_lists_of_lengths__gives_parts_of_both(one, other):
    total = max(sum(one), sum(other))
    lists = [np.array([*n, total - sum(n)] if sum(n) < total else n, np.int64) for n in (one, other)]
    length, *parts = cut_alike(*lists)
    for lengths, part in zip(lists, parts, strict=True):
        elements = [(i, k) for i, n in enumerate(lengths) for k in range(n)]
        seen = zip(part.interval.tolist(), part.offset.tolist(), length.tolist(), strict=True)
        assert [(i, first + k) for i, first, n in seen for k in range(n)] == elements
    assert (length > 0).all()
