"""Regions and placing, beside NumPy arrays of addresses and of tiles; random views of every kind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from abele.errors import TensorError
from abele.graph import Graph, Regions, Tensor, boxes, gathered, reorder_to_simplify, rows, whole
from abele.graph.interval_set import IntervalSet
from abele.graph.regions import wholes
from abele.numerics import f32
from graph.support_views import chains
from support.examples import examples


def elements(regions: Regions, number: int) -> list[int]:
    """Addresses of one region, in order."""
    low, high = regions.ptr[number : number + 2]
    runs = zip(regions.begin[low:high].tolist(), regions.length[low:high].tolist(), strict=True)
    return [address for begin, length in runs for address in range(begin, begin + length)]


def tiles_of(tensor: Tensor) -> list[int]:
    """Tile of every element of a flattened view."""
    mapping = tensor.mapping
    return np.repeat(mapping.tile, mapping.length).tolist()


@examples(12)
@given(chains(5), st.data())
def test_boxes__of_any_view__show_what_numpy_cuts_out(pair, data):
    tensor, array = pair
    start = [data.draw(st.integers(0, n)) for n in array.shape]
    size = [data.draw(st.integers(0, n - s)) for n, s in zip(array.shape, start, strict=True)]
    found = boxes(tensor, [start, [0] * array.ndim], [size, array.shape])
    cut = array[tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))]
    assert elements(found, 0) == cut.reshape(-1).tolist()
    assert elements(found, 1) == array.reshape(-1).tolist()
    assert found.sizes.tolist() == [cut.size, array.size]


@examples(8)
@given(chains(5))
def test_regions__of_rows_taken_and_joined__are_those_of_the_rows(pair):
    tensor, array = pair
    table = array.reshape(len(array), -1) if array.ndim else array.reshape(1, -1)
    found = rows(tensor) if array.ndim else whole(tensor)
    assert [elements(found, r) for r in range(found.num)] == table.tolist()
    back = found.take(np.arange(found.num)[::-1])
    both = Regions.concat([back, found])
    assert [elements(both, r) for r in range(both.num)] == [*table.tolist()[::-1], *table.tolist()]
    assert elements(whole(tensor), 0) == elements(wholes([tensor, tensor]), 1) == array.reshape(-1).tolist()
    assert both.row.tolist() == np.repeat(np.arange(both.num), both.counts).tolist()


@examples(8)
@given(chains(5), st.data())
def test_gathered__ranges_of_any_view__are_those_of_the_flat_array(pair, data):
    tensor, array = pair
    flat = array.reshape(-1)
    cuts = sorted(data.draw(st.lists(st.integers(0, flat.size), min_size=2, max_size=6)))
    ranges = [(a, b) for a, b in itertools.pairwise(cuts) if b > a]
    order = data.draw(st.permutations(ranges))
    position, length = (np.array(x, dtype=np.int64) for x in ([a for a, _ in order], [b - a for a, b in order]))
    found = gathered(tensor, position, length)
    np.testing.assert_array_equal(found.addresses(), [e for a, b in order for e in flat[a:b]])


@examples(8)
@given(chains(5), st.data())
def test_map__intervals_of_any_view_without_repeats__paint_the_elements(pair, data):
    tensor, array = pair
    assume(not tensor.contains_aliases)
    cuts = sorted({0, array.size, *data.draw(st.lists(st.integers(0, array.size), max_size=4))})
    pieces = list(itertools.pairwise(cuts))
    tiles = [data.draw(st.integers(0, 7)) for _ in pieces]
    mapping: dict[int, list[tuple[int, int]]] = {}
    for tile, piece in zip(tiles, pieces, strict=True):
        mapping.setdefault(tile, []).append(piece)
    tensor.map(mapping)
    assert tiles_of(tensor) == [t for t, (a, b) in zip(tiles, pieces, strict=True) for _ in range(b - a)]
    assert tiles_of(tensor.flatten()[::-1]) == tiles_of(tensor)[::-1]


@examples(8)
@given(chains(5))
def test_reorder_to_simplify__any_view__keeps_pairs_and_never_adds_regions(pair):
    tensor, array = pair
    other = tensor.graph.variable(f32, array.shape, "other")
    simple, (moved,) = reorder_to_simplify(tensor, [other])
    before = {(int(a), int(b)) for a, b in zip(array.reshape(-1), other.addresses().reshape(-1), strict=True)}
    after = {(int(a), int(b)) for a, b in zip(simple.addresses(), moved.addresses(), strict=True)}
    assert before == after
    assert len(simple.intervals()[0]) <= max(1, len(tensor.intervals()[0]))


@examples(8)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=8), st.integers(0, 60), st.integers(1, 9))
def test_interval_set__any_intervals__meets_what_a_set_of_numbers_meets(given_intervals, low, length):
    begin, size = (
        (np.array(x, dtype=np.int64) for x in zip(*given_intervals, strict=True))
        if given_intervals
        else (
            np.empty(0, np.int64),
            np.empty(0, np.int64),
        )
    )
    held = {e for b, n in given_intervals for e in range(b, b + n)}
    found, other = IntervalSet.of(begin, size), IntervalSet.of(np.array([low]), np.array([length]))
    window = set(range(low, low + length))
    assert found.meets(other) == bool(held & window)
    assert (found & other).size == len(held & window)
    assert (found | other).size == len(held | window)
    assert (found - other).size == len(held - window)
    assert bool(found) == bool(held)
    assert np.flatnonzero(found.contains(np.arange(80))).tolist() == sorted(held)


def test_boxes__outside_the_view__is_refused_with_the_box():
    t = Graph("gc200").variable(f32, (4, 6), "t")
    with pytest.raises(TensorError, match=r"outside|reaches"):
        boxes(t, [[2, 0]], [3, 6])


def test_boxes__none__are_no_regions():
    t = Graph("gc200").variable(f32, (4, 6), "t")
    found = boxes(t, np.empty((0, 2), np.int64), (1, 6))
    assert (found.num, found.sizes.tolist(), found.row.tolist()) == (0, [], [])
