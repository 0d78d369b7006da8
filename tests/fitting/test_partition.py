"""Cuts: the dynamic programme against all cuts that there are."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.fitting.partition import NEVER, partition
from support.examples import examples


def every(stages, tables, ends):
    """The least cost of what costs most, over all cuts."""
    count, best = len(ends), None
    for cuts in combinations(range(1, count), stages - 1):
        bounds = list(zip((0, *cuts), (*cuts, count), strict=True))
        costs = [int(ends[cuts[0], cuts[-1]])]
        inner = [int(tables[s][begin, end]) for s, (begin, end) in enumerate(bounds) if 0 < s < stages - 1]
        costs += [min(cost, NEVER) for cost in inner]
        if max(costs) < NEVER and (best is None or max(costs) < best):
            best = max(costs)
    return best


def slowest_of(found, stages, tables, ends):
    count = len(ends)
    bounds = list(zip((0, *found.cuts), (*found.cuts, count), strict=True))
    inner = [int(tables[s][b, e]) for s, (b, e) in enumerate(bounds) if 0 < s < stages - 1]
    return max([int(ends[found.cuts[0], found.cuts[-1]]), *inner])


@examples(30)
@given(st.data())
def test_partition__any_costs__as_good_as_all_cuts(data):
    count = data.draw(st.integers(2, 8), label="segments")
    stages = data.draw(st.integers(2, min(count, 5)), label="stages")
    seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
    rng = np.random.default_rng(seed)
    refused = data.draw(st.floats(0, 0.8), label="refused")

    def table(shape):
        made = rng.integers(1, 50, shape)
        return np.where(rng.random(shape) < refused, NEVER, made)

    tables = {
        s: np.where(np.triu(np.ones((count + 1, count + 1)), 1) > 0, table((count + 1,) * 2), NEVER)
        for s in range(stages)
    }
    ends = table((count, count))
    found = partition(stages, lambda s: tables[s], ends)
    best = every(stages, tables, ends)
    assert (found is None) == (best is None)
    if found is not None:
        assert found.slowest == best
        assert len(found.cuts) == stages - 1
        assert list(found.cuts) == sorted(set(found.cuts))
        assert slowest_of(found, stages, tables, ends) == best


def test_partition__equal_segments__equal_stages():
    work = np.arange(9)
    inner = np.where(np.triu(np.ones((9, 9)), 1) > 0, work[None, :] - work[:, None], NEVER)
    ends = np.maximum(work[:8, None], 8 - work[None, :8])
    found = partition(4, lambda _: inner, ends)
    assert found is not None
    assert found.cuts == (2, 4, 6)
    assert found.slowest == 2


@pytest.mark.parametrize("stages", [2, 3])
def test_partition__nothing_fits__none(stages):
    inner, ends = np.full((5, 5), NEVER), np.full((4, 4), NEVER)
    assert partition(stages, lambda _: inner, ends) is None
