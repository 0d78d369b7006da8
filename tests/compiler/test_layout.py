from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Layout, collect_writes, compile_program, field_uses
from abele.compiler.access import compute_set_access, node_access
from abele.graph import Copy, Graph, Sequence, concat
from abele.graph.intervals import expand
from abele.numerics import f32
from compiler.support import Move, small_system

Tiles = st.lists(st.integers(0, 3), min_size=12, max_size=12)


def mapped_graph(data: st.DataObject) -> Graph:
    graph = Graph(small_system(4))
    for name in "xy":
        t = graph.variable(f32, (4, 6), name)
        for i, tile in enumerate(data.draw(Tiles)):
            t.flatten()[2 * i : 2 * i + 2].map(tile)
    return graph


def layout_of(graph: Graph) -> Layout:
    return Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)


def homes(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Tile, and order within its share of the variable, of every element; by definition."""
    tile = np.concatenate([v.mapping.tiles_of(np.arange(v.size)) for v in graph.variables])
    variable = np.repeat(np.arange(len(graph.variables)), [v.size for v in graph.variables])
    order = np.array([((tile[:e] == tile[e]) & (variable[:e] == variable[e])).sum() for e in range(len(tile))])
    return tile, order


@given(st.data())
def test_layout__random_mapping__packs_each_share_in_order_of_address(data: st.DataObject) -> None:
    graph = mapped_graph(data)
    layout = layout_of(graph)
    pieces = layout.cut(np.arange(48), np.ones(48, dtype=np.int64))
    tile, order = homes(graph)
    np.testing.assert_array_equal(pieces.tile, tile)
    np.testing.assert_array_equal(pieces.begin - pieces.share, order)
    assert sorted(pieces.begin.tolist()) == list(range(48))


@given(st.data(), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), min_size=1, max_size=6))
def test_layout__cut_intervals__keep_every_element_in_order(data: st.DataObject, intervals: list) -> None:
    graph = mapped_graph(data)
    layout = layout_of(graph)
    begin, length = (np.array(c, dtype=np.int64) for c in zip(*intervals, strict=True))
    pieces = layout.cut(begin, length)
    single = layout.cut(expand(begin, length), np.ones(int(length.sum()), dtype=np.int64))
    np.testing.assert_array_equal(expand(pieces.begin, pieces.length), single.begin)
    np.testing.assert_array_equal(np.repeat(pieces.tile, pieces.length), single.tile)
    np.testing.assert_array_equal(np.repeat(pieces.source, pieces.length), np.repeat(np.arange(len(begin)), length))


@given(st.data())
def test_access__random_vertices__finds_what_is_read_written_and_covered(data: st.DataObject) -> None:
    graph = Graph(small_system(4))
    tensors = [graph.variable(f32, (6,), n).map(0) for n in "abc"]
    together = concat(tensors)
    cs = graph.compute_set()
    cut = data.draw(st.integers(1, 17))
    ends = sorted({cut, data.draw(st.integers(1, 18))})
    written: set[int] = set()
    start = data.draw(st.integers(0, 5))
    for end in ends:
        if end > start:
            cs.vertex(Move, tile=0, x=graph_input(graph), y=together[start:end])
            written |= set(range(start, end))
            start = end
    uses = field_uses(cs.groups)
    found = compute_set_access(uses, collect_writes(uses), layout_of(graph)) if written else None
    if found is None:
        return
    expected = {e // 6 for e in written}
    assert set(found.writes.tolist()) == expected
    assert set(found.complete.tolist()) == {v for v in expected if set(range(6 * v, 6 * v + 6)) <= written}
    for v, (begin, end) in found.partial.items():
        assert set(expand(begin, end - begin).tolist()) == {e for e in written if e // 6 == v}


def graph_input(graph: Graph) -> object:
    found = graph.find("input")
    return graph.whole(found[0]) if found else graph.variable(f32, (2,), "input").map(0)


def test_node_access__copy_to_a_slice_of_a_slice__is_partial(graph: Graph) -> None:
    x, y = (graph.variable(f32, (4, 4), n).map(0) for n in "xy")
    found = node_access(Copy(x[0], y[:, 1]), layout_of(graph))
    assert found.reads.tolist() == [0]
    assert found.writes.tolist() == [1]
    assert found.complete.tolist() == []
    begin, end = found.partial[1]
    assert begin.tolist() == [17, 21, 25, 29]
    assert (end - begin).tolist() == [1] * 4


@given(st.data(), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8))
def test_memory__random_copies__is_at_least_what_is_live_at_any_step(data: st.DataObject, copies: list) -> None:
    graph = Graph(small_system(2))
    tensors = [graph.variable(f32, (8,), n).map(data.draw(st.integers(0, 1))) for n in "abcd"]
    program = Sequence(*(Copy(tensors[a], tensors[b]) for a, b in copies if a != b), Copy(tensors[0], tensors[1]))
    memory = compile_program(graph, program).memory
    for step in range(len(memory.step_bytes)):
        held = memory.liveness.always_live.copy()
        held[memory.liveness.candidates[memory.liveness.at(step)]] = True
        for tile in range(2):
            here = sum(
                32 for v, t in zip(graph.variables, tensors, strict=True) if held[v.id] and t.mapping.tile[0] == tile
            )
            assert memory.by_category["variables"][tile] + memory.by_category["temporaries"][tile] >= here
