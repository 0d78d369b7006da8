from __future__ import annotations

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler.cycles import worker_makespans


def list_schedule(slots: list[int], workers: int) -> int:
    loads = [0] * workers
    for s in slots:
        heapq.heapreplace(loads, loads[0] + s)
    return max(loads)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), max_size=60))
def test_worker_makespans__random_vertices__agrees_with_list_scheduling(vertices: list[tuple[int, int]]) -> None:
    tile = np.array([t for t, _ in vertices], dtype=np.int32)
    slots = np.array([s for _, s in vertices], dtype=np.int64)
    expected = [list_schedule([s for u, s in vertices if u == t], 6) for t in range(5)]
    assert worker_makespans(tile, slots, 5, 6).tolist() == expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 9))
def test_worker_makespans__one_vertex_more__is_never_faster(slots: list[int], extra: int) -> None:
    tile = np.zeros(len(slots) + 1, dtype=np.int32)
    fewer = worker_makespans(tile[1:], np.array(slots), 1, 6)[0]
    assert worker_makespans(tile, np.array([*slots, extra]), 1, 6)[0] >= fewer
