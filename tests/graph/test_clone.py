from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TileMappingError
from abele.graph import Graph, Interval, concat
from abele.graph.clone import TensorCloneMethod
from abele.numerics import f16, f32
from graph.support_views import chains

KEEPS_ALIASES = [
    TensorCloneMethod.PRESERVE_ORDER_AND_ALIASES,
    TensorCloneMethod.GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES,
]


def tiles_of(tensor) -> list[int]:
    mapping = tensor.mapping
    return np.repeat(mapping.tile, mapping.length).tolist()


def scatter(graph, data) -> None:
    """Put every variable of a graph on random tiles, some elements nowhere."""
    for variable in graph.variables:
        at = 0
        while at < variable.size:
            n, tile = data.draw(st.integers(1, 40)), data.draw(st.integers(-1, 3))
            if tile >= 0:
                graph.whole(variable).flatten()[at : at + n].map(tile)
            at += n


@given(chains(), st.sampled_from(list(TensorCloneMethod)), st.data())
def test_clone__any_view_and_method__has_its_shape_and_mapping(case, method, data):
    tensor, array = case
    scatter(tensor.graph, data)
    clone = tensor.clone(method=method)
    assert clone.shape == tensor.shape
    assert tiles_of(clone) == tiles_of(tensor)
    assert clone.addresses().min() >= array.max() + 1
    assert not clone.overlaps(tensor)


@given(chains(), st.data())
def test_clone__order_kept__is_the_order_of_the_old_addresses(case, data):
    tensor, array = case
    scatter(tensor.graph, data)
    clone = tensor.clone(method=TensorCloneMethod.PRESERVE_ORDER_AND_ALIASES).addresses()
    expected = np.searchsorted(np.unique(array), array)
    np.testing.assert_array_equal(clone - clone.min(), expected)


@given(chains(), st.data())
def test_clone__gathered__holds_each_tile_in_one_piece_in_the_old_order(case, data):
    tensor, array = case
    scatter(tensor.graph, data)
    clone = tensor.clone(method=TensorCloneMethod.GATHER_AND_PRESERVE_TILE_ORDER_AND_ALIASES).addresses()
    addresses, first = np.unique(array, return_index=True)
    tiles = np.array(tiles_of(tensor))[first]
    order = np.argsort(tiles, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    np.testing.assert_array_equal(clone - clone.min(), place[np.searchsorted(addresses, array)])


@given(chains(), st.data())
def test_clone__default__can_be_written(case, data):
    tensor, _ = case
    assert tensor.clone().writable
    new = tensor.clone(method=TensorCloneMethod.CREATE_NEW_ORDER)
    assert new.is_contiguous


def test_clone__of_a_transposed_matrix__keeps_one_strided_block():
    t = Graph("gc200").variable(f32, (4, 6), "w").map_rows([0, 1, 2, 3])
    clone = t.T.clone(f16, "v")
    assert (clone.dtype, clone.name) == (f16, "v")
    assert clone.strided().factors == (((6, 1),), ((4, 6),))
    assert clone.T.is_contiguous


@pytest.mark.parametrize("method", KEEPS_ALIASES)
def test_clone__of_a_broadcast__stores_an_element_once(method):
    t = Graph("gc200").variable(f32, (4, 1), "w").map(3)
    clone = t.broadcast_to((4, 5)).clone(method=method)
    assert clone.contains_aliases
    assert clone.variables[0].size == 4


def test_clone__through_a_virtual_graph__stays_inside():
    graph = Graph("gc200")
    part = graph.virtual(8, 16)
    t = part.variable(f32, 4, "w", map=3)
    assert tiles_of(part.clone(t)) == [11] * 4
    with pytest.raises(TileMappingError, match="lies on tile 2 of gc200"):
        part.clone(graph.variable(f32, 4).map(2))


def test_clone_n__three__are_mapped_alike():
    graph = Graph("gc200")
    t = graph.variable(f32, (2, 3), "w").map_rows([5, 6])
    clones = graph.clone_n(t, 3)
    assert clones.shape == (3, 2, 3)
    assert tiles_of(clones) == tiles_of(t) * 3
    assert clones.writable


@given(chains(), st.booleans(), st.data())
def test_sorted_contiguous_regions__any_view__cover_the_intervals_in_memory_order(case, remove, data):
    from abele.graph.gather import sorted_contiguous_regions

    tensor, array = case
    flat = array.reshape(-1)
    cuts = sorted(data.draw(st.lists(st.integers(0, flat.size), max_size=8)))
    intervals = [Interval(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    given_ = [i for a, b in intervals for i in range(a, b)]
    groups = sorted_contiguous_regions(tensor, intervals, remove)
    shown = [flat[a:b] for group in groups for a, b in group]
    together = np.concatenate(shown) if shown else np.empty(0, int)
    if remove:
        assert together.tolist() == np.unique(flat[given_]).tolist()
    else:
        assert sorted(i for g in groups for a, b in g for i in range(a, b)) == sorted(given_)
        assert all(x[0] <= y[0] for x, y in itertools.pairwise(shown))
    for group in groups:
        inside = np.concatenate([flat[a:b] for a, b in group])
        assert (np.diff(inside) == 1).all()
    if remove:
        ends = [(flat[g[0][0]], flat[g[-1][1] - 1]) for g in groups]
        owner = {v.base for v in tensor.variables}
        assert all(y[0] > x[1] + 1 or y[0] in owner for x, y in itertools.pairwise(ends))


def test_sorted_contiguous_regions__lists_a_tile__are_grouped_each():
    from abele.graph.gather import sorted_contiguous_regions

    t = Graph("gc200").variable(f32, (2, 4)).T
    found = sorted_contiguous_regions(t, [[(0, 4)], [(4, 8)], []])
    assert found == [[[(0, 1), (2, 3)], [(1, 2), (3, 4)]], [[(4, 5), (6, 7)], [(5, 6), (7, 8)]], []]


@given(chains())
def test_reorder_to_simplify__any_view__pairs_elements_as_before_in_fewest_regions(case):
    from abele.graph.gather import reorder_to_simplify

    tensor, array = case
    other = tensor.graph.variable(f32, array.size)
    simple, (paired,) = reorder_to_simplify(tensor, [other])
    pairs = sorted(zip(array.reshape(-1).tolist(), other.addresses().tolist(), strict=True))
    assert sorted(zip(simple.addresses().tolist(), paired.addresses().tolist(), strict=True)) == pairs
    if not tensor.contains_aliases:
        begin, _ = simple.intervals()
        assert len(begin) == 1 + int((np.diff(np.unique(array)) != 1).sum())


def test_gather__adjacent_variables__stay_apart():
    graph = Graph("gc200")
    a, b = graph.variable(f32, 3, "a"), graph.variable(f32, 3, "b")
    joined = concat([a, b])
    assert [(v.name, tuple(i)) for v, i in joined.var_regions()] == [("a", (0, 3)), ("b", (0, 3))]
    assert joined.contiguous_regions() == [(0, 3), (3, 6)]
    joined.map(4)
    assert b.variables[0].mapping.is_complete
