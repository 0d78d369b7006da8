"""Depths and parents, against counting one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.trace.trace import nested


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Depth, begin and end of properly nested events, in the order in which they end; times may be equal."""
    found: list[tuple[int, int, int]] = []
    clock = 0

    def event(depth: int) -> None:
        nonlocal clock
        begin = clock
        clock += draw(st.integers(1, 3))
        for _ in range(draw(st.integers(0, 3 if depth < 4 else 0))):
            event(depth + 1)
            clock += draw(st.integers(0, 2))
        clock += draw(st.integers(0, 2))
        found.append((depth, begin, clock))

    for _ in range(draw(st.integers(0, 4))):
        event(0)
    return found


@given(st.lists(trees(), max_size=3), st.randoms())
def test_nested__trees_on_several_threads__have_their_depths(parts: list[list[tuple[int, int, int]]], drawn) -> None:
    rows = [(thread, *event) for thread, events in enumerate(parts) for event in events]
    order = (
        sorted(range(len(rows)), key=lambda k: (rows[k][3], -rows[k][1])) if drawn.random() < 0.5 else range(len(rows))
    )
    rows = [rows[k] for k in order]
    thread, depth, begin, end = (np.array([row[k] for row in rows], np.int64) for k in range(4))
    found = nested(thread.astype(np.int32), begin, end - begin, len(parts))
    assert found.num_crossing == 0
    assert sorted(found.order.tolist()) == list(range(len(rows)))
    assert found.depth.tolist() == depth[found.order].tolist()
    assert (np.diff(thread[found.order]) >= 0).all()
    b, e, t = begin[found.order], end[found.order], thread[found.order]
    for k, parent in enumerate(found.parent.tolist()):
        around = [j for j in range(k) if t[j] == t[k] and b[j] <= b[k] and e[k] <= e[j] and e[j] > b[k]]
        assert parent == (around[-1] if around else -1)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 8)), max_size=40))
def test_nested__any_events__do_not_overlap_on_a_thread_and_depth(rows: list[tuple[int, int, int]]) -> None:
    thread, begin, duration = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    found = nested(thread.astype(np.int32), begin, duration, 3)
    t, b, d = thread[found.order], begin[found.order], duration[found.order]
    lanes: dict[tuple[int, int], tuple[int, int]] = {}
    for k in range(len(rows)):
        key = (int(t[k]), int(found.depth[k]))
        if key in lanes:
            start, end = lanes[key]
            assert b[k] >= end, "what began before has ended"
            assert b[k] > start or d[k] > 0 or end > start
        lanes[key] = (int(b[k]), int(b[k] + d[k]))
        parent = int(found.parent[k])
        if parent >= 0:
            assert found.depth[parent] == found.depth[k] - 1
            assert t[parent] == t[k]
            assert b[parent] <= b[k]
            assert b[parent] + d[parent] >= b[k] + d[k]
    assert [int(x) for x in found.first] == [int((thread < k).sum()) for k in range(4)]
