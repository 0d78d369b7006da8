"""The second look: what native code counts by is checked where its tables are made, whoever made the graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import abele as ab
from abele import InOut, Input, Vector, f32
from abele.errors import EngineError
from abele.graph import Copy, Edge, StateData
from abele.runtime.memory.arena import Arena, check_equal, check_intervals, check_numbers, check_stretches

LARGEST = (1 << 63) - 1


@ab.codelet
class AddRows(ab.Vertex):
    x: InOut[Vector[f32]]
    rows: Vector[Input[Vector[f32]]]
    by: Vector[f32]
    once: f32

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] += self.rows[0][0] + self.by[0] + self.once


def made() -> tuple[ab.Graph, ab.Program]:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (4, 6), name="x", initial=1).map_rows(range(4))
    y = graph.constant(f32, (4, 2, 3), 1, name="y")
    step = graph.compute_set("add")
    step.vertices(AddRows, tile=range(4), x=x, rows=y, by=np.ones((4, 2)), once=1.0)
    return graph, ab.Execute(step)


@pytest.mark.parametrize(
    ("field", "part", "place", "value"),
    [
        ("x", "begin", 1, LARGEST),
        ("x", "begin", 0, -1),
        ("x", "length", 1, LARGEST),
        ("x", "length", 0, -1),
        ("x", "ptr", 1, LARGEST),
        ("x", "index", 1, 9),
        ("x", "index", 1, -1),
        ("rows", "row_begin", 1, LARGEST),
        ("rows", "row_begin", -1, 100),
        ("rows", "row_begin", 1, -5),
    ],
)
def test_engine__tables_of_a_field_that_reach_outside__refuses_the_program(
    field: str, part: str, place: int, value: int
) -> None:
    graph, program = made()
    executable = ab.compile_program(graph, program)
    group = graph.compute_sets[0].groups[0]
    edge = group.edges[field]
    column = np.array(getattr(edge if part in ("index", "row_begin") else edge.regions, part))
    column[place] = value
    changed = {part: column}
    own = part in ("index", "row_begin")
    wrong = replace(edge, **changed) if own else Edge(replace(edge.regions, **changed), edge.index, edge.row_begin)
    group.edges[field] = wrong
    with pytest.raises(EngineError, match="the program would reach outside its variables"):
        ab.Engine(executable)


@pytest.mark.parametrize(
    ("field", "values", "begin"),
    [("once", np.ones(3, np.float32), None), ("by", np.ones(8, np.float32), np.array([0, 2, LARGEST, 6, 8]))],
)
def test_engine__state_of_another_number_of_vertices__refuses_the_program(
    field: str, values: np.ndarray, begin: np.ndarray | None
) -> None:
    graph, program = made()
    executable = ab.compile_program(graph, program)
    graph.compute_sets[0].groups[0].state[field] = StateData(values, begin)
    with pytest.raises(EngineError, match=r"values of state of 4 vertices do not add up to \d rows"):
        ab.Engine(executable)


def test_engine__copy_of_other_sizes__refuses_the_program() -> None:
    graph = ab.Graph("bow")
    x, y = (graph.variable(f32, (n,), name=f"v{n}").map(0) for n in (5, 6))
    copy = Copy(x, y[:5])
    executable = ab.compile_program(graph, copy)
    copy.destination = y
    with pytest.raises(EngineError, match="a copy moves 20 bytes onto 24"):
        ab.Engine(executable, mode="tiles")


def test_engine__variables_that_no_host_has_room_for__says_so() -> None:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (1 << 58,), name="x").map(0)
    executable = ab.compile_program(graph, ab.WriteUndef(x), allow_out_of_memory=True)
    with pytest.raises(EngineError, match="the host has too little memory") as caught:
        ab.Engine(executable)
    assert "its variables take 1,152,921,504,606,846,976 B" in str(caught.value)


def test_pieces__of_a_replica_that_there_is_not__are_refused() -> None:
    graph, _ = made()
    arena = Arena(graph.variables, 2)
    one = np.array([0]), np.array([4])
    arena.pieces(*one, 1)
    for replica in (2, -1, 1 << 40):
        with pytest.raises(EngineError, match=r"replica -?\d+: there are 2"):
            arena.pieces(*one, replica)


def test_checks__what_is_right__pass() -> None:
    none = np.zeros(0, np.int64)
    check_intervals(none, none, 0)
    check_intervals(np.array([0, 9]), np.array([10, 1]), 10)
    check_stretches(np.array([0, 0, 3]), 2, 3, "rows")
    check_numbers(none, 0, "nothing")
    check_equal(4, 4, "a copy")
    with pytest.raises(EngineError, match="2 intervals have 1 lengths"):
        check_intervals(np.array([0, 1]), np.array([1]), 9)
