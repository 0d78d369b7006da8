"""Checks of C++ codelets: every access is held against its field, and errors name the line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele import Engine, Execute, Graph
from abele.codelet import interpret
from abele.errors import ApplicationRuntimeError, CodeletAccessError
from abele.numerics import f32
from abele.runtime import Checks
from codelet.cpp.conftest import FILES, has_compiler, load

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
NAME = "outside.cpp"


def line(mark: str) -> int:
    lines = (FILES / NAME).read_text().splitlines()
    return next(n for n, text in enumerate(lines, 1) if f"line: {mark}" in text)


def graph_of(name: str, at: list[int], replicas: int = 1) -> tuple[Graph, Execute]:
    """One vertex, whose field y has 8 elements; those of another variable follow."""
    graph = Graph("bow-2000", replicas=replicas)
    codelet = load(NAME)[name]
    step = graph.compute_set("step")
    fields: dict[str, Any] = {}
    for field in codelet.fields:
        size = {"at": 2, "x": 4}.get(field.name, 8)
        initial: Any = [at, at] if field.name == "at" else 0
        if name == "FromNan" and field.name == "x":
            initial = 1e30
        tensor = graph.variable(field.type, (2, size), field.name, initial=initial).map(0)
        fields[field.name] = [tensor[0], tensor[1]] if field.rank == 2 else tensor[0]
        if field.is_scattered:
            fields[field.name] = [tensor[0, n] for n in range(size)]
    step.vertex(codelet, tile=0, **fields)
    return graph, Execute(step)


CASES = [
    ("Poke", [8, 0], "write of Poke.y[8], which has 8 elements", "poke"),
    ("Poke", [-1, 0], "write of Poke.y[-1], which has 8 elements", "poke"),
    ("Poke", [2**31 - 1, 0], "write of Poke.y[2147483647], which has 8 elements", "poke"),
    ("Fill", [33, 0], "write of 33 bytes from Fill.y[0] on, which has 8 elements", "fill"),
    ("Fill", [2**31 - 1, 0], "write of 2147483647 bytes from Fill.y[0] on", "fill"),
    ("Copy", [4, 8], "read of Copy.y[8], which has 8 elements", "copy"),
    ("Copy", [40, 0], "write of 40 bytes from Copy.y[0] on, which has 8 elements", "copy"),
    ("Before", [1, 0], "write of Before.y[-1], which has 8 elements", "before"),
    ("Rows", [1, 8], "write of Rows.y[…][8], which has 8 elements", "rows"),
    ("Rows", [2, 0], "row 2 of Rows.y, which has 2 rows", "rows"),
    ("Rows", [-1, 0], "row -1 of Rows.y, which has 2 rows", "rows"),
    ("Gather", [4, 0], "row 4 of Gather.x, which has 4 rows", "gather"),
    ("Local", [8, 0], "write of byte 32 of a local array of Local, which has 32 bytes", "local"),
    ("Either", [1, 9], "write at an address that is in no field of Either which it may write", "either"),
    ("EitherInput", [0, 0], "write at an address that is in no field of EitherInput which it may write", "write to an"),
    ("Bytes", [8, 0], "write of Bytes.y[8], which has 8 elements", "bytes"),
    ("Bytes", [0, 4], "read of Bytes.x[4], which has 4 elements", "bytes"),
    ("Wide", [2, 0], "write of 16 bytes from Wide.y[8] on, which has 8 elements", "wide"),
    ("FromNan", [0, 0], "write of FromNan.y[2147483647], which has 8 elements", "infinite index"),
    ("Multi", [2, 0], "write of Multi.y[8], which has 8 elements", "worker"),
]
RIGHT = [
    ("Poke", [7, 0]),
    ("Fill", [32, 0]),
    ("Copy", [28, 1]),
    ("Before", [0, 0]),
    ("Rows", [1, 7]),
    ("Gather", [3, 0]),
    ("Local", [7, 0]),
    ("Either", [1, 8]),
    ("Either", [0, 8]),
    ("EitherInput", [1, 0]),
    ("Bytes", [7, 3]),
    ("Wide", [1, 0]),
    ("Table", [3, 0]),
    ("Multi", [1, 0]),
    ("Racing", [0, 0]),
]
WAYS: list[dict[str, Any]] = [{"checks": "bounds"}, {"checks": "inputs"}, {"debug": True}, {"checks": "all"}]


@pytest.mark.parametrize("way", WAYS[:3], ids=str)
@pytest.mark.parametrize(("name", "at", "text", "mark"), CASES, ids=lambda value: str(value)[:20])
def test_access__outside_a_field__names_field_and_line(
    name: str, at: list[int], text: str, mark: str, way: dict[str, Any]
) -> None:
    graph, program = graph_of(name, at)
    with Engine(graph, program, **way) as engine, pytest.raises(CodeletAccessError) as caught:
        engine.run()
    message = str(caught.value)
    assert text in message
    assert f"{Path(FILES / NAME)}:{line(mark)}" in message
    assert f"vertex 0 of 1 × {name} on tile 0" in message
    assert "compute set 'step', made at" in message
    assert ("worker 4 does so" in message) == (name == "Multi")


@pytest.mark.parametrize(("name", "at"), RIGHT, ids=str)
def test_right_vertex__checked__gives_the_same_bits(name: str, at: list[int]) -> None:
    found = []
    for way in [{}, *WAYS[:3]]:
        graph, program = graph_of(name, at)
        with Engine(graph, program, **way) as engine:
            assert engine.run()
            found.append(engine["y"])
    for values in found[1:]:
        np.testing.assert_array_equal(values, found[0])


def test_access__of_a_replica__is_found_and_touches_nothing() -> None:
    graph, program = graph_of("Poke", [0, 0], replicas=2)
    with Engine(graph, program, checks="bounds") as engine:
        engine["at"] = np.array([[[0, 0], [0, 0]], [[8, 0], [0, 0]]])
        with pytest.raises(CodeletAccessError, match="of replica 1"):
            engine.run()
        np.testing.assert_array_equal(engine["y"][:, 1], 0.0)


def test_unchecked_run__of_cpp__names_field_and_line_too() -> None:
    graph, program = graph_of("Before", [1, 0])
    with Engine(graph, program) as engine, pytest.raises(ApplicationRuntimeError) as caught:
        engine.run()
    text = str(caught.value)
    assert "a vertex left its fields: write of Before.y[-1], which has 8 elements" in text
    assert f"{FILES / NAME}:{line('before')}" in text


def test_unchecked_run__of_source_given_as_text__names_its_line_and_no_temporary_file() -> None:
    source = """#include <poplar/Vertex.hpp>
    class Beyond : public poplar::Vertex {
      public:
        poplar::Output<poplar::Vector<float>> y;
        bool compute() { y[y.size()] = 1.0f; return true; }
    };"""
    graph = Graph("bow-2000")
    graph.addCodelets(source)
    step = graph.compute_set("step")
    step.vertex("Beyond", tile=0, y=graph.variable(f32, (8,), "y").map(0))
    with pytest.raises(ApplicationRuntimeError) as caught:
        Engine(graph, Execute(step)).run()
    assert (caught.value.at or "").startswith("codelet.cpp:5\n")


BEYOND = [*range(8, 40), 1000, 10**5, 10**8, 2**31 - 1, -100, -(10**6), -(10**8), -(2**31)]


def test_unchecked_run__beyond_an_array_on_the_stack__leaves_the_process_alone() -> None:
    # In a process of its own: a vertex whose return address is half overwritten goes on 4 GB around its code at most,
    # and there a process that has compiled thousands of programs may have code, which no fault tells of.
    tests = Path(__file__).parents[2]
    run = "from runtime.checks import test_cpp\nfor at in test_cpp.BEYOND: test_cpp.write_beyond(at)"
    path = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", run], check=True, env={**os.environ, "PYTHONPATH": path}, timeout=300)


def write_beyond(at: int) -> None:
    graph, program = graph_of("Local", [at, 0])
    with Engine(graph, program, threads=2) as engine:
        said = ""
        try:
            engine.run()
        except ApplicationRuntimeError as error:
            said = str(error)
        assert not said or f"write of byte {4 * at} of a local array of Local" in said
        engine["at"] = 0
        assert engine.run()


@pytest.mark.parametrize("way", [{}, *WAYS[:3]], ids=str)
def test_stack__that_overflows__ends_the_run(way: dict[str, Any]) -> None:
    graph, program = graph_of("Deep", [1 << 22, 5])
    with Engine(graph, program, **way) as engine:
        with pytest.raises(ApplicationRuntimeError, match="more on the stack than it holds") as caught:
            engine.run()
        assert "Deep" in str(caught.value)


def test_vertex_order__of_cpp_workers__finds_those_that_depend_on_it() -> None:
    graph, program = graph_of("Racing", [0, 0])
    seen = set()
    for seed in range(12):
        with Engine(graph, program, checks=Checks(vertex_order=seed, bounds=bool(seed % 2))) as engine:
            engine.run()
            seen.add(float(engine["y"][0, 0]))
    assert len(seen) > 2
    with Engine(graph, program) as engine, pytest.raises(ApplicationRuntimeError, match="'y'"):
        engine.compare_orders()
    graph, program = graph_of("Apart", [0, 0])
    with Engine(graph, program) as engine:
        engine.compare_orders()


def test_interpret__of_cpp__checks_and_runs_one_worker() -> None:
    codelet = load(NAME)["Multi"]
    fields = {"at": np.array([1, 0], "i4"), "y": np.zeros(8, "f4")}
    interpret(codelet, fields, worker=3)
    assert fields["y"].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    fields["at"][0] = 2
    with pytest.raises(CodeletAccessError, match=r"write of Multi\.y\[8\]"):
        interpret(codelet, fields)
