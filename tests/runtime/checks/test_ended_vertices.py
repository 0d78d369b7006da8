"""Vertices that end before their time: the error names vertex, codelet and line, in every way of execution."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele import Engine, Execute, Graph, InOut, Vector, f32, i32, systems
from abele.codelet import compile_codelet
from abele.errors import ApplicationRuntimeError
from abele.runtime.control.faults import _NUM_GUARDS, Guards
from codelet.cpp.conftest import FILES, has_compiler, load

WAYS = [{"threads": 1}, {"threads": 2}, {"debug": True}, {"mode": "tiles", "checks": "bounds"}]
NUM = 3
needs_cpp = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


@ab.codelet
class PyCollatz(ab.Vertex):
    x: InOut[Vector[i32]]

    def compute(self):
        for i in range(len(self.x)):
            n = self.x[i]
            steps = 0
            while n != 1:
                n = 3 * n + 1 if n % 2 == 1 else n // 2
                steps += 1
            self.x[i] = steps


def engine(codelet: Any, values: Any, type_: Any, **options: Any) -> Engine:
    """One vertex per tile, each with a row of values."""
    values = np.asarray(values, type_.np)
    graph = Graph(systems.get("bow-2000:1"))
    x = graph.variable(type_, values.shape, name="x").map_rows(range(len(values)))
    step = graph.compute_set("step")
    step.vertices(codelet, tile=range(len(values)), x=x)
    made = Engine(graph, Execute(step), **options)
    made["x"] = values
    return made


def line_of(text: str, nth: int = 0) -> int:
    lines = (FILES / "ends.cpp").read_text().splitlines()
    return [n for n, line in enumerate(lines, 1) if text in line][nth]


@needs_cpp
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("name", "bad", "words", "line"),
    [
        ("Aborts", -1, "calls abort()", "abort();"),
        ("Exits", -1, "calls exit()", "exit(3);"),
        ("Asserts", -1, "fails the assertion 'x[0] >= 0 && \"not negative\"'", "assert(x[0]"),
        ("Checks", 5, "fails a check of the C++ library", "table.at("),
        ("Throws", -1, "throws an exception", "throw std"),
    ],
)
def test_call_that_ends_a_program__ends_the_run__with_vertex_and_line(
    name: str, bad: float, words: str, line: str, way: dict[str, Any]
) -> None:
    made = engine(load("ends.cpp")[name], [[1.0], [bad], [2.0]], f32, **way)
    with pytest.raises(ApplicationRuntimeError) as caught:
        made.run()
    assert caught.value.message == f"vertex {name} {words}"
    assert f"ends.cpp:{line_of(line)}\nvertex 1 of 3 × {name} on tile 1" in (caught.value.at or "")
    made["x"] = np.ones((NUM, 1), np.float32)
    made.run()
    np.testing.assert_array_equal(made["x"], np.full((NUM, 1), 2))


@needs_cpp
def test_call_that_ends_a_program__after_signals_were_restored__ends_the_run() -> None:
    made = engine(load("ends.cpp")["Aborts"], [[1.0], [-1], [2.0]], f32)
    # A trainer of Lightning does so at its end, with all signals.
    signal.signal(signal.SIGILL, signal.getsignal(signal.SIGILL))
    with pytest.raises(ApplicationRuntimeError, match="vertex Aborts calls"):
        made.run()


@needs_cpp
def test_guards__held_by_engines_that_are_garbage__are_given_back_when_they_run_out() -> None:
    code = load("ends.cpp")["Aborts"]
    gc.disable()
    try:
        garbage: list[Any] = [Guards(_NUM_GUARDS)]
        garbage.append(garbage)
        del garbage
        with pytest.raises(ApplicationRuntimeError, match="vertex Aborts calls"):
            engine(code, [[-1.0]], f32).run()
    finally:
        gc.enable()


@needs_cpp
def test_code_without_meaning__ends_the_run() -> None:
    with pytest.raises(ApplicationRuntimeError, match="vertex Undefined runs into what C"):
        engine(load("ends.cpp")["Undefined"], [[1.0]], f32).run()


@needs_cpp
@pytest.mark.parametrize("name", ["Aborts", "Asserts"])
def test_way_to_an_end__leaves_the_cost_what_it_is_without_data(name: str) -> None:
    code = compile_codelet(load("ends.cpp")[name])
    assert not code.data_dependent
    assert code.slots is not None


def codelet_of(language: str) -> Any:
    return load("ends.cpp")["Collatz"] if language == "cpp" else PyCollatz


@needs_cpp
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("language", ["cpp", "python"])
def test_endless_loop__with_a_limit__is_stopped_and_named(language: str, way: dict[str, Any]) -> None:
    codelet = codelet_of(language)
    made = engine(codelet, [[27, 3], [6, 0], [1, 1]], i32, options={"target.hostSyncTimeout": 1}, **way)
    with pytest.raises(ApplicationRuntimeError, match="is in a loop that did not end, and was stopped") as caught:
        made.run()
    assert "vertex 1 of 3" in (caught.value.at or "")
    assert "on tile 1" in (caught.value.at or "")
    if language == "cpp":
        assert f"ends.cpp:{line_of('while (n != 1)')}" in (caught.value.at or "")
    else:
        assert __file__ in (caught.value.at or "")
    assert caught.value.because == "its step took more than 1 second: option target.hostSyncTimeout"
    made["x"] = np.array([[27, 3], [6, 1], [1, 1]], np.int32)
    made.run()
    np.testing.assert_array_equal(made["x"], [[111, 7], [8, 0], [0, 0]])


@pytest.mark.usefixtures("interrupts")
@needs_cpp
@pytest.mark.parametrize("way", [WAYS[1], WAYS[2]], ids=str)
@pytest.mark.parametrize("language", ["cpp", "python"])
def test_endless_loop__at_ctrl_c__is_interrupted_and_named(language: str, way: dict[str, Any]) -> None:
    made = engine(codelet_of(language), [[0]], i32, **way)
    before = time.monotonic()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        made.run()
    assert time.monotonic() - before < 30
    assert any("was stopped" in note and "vertex 0 of 1" in note for note in caught.value.__notes__)
    made["x"] = np.ones((1, 1), np.int32)
    made.run()


@needs_cpp
def test_endless_loop__with_two_engines__stops_in_one_alone() -> None:
    stopped = engine(PyCollatz, [[0]], i32, options={"target.hostSyncTimeout": 1})
    with pytest.raises(ApplicationRuntimeError):
        stopped.run()
    other = engine(PyCollatz, [[27]], i32)
    other.run()
    np.testing.assert_array_equal(other["x"], [[111]])


@needs_cpp
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_worker__that_waits_for_one_before_it__runs(way: dict[str, Any]) -> None:
    made = engine(load("ends.cpp")["LastWaits"], [[0] * 7], i32, **way)
    made.run()
    np.testing.assert_array_equal(made["x"], [[1, 1, 1, 1, 1, 1, 42]])


@needs_cpp
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_worker__that_waits_for_one_after_it__is_an_error_at_once(way: dict[str, Any]) -> None:
    with pytest.raises(ApplicationRuntimeError, match="FirstWaits waits for what another worker writes") as caught:
        engine(load("ends.cpp")["FirstWaits"], [[0] * 7], i32, **way).run()
    assert f"ends.cpp:{line_of('while (!flags[5])')}" in (caught.value.at or "")


@needs_cpp
def test_loops__that_a_counter_ends__are_not_looked_at() -> None:
    found = load("ends.cpp")
    assert found["Counted"].source.code.places == ()
    assert len(found["Collatz"].source.code.places) == 1
    assert [p.waits for p in found["FirstWaits"].source.code.places] == [True]


@needs_cpp
def test_endless_loop_of_state_alone__does_not_hang_when_costs_are_counted() -> None:
    graph = Graph(systems.get("bow-2000:1"))
    x = graph.variable(i32, (1, 1), name="x").map_rows(range(1))
    step = graph.compute_set("step")
    step.vertices(load("ends.cpp")["OfState"], tile=range(1), x=x, n=0)
    made = Engine(graph, Execute(step), options={"target.hostSyncTimeout": 1})
    with pytest.raises(ApplicationRuntimeError, match="OfState is in a loop"):
        made.run()
