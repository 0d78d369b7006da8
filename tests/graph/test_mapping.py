from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import compile_program
from abele.errors import InvalidOptionError, TileMappingError
from abele.graph import Copy, Graph, Interval, Sequence, boxes
from abele.graph.mapping import TileMapping
from abele.numerics import f16, f32


def graph() -> Graph:
    return Graph("gc200")


def tiles_of(tensor) -> list[int]:
    mapping = tensor.mapping
    return np.repeat(mapping.tile, mapping.length).tolist()


def test_map__one_tile__holds_everything():
    t = graph().variable(f32, (3, 4)).map(7)
    assert tiles_of(t) == [7] * 12
    assert t.variables[0].mapping.is_complete


def test_map__again__the_last_one_wins():
    t = graph().variable(f32, 6).map(1)
    t[2:4].map(5)
    assert tiles_of(t) == [1, 1, 5, 5, 1, 1]


def test_map__intervals_by_tile__are_of_the_flattened_view():
    t = graph().variable(f32, (2, 3))
    t.T.map({0: [Interval(0, 3)], 9: [(3, 6)]})
    assert tiles_of(t.T) == [0, 0, 0, 9, 9, 9]
    assert tiles_of(t) == [0, 0, 9, 0, 9, 9]


def test_map_rows__rows__go_to_their_tiles():
    t = graph().variable(f32, (3, 2)).map_rows([4, 5, 4])
    assert tiles_of(t) == [4, 4, 5, 5, 4, 4]


@pytest.mark.parametrize(("dtype", "size"), [(f32, 100_000), (f16, 999), (f32, 3), (f32, 64)])
def test_map_linear__any_size__is_balanced_and_respects_grain(dtype, size):
    t = graph().variable(dtype, size).map_linear()
    mapping = t.mapping
    grain = 8 // dtype.bytes
    assert mapping.is_complete
    assert all(n % grain == 0 for n in mapping.length[:-1])
    assert mapping.length.max() - mapping.length.min() <= 2 * grain or len(mapping.length) == 1
    assert size * dtype.bytes < 128 or mapping.length.min() * dtype.bytes >= 128 - 8


def test_map_regions__boxes__each_goes_to_its_tile():
    g = graph()
    t = g.variable(f32, (4, 4))
    g.map_regions(boxes(t, [[0, 0], [0, 2], [2, 0], [2, 2]], [2, 2]), [0, 1, 2, 3])
    expected = np.kron([[0, 1], [2, 3]], np.ones((2, 2), dtype=int))
    np.testing.assert_array_equal(np.array(tiles_of(t)).reshape(4, 4), expected)


def test_first_unmapped__half_mapped_variable__is_found():
    t = graph().variable(f32, 10)
    t[:4].map(0)
    assert t.variables[0].mapping.first_unmapped() == (4, 10)


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(1, 8), st.integers(0, 5)), max_size=12))
def test_map__any_sequence_of_intervals__equals_painting_an_array(strokes):
    g = graph()
    t = g.variable(f32, 20)
    painted = np.full(20, -1)
    for begin, length, tile in strokes:
        end = min(20, begin + length)
        t[begin:end].map(tile)
        painted[begin:end] = tile
    assert tiles_of(t) == painted.tolist()


def test_interval_map__split__cuts_at_tile_and_variable_borders():
    g = graph()
    a = g.variable(f32, 6).map({0: [(0, 3)], 1: [(3, 6)]})
    g.variable(f32, 4).map(1)
    begin, length, tile, source = g.interval_map().split(np.array([1, 5]), np.array([4, 3]))
    assert a.size == 6
    assert begin.tolist() == [1, 3, 5, 6]
    assert length.tolist() == [2, 2, 1, 2]
    assert tile.tolist() == [0, 1, 1, 1]
    assert source.tolist() == [0, 0, 1, 1]


def test_map__tile_that_the_system_lacks__names_variable_tile_and_system():
    t = graph().variable(f32, 4, name="weights")
    with pytest.raises(TileMappingError, match=r"variable 'weights' is mapped to tile 99999, but .* has 1,472 tiles"):
        t.map(99_999)


def test_map__interval_outside__is_refused():
    t = graph().variable(f32, 4, name="w")
    with pytest.raises(TileMappingError, match="reaches outside its 4 elements"):
        t.map({0: [(0, 5)]})


def test_map_rows__wrong_number__is_refused():
    with pytest.raises(TileMappingError, match="2 tiles for the rows"):
        graph().variable(f32, (3, 2)).map_rows([0, 1])


def test_errors__location__is_the_users_line():
    t = graph().variable(f32, 4, name="w")
    with pytest.raises(TileMappingError) as caught:
        t.map(-1)
    assert "test_mapping.py:" in str(caught.value)


def test_locate__beside_an_empty_variable__finds_the_one_that_holds_the_address():
    graph = Graph("bow-2000")
    first = graph.variable("f32", 10, "first")
    graph.variable("f32", 0, "none")
    second = graph.variable("f32", 3, "second")
    assert graph.locate(9) == (first.variables[0], 9)
    assert graph.locate(10) == (second.variables[0], 0)
    assert first.map({0: [(0, 9)], 1: [(9, 10)]}).mapping.is_complete


def test_variable__with_a_mapping__is_placed_at_once():
    g = graph()
    linear = g.variable(f32, 100_000, "a", map="linear")
    reference = g.variable(f32, 100_000, "b").map_linear()
    assert tiles_of(linear) == tiles_of(reference)
    assert tiles_of(g.variable(f32, 3, map=5)) == [5] * 3
    assert tiles_of(g.variable(f32, 3, map={2: [(0, 1)], 4: [(1, 3)]})) == [2, 4, 4]


def test_variable__with_an_unknown_mapping__is_refused():
    with pytest.raises(InvalidOptionError, match=r"no mapping is called 'spiral'\n  try      \"linear\", a tile"):
        graph().variable(f32, 3, map="spiral")


def test_auto_map__compiling__spreads_what_is_mapped_nowhere_with_a_warning():
    g = Graph("gc200", auto_map=True)
    t = g.variable(f32, 100_000, "forgotten")
    half = g.variable(f32, 4, "half")
    half[:2].map(9)
    with pytest.warns(UserWarning, match="is not mapped; it was spread over all tiles") as told:
        compile_program(g, Sequence(Copy(t[:4], half)))
    assert [str(w.message).split("'")[1] for w in told] == ["forgotten", "half"]
    assert t.variables[0].mapping.is_complete
    assert half.variables[0].mapping.is_complete
    assert g.map_unmapped() == []


def test_map__two_tiles_for_one_element__names_element_and_tiles():
    t = graph().variable(f32, (2, 3), name="w")
    with pytest.raises(TileMappingError, match=r"element 2 of .*'w'.* is mapped to tile 0 and to tile 1") as caught:
        t.map({0: [(0, 4)], 1: [(2, 6)]})
    assert "must not overlap" in str(caught.value)
    with pytest.raises(TileMappingError, match="is mapped to tile 0 and to tile 1"):
        t.T.map({0: [(0, 4)], 1: [(2, 6)]})
    with pytest.raises(TileMappingError, match=r"element 0 of .*'w'.* is mapped to tile 3 and to tile 4"):
        t[0].broadcast_to((2, 3)).map_rows([3, 4])


def test_map__overlap_on_one_tile__is_one_interval():
    t = graph().variable(f32, 6).map({3: [(0, 5), (1, 2), (3, 6)]})
    assert tiles_of(t) == [3] * 6
    assert tiles_of(graph().variable(f32, 2).broadcast(3, 0).map(7)) == [7] * 6


def test_tile_mapping__of_no_elements__has_no_pieces():
    mapping = TileMapping.unmapped(0)
    assert len(mapping.begin) == len(mapping.tile) == len(mapping.length) == 0
    assert mapping.is_complete


def test_tile_mapping__overlaid_with_nothing__is_itself():
    mapping = TileMapping.unmapped(8)
    assert mapping.overlaid(np.array([3]), np.array([0]), np.array([1], np.int32)) is mapping


def test_tile_mapping__shifted__leaves_unmapped_elements_unmapped():
    mapping = TileMapping.unmapped(8).overlaid(np.array([2]), np.array([3]), np.array([4], np.int32)).shifted(10)
    assert np.repeat(mapping.tile, mapping.length).tolist() == [-1, -1, 14, 14, 14, -1, -1, -1]
