"""Curves of few points keep their peaks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.viewer.answers.curves import maxima


@given(st.lists(st.integers(0, 10**12), max_size=200), st.integers(1, 50))
def test_maxima__any_values_and_points__each_is_the_largest_of_its_part(values: list[int], points: int) -> None:
    array = np.array(values, np.int64)
    found = maxima(array, points)
    assert len(found) == min(len(values), points)
    if len(values) > points:
        parts = [values[i * len(values) // points : (i + 1) * len(values) // points] for i in range(points)]
        assert found.tolist() == [max(part) for part in parts]
