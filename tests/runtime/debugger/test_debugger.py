"""The superstep debugger: stepping, going back, stopping, looking and changing."""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele import InOut, Vector, f32, i32
from abele.errors import ConstantWriteError, EngineError, StreamConnectionError
from abele.report import Report
from abele.runtime.debugger import AtStep, AtTile, AtVertex, OnAnyNan, OnChange, OnNan
from abele.runtime.debugger.terminal import Terminal
from support.examples import examples


@ab.codelet
class Grow(ab.Vertex):
    x: InOut[Vector[f32]]
    times: i32

    def compute(self):
        self.times += 1
        for i in range(len(self.x)):
            self.x[i] = self.x[i] * 1.5 + f32(self.times)


@ab.codelet
class Root(ab.Vertex):
    x: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] = ab.codelet.sqrt(self.x[i] - 1.0)


class Program:
    """A loop that reads a stream, grows x with state in the vertices, and sends x."""

    def __init__(self, rounds: int = 4) -> None:
        graph = ab.Graph("bow")
        self.x = graph.variable(f32, (3, 2), name="x", initial=0).map_rows([0, 1, 5])
        self.y = graph.variable(f32, (3, 2), name="my y", initial=0).map_rows([0, 1, 5])
        grow = graph.compute_set("grow")
        grow.vertices(Grow, tile=[0, 1, 5], x=self.x, times=0)
        source, sink = graph.host_stream_in("in", f32, (3, 2)), graph.host_stream_out("out", f32, (3, 2))
        body = ab.Sequence(ab.Copy(source, self.y), ab.Execute(grow), ab.Copy(self.x, sink))
        self.engine = ab.Engine(graph, ab.Repeat(rounds, body))
        self.taken = 0
        self.sent: list[Any] = []
        self.engine.connect("in", self._next)
        self.engine.connect("out", lambda values: self.sent.append(values.copy()))

    def _next(self) -> Any:
        self.taken += 1
        return np.full((3, 2), self.taken, np.float32)


def grown(rounds: int) -> float:
    value = np.float32(0)
    for times in range(1, rounds + 1):
        value = value * np.float32(1.5) + np.float32(times)
    return float(value)


def test_step__one_at_a_time__memory_is_as_after_each_superstep() -> None:
    program = Program()
    debugger = program.engine.debug()
    for done in range(1, 4):
        assert debugger.step(3)
        assert (debugger.read("x") == grown(done)).all()
        assert (debugger.read("my y") == done).all()
    assert debugger.position == 9
    assert debugger.cycles > 0
    debugger.close()


def test_finish__after_stepping__the_engine_has_what_a_run_would_have_given_it() -> None:
    stepped, ran = Program(), Program()
    debugger = stepped.engine.debug()
    debugger.step(5)
    debugger.finish()
    ran.engine.run()
    assert (stepped.engine["x"] == ran.engine["x"]).all()
    stepped.engine.run()
    ran.engine.run()
    assert (stepped.engine["x"] == ran.engine["x"]).all()
    assert len(stepped.sent) == len(ran.sent) == 8


@examples(4)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_go_to__any_walk__gives_the_state_of_that_position_and_the_host_sees_each_copy_once(places: list[int]) -> None:
    program = Program()
    debugger = program.engine.debug()
    for place in places:
        debugger.go_to(place)
        rounds = (place + 1) // 3
        assert (debugger.read("x") == grown(rounds)).all()
        assert (debugger.read("my y") == (place + 2) // 3).all()
    debugger.finish()
    assert program.taken == 4
    assert [float(s[0, 0]) for s in program.sent] == [grown(n) for n in range(1, 5)]
    assert (program.engine["x"] == grown(4)).all()


def test_back__further_than_the_beginning__takes_what_there_is() -> None:
    debugger = Program().engine.debug()
    debugger.step(4)
    assert debugger.back(10) == 4
    assert debugger.position == debugger.cycles == 0
    assert (debugger.read("x") == 0).all()
    debugger.close()


def test_history__of_few_bytes__forgets_the_oldest_and_says_so() -> None:
    debugger = Program().engine.debug(history_bytes=1)
    debugger.step(6)
    assert debugger.back(6) == 1
    with pytest.raises(EngineError, match="history begins at step"):
        debugger.go_to(0)
    debugger.close()


@pytest.mark.parametrize(
    ("make", "position", "reason"),
    [
        (lambda p: AtStep("grow"), 1, "step grow"),
        (lambda p: AtStep("gr*"), 1, "step gr"),
        (lambda p: AtVertex("Grow"), 1, "vertex Grow"),
        (lambda p: AtVertex("Grow", 5), 1, "on tile 5"),
        (lambda p: AtTile(5), 1, "tile 5"),
        (lambda p: OnChange(p.x, "x"), 2, r"6 elements of x changed; x\[0, 0\]: 0.0 → 1.0"),
        (lambda p: OnChange(p.x[2, 1], "x[2, 1]"), 2, "1 element of x"),
    ],
)
def test_run__with_a_breakpoint__stops_there_and_says_why(
    make: Callable[[Program], Any], position: int, reason: str
) -> None:
    program = Program()
    debugger = program.engine.debug()
    debugger.add(make(program))
    debugger.run()
    assert debugger.position == position
    assert re.search(reason, debugger.reason)
    debugger.run()
    assert debugger.position in (position + 3, 3)
    debugger.close()


@pytest.mark.parametrize("breakpoint_", [lambda x: OnNan(x, "x"), lambda x: OnAnyNan()])
def test_nan__square_root_below_zero__stops_at_the_superstep_that_made_it(breakpoint_: Callable[[Any], Any]) -> None:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (2, 2), name="x", initial=[[5, 2], [1, 30]]).map_rows([0, 1])
    step = graph.compute_set("root")
    step.vertices(Root, tile=[0, 1], x=x)
    debugger = ab.Engine(graph, ab.Repeat(9, ab.Execute(step))).debug()
    debugger.add(breakpoint_(x))
    debugger.run()
    expected = np.array([[5, 2], [1, 30]], np.float32)
    rounds = 0
    with np.errstate(invalid="ignore"):
        while not np.isnan(expected).any():
            expected, rounds = np.sqrt(expected - 1), rounds + 1
    assert debugger.position == rounds
    assert "turned NaN" in debugger.reason
    assert np.isnan(debugger.read("x")).sum() == np.isnan(expected).sum()
    debugger.close()


def test_write__between_steps__steers_what_follows() -> None:
    graph = ab.Graph("bow")
    go = graph.variable("bool", (), name="go", initial=True).map(0)
    x = graph.variable(f32, (1, 2), name="x", initial=0).map_rows([0])
    step = graph.compute_set("grow")
    step.vertices(Grow, tile=[0], x=x, times=0)
    debugger = ab.Engine(graph, ab.RepeatWhileTrue(ab.Sequence(), go, ab.Execute(step))).debug()
    debugger.step(3)
    assert not debugger.done
    debugger.write("go", False)
    debugger.step()
    assert debugger.done
    assert debugger.position == 4
    with pytest.raises(ConstantWriteError, match="shows an element more than once"):
        debugger.write(x.broadcast(2, 0), 1.0)
    debugger.close()


def test_out__inside_a_loop_in_a_loop__ends_after_the_inner_one() -> None:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (1, 2), name="x", initial=0).map_rows([0])
    step = graph.compute_set("grow")
    step.vertices(Grow, tile=[0], x=x, times=0)
    debugger = ab.Engine(graph, ab.Repeat(2, ab.Sequence(ab.Repeat(3, ab.Execute(step))))).debug()
    debugger.step()
    assert [frame.text for frame in debugger.stack] == ["repeat 1 of 2", "sequence", "repeat 2 of 3"]
    debugger.out()
    assert debugger.position == 3
    debugger.out()
    assert debugger.position == 6
    assert debugger.done
    debugger.close()


def test_steps__of_every_control_node__are_those_that_a_run_takes() -> None:
    graph = ab.Graph("bow")
    which = graph.variable(i32, (), name="which", initial=2).map(0)
    flag = graph.variable("bool", (), name="flag", initial=False).map(0)
    cells = [graph.variable(f32, (), name=f"cell {n}", initial=0).map(0) for n in range(6)]
    one = graph.constant(f32, (), 1.0)
    mark = [ab.Copy(one, cell) for cell in cells]
    counter = graph.variable("u32", (2,), name="counter").map(0)
    function = graph.function(mark[3])
    program = ab.Sequence(
        ab.graph.Switch(which, {1: mark[0], 2: mark[1]}),
        ab.If(flag, mark[2], ab.Sequence(ab.Call(function), ab.Call(function))),
        ab.Repeat(0, mark[4]),
        ab.graph.Block(ab.graph.CycleCount(mark[5], counter), "timed"),
    )
    debugger = ab.Engine(graph, program).debug()
    debugger.finish()
    assert [float(debugger.engine[f"cell {n}"]) for n in range(6)] == [0, 1, 0, 1, 0, 1]
    assert debugger.position == 5
    ran = ab.Engine(graph, program)
    ran.run()
    assert debugger.engine["counter"].tolist() == ran["counter"].tolist()


def test_library_call__stepped__runs_the_supersteps_of_its_body() -> None:
    graph = ab.Graph("bow")
    a, b = (graph.variable(f32, (64, 8), name=n).map_linear(min_elements=8) for n in "ab")
    program = ab.Sequence()
    total = ab.popops.reduce(graph, ab.popops.mul(graph, a, b, program), [0], "ADD", program)
    graph.expose(total, "total", writable=False)
    engine = ab.Engine(graph, program)
    values = np.random.default_rng(0).random((2, 64, 8), dtype=np.float32)
    engine["a"], engine["b"] = values
    debugger = engine.debug()
    debugger.step()
    assert any(isinstance(frame.node, ab.LibraryCall) for frame in debugger.stack)
    debugger.finish()
    np.testing.assert_allclose(engine["total"], (values[0] * values[1]).sum(axis=0), rtol=1e-5)


def test_debug__unconnected_stream__is_refused() -> None:
    graph = ab.Graph("bow")
    x = graph.variable(f32, (2,), name="x").map(0)
    engine = ab.Engine(graph, ab.Copy(graph.host_stream_in("s", f32, (2,)), x))
    with pytest.raises(StreamConnectionError, match="is not connected"):
        engine.debug()


def test_debug__while_another_is_open__is_refused_and_runs_are_too() -> None:
    program = Program()
    debugger = program.engine.debug()
    with pytest.raises(EngineError, match="being debugged already"):
        program.engine.debug()
    with pytest.raises(EngineError, match="running already"):
        program.engine.run()
    debugger.close()
    program.engine.run()
    with pytest.raises(EngineError, match="given its memory back"):
        debugger.step()


def session(debugger: Any, *commands: str) -> str:
    output = io.StringIO()
    debugger.interact(io.StringIO("\n".join(commands) + "\n"), output)
    return output.getvalue()


def test_terminal__commands__show_what_they_name() -> None:
    text = session(
        Program().engine.debug(),
        "list all",
        "break tile 5",
        "watch 'my y'[0, 0]",
        "run",
        "print x[1:]",
        "tensors m*",
        "tile 5",
        "step 1",
        "vertex 2",
        "back",
        "goto 4",
        "vertex 2",
        "set x[0, 1] = 7",
        "breaks",
        "delete 1",
        "help back",
        "help",
        "quit",
    )
    for part in (
        "repeat 4",
        "copy stream in → my y f32[3, 2]",
        "breakpoint 1: tile 5",
        "change of my y",
        "x[1:]: f32[2, 2] on 2 tiles, 1 to 5",
        "variable  f32   [3, 2]             my y",
        "tile 5 of IPU 0",
        "runs 1 × Grow: vertices 2",
        "vertex 2: Grow on tile 5",
        "state times",
        "x[0, 1]: f32[] on tile 0",
        "take the last step back",
        "  quit: leave",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("stp", "did you mean 'step'"),
        ("print z", "no variable is called 'z'"),
        ("print x[a]", "no index that can be read"),
        ("print x[9]", "x"),
        ("set x[0]", "set needs a value"),
        ("set x[0] = pi", "is no number"),
        ("break elsewhere", "is no breakpoint"),
        ("break step 99", "the program has no line 99"),
        ("delete 4", "there is no breakpoint 4"),
        ("tile 99999", "there is no tile 99999"),
        ("vertex 3", "no such vertex"),
        ("goto x", "is no number"),
        ("goto 99", "the program ends after 12 steps"),
        ("help nothing", "there is no command"),
    ],
)
def test_terminal__mistake__is_told_and_the_session_goes_on(command: str, answer: str) -> None:
    text = session(Program().engine.debug(), command, "where", "quit")
    assert answer in text
    assert text.split("(abele) where")[1].strip().startswith("step ")


def test_help__of_commands_without_docstrings_as_under_python_OO__has_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Terminal.do_back, "__doc__", None)
    assert "\n  back\n" in session(Program().engine.debug(), "help", "quit")


def test_terminal__view__serves_the_program_at_the_step_at_hand_until_the_session_ends(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs the extra view")
    debugger = Program().engine.debug()
    path = tmp_path / "at hand.abele-report"
    told = session(debugger, "step 2", "view", "view", f"view {path}")
    addresses = [line for line in told.splitlines() if line.startswith("http://127.0.0.1:")]
    assert len(addresses) == 2
    assert addresses[0] == addresses[1]
    row = int(addresses[0].partition("#step=")[2].partition("&")[0])
    at_hand = debugger.step_at_hand
    assert debugger.engine.executable.steps[row].node is at_hand
    assert Report.load(path).steps["name"][row] == debugger.engine.report.steps["name"][row]
    port = int(addresses[0].partition("127.0.0.1:")[2].partition("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
