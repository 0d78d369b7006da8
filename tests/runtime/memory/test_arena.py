"""Interval sets against Python's sets, and the arena that they speak about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.graph import Graph, concat
from abele.graph.elements import elements_of
from abele.graph.interval_set import IntervalSet
from abele.runtime.memory.arena import ALIGNMENT, Arena, address_of

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), max_size=12)


def _both(items: list[tuple[int, int]]) -> tuple[IntervalSet, set[int]]:
    table = np.array(items, dtype=np.int64).reshape(-1, 2)
    return IntervalSet.of(table[:, 0], table[:, 1]), {x for b, n in items for x in range(b, b + n)}


def _members(elements: IntervalSet) -> set[int]:
    return {x for b, e in zip(elements.begin, elements.end, strict=True) for x in range(b, e)}


@given(first=pairs, second=pairs)
def test_interval_set__operations__are_those_of_sets(first, second):
    (a, set_a), (b, set_b) = _both(first), _both(second)
    assert _members(a) == set_a
    assert _members(a | b) == set_a | set_b
    assert _members(a & b) == set_a & set_b
    assert _members(a - b) == set_a - set_b
    assert a.meets(b) == bool(set_a & set_b)
    assert bool(a) == bool(set_a)
    assert a.size == len(set_a)


@given(first=pairs)
def test_interval_set__intervals__neither_overlap_nor_touch(first):
    elements = _both(first)[0]
    assert (elements.begin[1:] > elements.end[:-1]).all()


def test_elements_of__permuted_whole_and_part__are_the_same_as_listed():
    graph = Graph("bow-2000")
    x = graph.variable("f32", (3, 4, 5), "x")
    for view in (x, x.transpose(2, 0, 1), x.reverse(1), x[1:, ::2], x[:, 1], x[0, 0, 0], x.broadcast_to((2, 3, 4, 5))):
        listed = IntervalSet.of(*view.intervals())
        found = elements_of(view)
        np.testing.assert_array_equal(found.begin, listed.begin)
        np.testing.assert_array_equal(found.end, listed.end)


def test_arena__variables__are_aligned_apart_and_found_again():
    graph = Graph("bow-2000")
    shapes = {"a": (3,), "none": (0,), "b": (5, 2), "c": (1,)}
    for name, shape in shapes.items():
        graph.variable("f16", shape, name)
    arena = Arena(graph.variables)
    for variable in (v for v in graph.variables if v.size):
        assert arena.address(variable) % ALIGNMENT == 0
        assert address_of(arena.array(variable)) == arena.address(variable)
    base = graph.variables[0].base
    everything = IntervalSet.of(np.array([base + 1]), np.array([12]))
    assert [v.name for v in arena.variables_in(everything)] == ["a", "b"]
    pieces = arena.pieces(np.array([base + 1]), np.array([12]))
    assert list(pieces.bytes) == [4, 20]
    assert list(pieces.source) == [0, 0]


VIEWS = {
    "whole": lambda x: x,
    "permuted": lambda x: x.transpose(2, 0, 1),
    "reversed": lambda x: x.reverse(1),
    "part": lambda x: x[1:, ::2, 1:4],
    "split and joined": lambda x: x.reshape(3, 2, 2, 5).transpose(1, 0, 3, 2).reshape(6, 10),
    "one element": lambda x: x[2, 3, 4],
    "nothing": lambda x: x[:, 2:2],
    "two pieces": lambda x: concat([x[2], x[0]], 0),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_arena__views_read_and_written__are_the_elements_that_they_list(view):
    graph = Graph("bow-2000")
    x = graph.variable("f32", (3, 4, 5), "x")
    arena, shown = Arena(graph.variables), view(x)
    held = np.arange(60, dtype=np.float32)
    arena.write(x, held.reshape(x.shape))
    np.testing.assert_array_equal(arena.read(shown), held[shown.addresses()])
    arena.write(shown, -held[: shown.size].reshape(shown.shape))
    held[shown.addresses().reshape(-1)] = -held[: shown.size]
    np.testing.assert_array_equal(arena.read(x).reshape(-1), held)
    arena.write(shown, 7.0)
    assert (arena.read(shown) == 7).all()


def test_initialise__permuted_view__starts_the_variable_behind_it():
    graph = Graph("bow-2000")
    x, y = graph.variable("f32", (3, 4), "x"), graph.variable("f32", (0, 4), "y")
    graph.initialise(x.T, np.arange(12).reshape(4, 3))
    graph.initialise(y, 2.0)
    arena = Arena(graph.variables)
    arena.load()
    np.testing.assert_array_equal(arena.read(x), np.arange(12).reshape(4, 3).T)
    graph.initialise(x.T, 2.5)
    arena.load()
    assert (arena.read(x) == 2.5).all()
