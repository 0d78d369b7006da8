"""Vertices that leave their fields in an ordinary run: the process lives, and the error names them."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from abele import Engine, Execute, Graph, InOut, Input, MultiVertex, Output, Repeat, Sequence, Vector, Vertex, codelet
from abele.codelet.cpp import load_codelets
from abele.errors import ApplicationRuntimeError
from abele.graph import Program
from abele.numerics import f32, i32, i64, u8
from codelet.cpp.conftest import has_compiler

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


@codelet
class Poke(Vertex):
    """Writes one element wherever it is told."""

    at: Input[i64]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = 1.0
        self.y[self.at] = 2.0


@codelet
class PokeRows(Vertex):
    row: Input[i32]
    at: Input[i32]
    y: Vector[Output[Vector[f32]]]

    def compute(self):
        self.y[self.row][self.at] = 2.0


@codelet
class PokeState(Vertex):
    at: Input[i32]
    kept: Vector[f32]

    def compute(self):
        self.kept[self.at] = 2.0


@codelet
class PokeWorkers(MultiVertex):
    at: Input[i32]
    y: InOut[Vector[f32]]

    def compute(self, worker_id):
        if worker_id == 4:
            self.y[self.at] = 2.0


def poking(cls: Any = Poke, replicas: int = 1, **state: Any) -> tuple[Graph, Program]:
    """Vertices on three tiles between two other variables; those on tile 1 do what ``at`` says."""
    graph = Graph("bow-2000", replicas=replicas)
    graph.variable(f32, (16,), "before", initial=7.0).map(0)
    y = graph.variable(f32, (3, 8), "y", initial=0.0).map_rows([0, 1, 2])
    graph.variable(f32, (16,), "after", initial=7.0).map(0)
    at = graph.variable(i64 if cls is Poke else i32, (3,), "at", initial=0).map(0)
    step = graph.compute_set("poke")
    fields: dict[str, Any] = {"at": at} | state
    if any(f.name == "y" for f in cls.codelet.fields):
        fields.setdefault("y", y)
    step.vertices(cls, tile=[0, 1, 2], **fields)
    return graph, Sequence(Execute(step))


def failure(engine: Engine) -> str:
    with pytest.raises(ApplicationRuntimeError) as caught:
        engine.run()
    return str(caught.value)


FAR = [2**31 - 1, -(2**31), 2**20, -(2**24), 2**40, -(2**45), 2**60, -(2**60)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("at", FAR)
def test_overrun__far_away__ends_the_run_with_vertex_field_and_line(at: int, threads: int) -> None:
    graph, program = poking()
    with Engine(graph, program, threads=threads) as engine:
        engine["at"] = np.array([0, at, 0])
        text = failure(engine)
        assert f"write of Poke.y[{at}], which has 8 elements" in text
        assert "vertex 1 of 3 × Poke on tile 1" in text
        assert "compute set 'poke', made at" in text
        assert re.search(rf"{re.escape(__file__)}:\d+", text)
        assert "memory that belongs to nothing" in text
        assert 'checks="bounds"' in text
        engine["at"] = 0
        assert engine.run()
        np.testing.assert_array_equal(engine["y"][:, :2], [[2.0, 1.0]] * 3)


@pytest.mark.parametrize(("vertex", "at"), [(2, 8), (2, 9), (2, 23), (0, -1), (0, -16)])
def test_overrun__just_beside_a_variable__is_found_after_the_run(vertex: int, at: int) -> None:
    graph, program = poking()
    with Engine(graph, program) as engine:
        where = np.zeros(3, int)
        where[vertex] = at
        engine["at"] = where
        text = failure(engine)
        assert f"write of Poke.y[{at}], which has 8 elements" in text
        assert f"vertex {vertex} of 3 × Poke" in text
        assert "memory beside variable 'before' and variable 'y' has changed" in text or (
            "memory beside variable 'y' and variable 'after' has changed" in text
        )
        np.testing.assert_array_equal(engine["before"], 7.0)
        np.testing.assert_array_equal(engine["after"], 7.0)
        engine["at"] = 0
        assert engine.run(), "reported once"


@pytest.mark.parametrize("at", [20, 60, 100])
def test_overrun__past_a_small_variable_that_is_the_last__is_found(at: int) -> None:
    graph = Graph("bow-2000")
    told = graph.variable(i64, (), "at", initial=at).map(0)
    y = graph.variable(f32, (4,), "y").map(0)
    step = graph.compute_set("poke")
    step.vertex(Poke, tile=0, at=told, y=y)
    with pytest.raises(ApplicationRuntimeError, match=rf"write of Poke\.y\[{at}\], which has 4 elements"):
        Engine(graph, Execute(step)).run()


def test_overrun__of_a_replica__is_found() -> None:
    graph, program = poking(replicas=2)
    with Engine(graph, program) as engine:
        engine["at"] = np.array([[0, 0, 0], [0, 0, 8]])
        text = failure(engine)
        assert "write of Poke.y[8]" in text
        assert "of replica 1" in text


def test_overrun__of_a_worker__is_found() -> None:
    graph, program = poking(PokeWorkers)
    with Engine(graph, program) as engine:
        engine["at"] = np.array([0, 0, 10])
        assert "write of PokeWorkers.y[10]" in failure(engine)


@pytest.mark.parametrize("at", [5, -1, 10**6, -(10**7)])
def test_overrun__of_state__is_found(at: int) -> None:
    graph, program = poking(PokeState, kept=np.zeros((3, 5), "f4"))
    with Engine(graph, program) as engine:
        engine["at"] = np.array([at if at < 0 else 0, 0, at if at > 0 else 0])
        assert f"write of PokeState.kept[{at}], which has 5 elements" in failure(engine)


def test_overrun__in_a_row__is_found() -> None:
    graph = Graph("bow-2000")
    y = graph.variable(f32, (2, 8), "y", initial=0.0).map(0)
    row, at = (graph.variable(i32, (), name, initial=0).map(0) for name in ("row", "at"))
    step = graph.compute_set("poke")
    step.vertex(PokeRows, tile=0, row=row, at=at, y=[y[0], y[1]])
    with Engine(graph, Execute(step)) as engine:
        engine["row"], engine["at"] = 1, 9
        assert "write of PokeRows.y[1][9], which has 8 elements" in failure(engine)
        engine["at"] = -(2**31)
        assert "which has 8 elements" in failure(engine)
        for bad in (2, 5, -1, 10**8, -(10**8)):
            engine["row"], engine["at"] = bad, 3
            assert f"row {bad} of PokeRows.y, which has 2 rows" in failure(engine)


def test_overrun__in_a_loop__ends_it() -> None:
    graph, program = poking()
    with Engine(graph, Repeat(10**9, program), threads=2) as engine:
        engine["at"] = np.array([0, 2**35, 0])
        assert "write of Poke.y[34359738368]" in failure(engine)


def test_overrun__that_does_not_happen_again__names_variable_and_vertices() -> None:
    @codelet
    class Once(Vertex):
        at: InOut[Vector[i32]]
        y: Output[Vector[f32]]

        def compute(self):
            self.y[self.at[0]] = 2.0
            self.at[0] = 0

    graph = Graph("bow-2000")
    y = graph.variable(f32, (8,), "y").map(0)
    at = graph.variable(i32, (1,), "at", initial=8).map(0)
    step = graph.compute_set("once")
    step.vertex(Once, tile=0, at=at, y=y)
    with Engine(graph, Execute(step)) as engine:
        text = failure(engine)
        assert "a vertex wrote outside its fields: memory beside variable 'y'" in text
        assert re.search(r"1 × Once in compute set 'once', made at .*test_overruns.py:\d+", text)


def test_right_program__with_bytes_and_odd_sizes__is_left_alone() -> None:
    @codelet
    class Fill(Vertex):
        y: Output[Vector[u8]]

        def compute(self):
            for i in range(len(self.y)):
                self.y[i] = 255

    graph = Graph("bow-2000")
    step = graph.compute_set("fill")
    for size in (1, 2, 3, 5, 7, 63, 64, 65, 1000, 4097):
        step.vertex(Fill, tile=0, y=graph.variable(u8, (size,), f"y{size}").map(0))
    with Engine(graph, Execute(step)) as engine:
        assert engine.run()
        np.testing.assert_array_equal(engine["y4097"], 255)


CPP = """#include <poplar/Vertex.hpp>
#include <cstring>
using namespace poplar;
struct Poke : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() { for (unsigned i = 0; i < y.size(); ++i) y[i] = 1.f; y[at[0]] = 2.f; return true; }
};
struct Fill : Vertex {
  Input<Vector<int>> at; Output<Vector<float>> y;
  bool compute() { std::memset(&y[0], 0, at[0]); return true; }
};
"""


@needs_compiler
@pytest.mark.parametrize(
    ("name", "at"), [("Poke", 2**31 - 1), ("Poke", -(2**31)), ("Poke", 9), ("Poke", -1), ("Fill", 40), ("Fill", 2**30)]
)
def test_overrun__in_cpp__ends_the_run_with_the_vertices(name: str, at: int) -> None:
    graph = Graph("bow-2000")
    y = graph.variable(f32, (8,), "y").map(0)
    index = graph.variable(i32, (1,), "at", initial=at).map(0)
    step = graph.compute_set("poke")
    step.vertex(load_codelets(CPP)[name], tile=0, at=index, y=y)
    with Engine(graph, Execute(step)) as engine:
        text = failure(engine)
        assert name in text
        assert "compute set 'poke', made at" in text
        engine["at"] = 0
        assert engine.run()


def test_fault__in_python_itself__is_not_caught() -> None:
    code = "import ctypes, faulthandler; faulthandler.enable(); from abele import Engine, Graph, Sequence; "
    code += "Engine(Graph('bow-2000'), Sequence()).run(); ctypes.string_at(8)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == -11
    assert b"Segmentation fault" in done.stderr
