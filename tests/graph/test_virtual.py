from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele import Engine, Graph
from abele.errors import TileMappingError
from abele.graph import Copy, Execute, Sequence
from abele.numerics import f32
from abele.poplibs import poplin, popops
from support.vertices import Double


def tiles_of(mapping) -> list[int]:
    return np.repeat(mapping.tile, mapping.length).tolist()


def vertex_tiles(graph: Graph) -> set[int]:
    return {t for cs in graph.compute_sets for group in cs.groups for t in group.tile.tolist()}


def variable_tiles(graph: Graph) -> set[int]:
    return {t for v in graph.variables for t in v.mapping.tile.tolist()}


def test_virtual__tile_range__translates_both_ways():
    graph = Graph("gc200")
    part = graph.virtual(100, 104)
    t = part.variable(f32, 4, "x")
    part.map(t, {0: [(0, 2)], 3: [(2, 4)]})
    assert tiles_of(t.mapping) == [100, 100, 103, 103]
    assert tiles_of(part.mapping_of(t)) == [0, 0, 3, 3]
    assert part.getTileMapping(t) == [[(0, 2)], [], [], [(2, 4)]]
    assert part.num_tiles == 4
    assert part.system.num_tiles == 4
    assert part.interval_map(t.variables).tile.tolist() == [0, 3]


def test_virtual__what_is_made_through_it__belongs_to_the_whole_graph():
    graph = Graph("gc200")
    part = graph.virtual(tiles=[7, 3])
    before = graph.variable(f32, 2, "before").map(0)
    x = part.variable(f32, (2, 3), "x", map=1)
    one = part.constant(f32, 3, 1.0)
    compute_set = part.compute_set("cs")
    with part.scope("layer"):
        y = graph.variable(f32, (2, 3), "y")
    part.map_rows(y, [0, 1])
    compute_set.vertices(Double, tile=[0, 1], x=x, y=y)
    compute_set.vertex(Double, tile=1, x=one, y=part.variable(f32, 3, "z", map=0))
    assert [v.name for v in graph.variables] == ["before", "x", "constant", "layer/y", "z"]
    assert part.variables is graph.variables
    assert graph.compute_sets == [compute_set]
    assert x.graph is graph
    assert part.top_level is graph.top_level is graph
    assert tiles_of(x.mapping) == [3] * 6
    assert tiles_of(one.mapping) == [7] * 3
    assert tiles_of(y.mapping) == [7] * 3 + [3] * 3
    assert [g.tile.tolist() for g in compute_set.groups] == [[7, 3], [3]]
    assert graph.num_elements == before.size + 6 + 3 + 6 + 3


def test_virtual__of_a_virtual_graph__numbers_once_more():
    graph = Graph("gc200")
    inner = graph.virtual(100, 200).virtual(tiles=[50, 10])
    t = inner.variable(f32, 2, map={0: [(0, 1)], 1: [(1, 2)]})
    assert tiles_of(t.mapping) == [150, 110]
    assert tiles_of(inner.parent.mapping_of(t)) == [50, 10]
    assert tiles_of(inner.mapping_of(t)) == [0, 1]


@given(st.lists(st.integers(0, 1471), min_size=1, max_size=20, unique=True), st.data())
def test_virtual__any_tiles__round_trip(tiles, data):
    graph = Graph("gc200")
    part = graph.virtual(tiles=tiles)
    placed = data.draw(st.lists(st.integers(0, len(tiles) - 1), min_size=1, max_size=10))
    t = part.variable(f32, len(placed))
    part.map_rows(t, placed)
    assert tiles_of(part.mapping_of(t)) == placed
    assert tiles_of(t.mapping) == [tiles[p] for p in placed]


def test_ipu__second_of_four__has_its_tiles_and_one_ipu():
    graph = Graph("bow-2000")
    second = graph.ipu(1)
    t = second.variable(f32, 1472 * 32, map="linear")
    assert (second.system.num_ipus, second.num_tiles) == (1, 1472)
    assert set(t.mapping.tile.tolist()) == set(range(1472, 2944))


def test_virtual_tiles_per_ipu__first_of_each__keeps_all_ipus():
    part = Graph("bow-2000").virtual_tiles_per_ipu(3)
    assert part.tiles.tolist() == [ipu * 1472 + t for ipu in range(4) for t in range(3)]
    assert (part.system.num_ipus, part.system.ipu.num_tiles) == (4, 3)


@pytest.mark.parametrize("first", [0, 700])
def test_library_functions__given_a_virtual_graph__stay_inside_its_tiles(first):
    graph = Graph("gc200")
    part = graph.virtual(first, first + 16)
    prog = Sequence()
    a = popops_input(part, (64, 96), "a")
    b = popops_input(part, (64, 96), "b")
    left = poplin.create_matmul_input_lhs(part, f32, (64, 96), (96, 32), name="left")
    right = poplin.create_matmul_input_rhs(part, f32, (64, 96), (96, 32), name="right")
    added = popops.add(part, a, b, prog)
    reduced = popops.reduce(part, added, [0], "ADD", prog)
    product = poplin.matmul(part, left, right, prog)
    inside = set(range(first, first + 16))
    assert vertex_tiles(graph) <= inside
    assert variable_tiles(graph) <= inside
    assert len(vertex_tiles(graph)) > 8
    rng = np.random.default_rng(0)
    values = {t: rng.standard_normal(t.shape).astype("f4") for t in (a, b, left, right)}
    engine = Engine(graph, prog, mode="tiles")
    for tensor, value in values.items():
        engine[tensor] = value
    engine.run()
    np.testing.assert_allclose(engine[added], values[a] + values[b], rtol=1e-6)
    np.testing.assert_allclose(engine[reduced], (values[a] + values[b]).sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(engine[product], values[left] @ values[right], rtol=1e-4, atol=1e-4)


def popops_input(graph, shape, name):
    return graph.variable(f32, shape, name, map="linear")


def test_engine__given_a_virtual_graph__runs_the_whole_graph():
    graph = Graph("gc200")
    part = graph.virtual(5, 7)
    x, y = part.variable(f32, 4, "x", map=0), part.variable(f32, 4, "y", map=1)
    compute_set = part.compute_set()
    compute_set.vertex(Double, tile=1, x=x, y=y)
    engine = Engine(part, Sequence(Execute(compute_set), Copy(y, x)))
    engine["x"] = np.arange(4, dtype="f4")
    engine.run()
    assert engine.graph is graph
    assert engine["x"].tolist() == [0, 2, 4, 6]


def test_set_tile_mapping__vertex_through_a_virtual_graph__is_translated():
    graph = Graph("gc200")
    part = graph.virtual(10, 12)
    x, y = part.variable(f32, 4, map=0), part.variable(f32, 4, map=0)
    compute_set = graph.compute_set()
    vertex = compute_set.vertex(Double, x=x, y=y)
    part.setTileMapping(vertex, 1)
    part.setTileMapping(x, 1)
    assert vertex.tile == 11
    assert tiles_of(x.mapping) == [11] * 4


def test_virtual__tile_outside__is_named_in_both_numberings():
    part = Graph("gc200").virtual(100, 164)
    with pytest.raises(
        TileMappingError, match=r"'w' is mapped to tile 64, but the virtual graph has 64 tiles"
    ) as caught:
        part.variable(f32, 4, "w", map=64)
    assert "it is tiles 100 to 163 of gc200" in str(caught.value)
    x = part.variable(f32, (1, 4), map=0)
    with pytest.raises(TileMappingError, match=r"vertex Double of compute set 'cs' is mapped to tile 70"):
        part.compute_set("cs").vertices(Double, tile=[70], x=x, y=x)
    with pytest.raises(TileMappingError, match=r"sync group 'io' is mapped to tile 99"):
        part.sync_group([99], "io")


def test_virtual__reading_a_mapping_outside__is_refused():
    graph = Graph("gc200")
    part = graph.virtual(100, 164)
    t = graph.variable(f32, 4, "w").map(7)
    with pytest.raises(TileMappingError, match=r"'w', tile 7.* lies on tile 7 of gc200, outside the virtual graph"):
        part.mapping_of(t)
    with pytest.raises(TileMappingError, match=r"lies on tile 7 of gc200"):
        part.interval_map(t.variables)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (lambda g: g.virtual(5, 5), "it would have no tile"),
        (lambda g: g.virtual(tiles=[3, 3]), "tile 3 is named twice"),
        (lambda g: g.virtual(0, 2000), "a virtual graph is mapped to tile 1999, but gc200 has 1,472 tiles"),
        (lambda g: g.virtual(0, 9).virtual(0, 10), "mapped to tile 9, but the virtual graph has 9 tiles"),
        (lambda g: g.ipu(1), "there is no IPU 1: gc200 has 1"),
        (lambda g: g.virtual_tiles_per_ipu(1473), "1,473 tiles of every IPU of gc200, which have 1472"),
    ],
)
def test_virtual__impossible_tiles__are_refused(action, text):
    with pytest.raises(TileMappingError, match=text):
        action(Graph("gc200"))
