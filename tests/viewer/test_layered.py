"""Layered drawings: nothing lies on anything else, edges point down, and rows are as near as they can be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.viewer.answers.layered import _crossings, layered, pooled, rows_of
from support.examples import examples


@st.composite
def graphs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    num = draw(st.integers(1, 24))
    wide = draw(st.lists(st.floats(10, 200), min_size=num, max_size=num))
    tall = draw(st.lists(st.floats(10, 90), min_size=num, max_size=num))
    node = st.integers(0, num - 1)
    edges = draw(st.lists(st.tuples(node, node).filter(lambda e: e[0] != e[1]), max_size=60, unique=True))
    source, target = (np.array([e[k] for e in edges], dtype=np.int64) for k in (0, 1))
    return np.array(wide), np.array(tall), source, target


@given(graphs())
@examples(30)
def test_layered__any_graph__boxes_are_apart_and_edges_point_down(graph) -> None:
    wide, tall, source, target = graph
    drawing = layered(*graph)
    x, y = drawing.x, drawing.y
    for a in range(len(wide)):
        for b in range(a):
            apart_x = x[a] + wide[a] <= x[b] + 1e-6 or x[b] + wide[b] <= x[a] + 1e-6
            apart_y = y[a] + tall[a] <= y[b] + 1e-6 or y[b] + tall[b] <= y[a] + 1e-6
            assert apart_x or apart_y, (a, b)
    for a, b, bends in zip(source.tolist(), target.tolist(), drawing.bends, strict=True):
        if b > a:
            line = [y[a] + tall[a], *(p[1] for p in bends), y[b]]
            assert all(low < high for low, high in pairwise(line)), (a, b, line)
        else:
            assert bends == []
    assert x.min() >= -1e-6
    assert (x + wide).max() <= drawing.width + 1e-6
    assert (y + tall).max() <= drawing.height + 1e-6


def test_layered__bends__keep_clear_of_the_boxes_that_they_pass() -> None:
    wide, tall = np.full(4, 100.0), np.full(4, 30.0)
    drawing = layered(wide, tall, np.array([0, 1, 2, 0]), np.array([1, 2, 3, 3]))
    for bend, passed in zip(drawing.bends[3], (1, 2), strict=True):
        assert not drawing.x[passed] < bend[0] < drawing.x[passed] + 100


def test_layered__no_node__is_an_empty_drawing() -> None:
    none = np.zeros(0, dtype=np.int64)
    drawing = layered(np.zeros(0), np.zeros(0), none, none)
    assert (drawing.width, drawing.height, len(drawing.x)) == (0, 0, 0)


def test_rows__chain_with_a_late_source__stands_directly_above_its_reader() -> None:
    # 0 → 1 → 2 → 4 and 3 → 4
    assert rows_of(5, np.array([0, 1, 2, 3]), np.array([1, 2, 4, 4])).tolist() == [0, 1, 2, 2, 3]


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9))
def test_pooled__any_wishes__is_the_nearest_row_that_does_not_descend(wanted: list[float]) -> None:
    # The nearest row has a closed form: the greatest over beginnings of the least mean over ends.
    num = len(wanted)
    expected = [
        max(min(np.mean(wanted[a : b + 1]) for b in range(i, num)) for a in range(i + 1)) for i in range(num)
    ]  # fmt: skip
    assert pooled(np.array(wanted)) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20, unique=True), st.permutations(range(6)))
def test_crossings__two_rows__are_the_pairs_that_cross(edges: list[tuple[int, int]], order: list[int]) -> None:
    lower = [[] for _ in range(12)]  # type: list[list[int]]
    for a, b in edges:
        lower[a].append(6 + b)
    place = {6 + b: at for at, b in enumerate(order)}
    ends = [(a, place[6 + b]) for a, b in edges]
    crossing = sum((p[0] - q[0]) * (p[1] - q[1]) < 0 for i, p in enumerate(ends) for q in ends[:i])
    assert _crossings([list(range(6)), [6 + b for b in order]], lower) == crossing
