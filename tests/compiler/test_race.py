from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import field_uses, find_race
from abele.compiler.analyse import race_error
from abele.errors import DataRaceError
from abele.graph import ComputeSet, Graph, Regions, shared
from abele.numerics import f32
from compiler.support import Reader, Update, Writer, small_system
from support.examples import examples


def races(cs: ComputeSet) -> bool:
    return find_race(field_uses(cs.groups)) is not None


def test_race__rows_of_their_own__is_none(graph: Graph) -> None:
    x, y = (graph.variable(f32, (4, 5), n).map(0) for n in "xy")
    cs = graph.compute_set("step")
    cs.vertices(Update, tile=range(4), x=x, y=y)
    assert not races(cs)


def test_race__one_vertex_reads_and_writes_the_same__is_none(graph: Graph) -> None:
    x = graph.variable(f32, (4, 5), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertices(Update, tile=range(4), x=x, y=x)
    assert not races(cs)


def test_race__all_read_what_none_writes__is_none(graph: Graph) -> None:
    x, y = graph.variable(f32, (5,), "x").map(0), graph.variable(f32, (4, 5), "y").map(0)
    cs = graph.compute_set("step")
    cs.vertices(Update, tile=range(4), x=shared(x), y=y)
    assert not races(cs)


def test_race__two_writers__is_found(graph: Graph) -> None:
    x = graph.variable(f32, (10,), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertex(Writer, tile=0, y=x[0:6])
    cs.vertex(Writer, tile=1, y=x[5:10])
    assert races(cs)


def test_race__shared_output__is_found(graph: Graph) -> None:
    x = graph.variable(f32, (10,), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertices(Writer, tile=[0, 1], y=shared(x))
    assert races(cs)


def test_race__reader_of_a_shared_region_that_one_of_them_writes__is_found(graph: Graph) -> None:
    x = graph.variable(f32, (4,), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertices(Update, tile=[0, 1], x=shared(x), y=x.reshape(2, 2))
    assert races(cs)


def test_race_error__two_writers__names_both_vertices_fields_elements_and_remedy(graph: Graph) -> None:
    x = graph.variable(f32, (2, 5), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertex(Writer, tile=0, y=x.flatten()[0:6])
    cs.vertex(Writer, tile=1, y=x.flatten()[5:10])
    race = find_race(field_uses(cs.groups))
    assert race is not None
    error = race_error(race, cs)
    assert isinstance(error, DataRaceError)
    text = str(error)
    assert text.startswith(
        "Field Writer.y writes to elements [5:6) of variable 'x' that are written to elsewhere in same compute set\n"
    )
    assert "compute set 'step', x[1, 0]" in text
    assert "vertex 1 of 2 × Writer on tile 1, field y, made at " in text
    assert "vertex 0 of 2 × Writer on tile 0, field y, made at " in text
    assert "test_race.py:" in text
    assert "combine them in a second compute set" in text


def test_race_error__reader_and_writer__says_read_and_gives_the_interval_in_coordinates(graph: Graph) -> None:
    x = graph.variable(f32, (2, 5), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertex(Writer, tile=3, y=x.flatten()[3:8])
    cs.vertex(Reader, tile=2, x=x[1])
    text = str(race_error(find_race(field_uses(cs.groups)), cs))  # type: ignore[arg-type]
    assert "Field Writer.y writes to elements [5:8) of variable 'x' that are read elsewhere in same compute set" in text
    assert "x[1, 0] to x[1, 2]" in text
    assert "Reader on tile 2, field x" in text
    assert "reads them" in text


Piece = st.tuples(st.integers(0, 18), st.integers(1, 6))
Vertices = st.lists(
    st.tuples(st.lists(Piece, max_size=3), st.lists(Piece, max_size=3), st.booleans()), min_size=1, max_size=5
)


def brute(vertices: list[tuple[list[tuple[int, int]], list[tuple[int, int]], bool]]) -> bool:
    """The rule, element by element: one piece of one output writes it, and no other vertex reads it."""
    writers: list[list[int]] = [[] for _ in range(24)]
    readers: list[list[int]] = [[] for _ in range(24)]
    for number, (reads, writes, _) in enumerate(vertices):
        for side, pieces in ((readers, reads), (writers, writes)):
            for begin, length in pieces:
                for e in range(begin, begin + length):
                    side[e].append(number)
    return any(len(w) > 1 or (w and set(r) - set(w)) for w, r in zip(writers, readers, strict=True))


def regions(tensor: object, rows: list[list[tuple[int, int]]]) -> Regions:
    ptr = np.cumsum([0, *(len(r) for r in rows)])
    flat = np.array([p for r in rows for p in r], dtype=np.int64).reshape(-1, 2)
    return Regions(ptr.astype(np.int64), flat[:, 0], flat[:, 1], tensor)  # type: ignore[arg-type]


@examples(16)
@given(Vertices, st.randoms(use_true_random=False))
def test_race__random_intervals__agrees_with_brute_force(vertices: list, random: object) -> None:
    graph = Graph(small_system())
    x = graph.variable(f32, (24,), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertices(
        Update,
        tile=np.arange(len(vertices)) % 8,
        x=regions(x, [v[0] for v in vertices]),
        y=regions(x, [v[1] for v in vertices]),
    )
    assert races(cs) == brute(vertices)


@pytest.mark.parametrize("share", [1, 2])
@examples(8)
@given(st.lists(st.lists(Piece, max_size=3), min_size=1, max_size=3), st.lists(Piece, min_size=4, max_size=4))
def test_race__shared_regions__agrees_with_brute_force(share: int, rows: list, writes: list) -> None:
    graph = Graph(small_system())
    x = graph.variable(f32, (24,), "x").map(0)
    cs = graph.compute_set("step")
    index = np.arange(4) * share % len(rows)
    cs.vertices(Update, tile=[0] * 4, x=(regions(x, rows), index), y=regions(x, [[w] for w in writes]))
    assert races(cs) == brute([(rows[i], [w], True) for i, w in zip(index, writes, strict=True)])


def test_race_error__vertices_made_one_by_one__names_both_lines(graph: Graph) -> None:
    data = graph.variable(f32, (153600,), "data").map(0)
    cs = graph.compute_set("stencils")
    first = cs.vertex(Writer, tile=0, y=data)
    second = cs.vertex(Writer, tile=1, y=data)
    text = str(race_error(find_race(field_uses(cs.groups)), cs))  # type: ignore[arg-type]
    assert text.startswith(
        "Field Writer.y writes to elements [0:153600) of variable 'data' that are written to elsewhere in same "
        "compute set\n"
    )
    assert first.debug.line != second.debug.line
    for vertex, tile in ((first, 0), (second, 1)):
        assert f"on tile {tile}, field y, made at {vertex.debug.location}" in text
    assert "compute set 'stencils'" in text
