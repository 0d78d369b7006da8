"""Trip counts: after a run the report counts each step as often as it ran."""

from __future__ import annotations

import numpy as np
import pytest

from abele.graph import Call, Copy, Execute, Graph, If, Repeat, RepeatWhileTrue, Sequence
from abele.numerics import i32
from abele.runtime import Engine
from support.vertices import Down


class Counting:
    """A counter that a loop counts down to 0."""

    def __init__(self, start: int) -> None:
        self.graph = Graph("bow-2000")
        self.left = self.graph.variable(i32, 1, "left", initial=[start]).map(0)
        self.start = self.graph.constant(i32, 1, [start], "start").map(0)
        cs = self.graph.compute_set("down")
        cs.vertex(Down, tile=0, left=self.left[0])
        self.down = Execute(cs)
        self.loop = RepeatWhileTrue(Sequence(), self.left[0], self.down)

    def executions(self, engine: Engine) -> dict[str, int]:
        steps = engine.report.steps
        found: dict[str, int] = {}
        for name, count in zip(steps["name"].tolist(), steps["executions"].tolist(), strict=True):
            found[name] = max(found.get(name, 0), count)
        return found


@pytest.mark.parametrize("start", [0, 1, 7])
def test_trips__while_loop__counts_its_body_as_it_ran(start):
    made = Counting(start)
    with Engine(made.graph, made.loop) as engine:
        assert made.executions(engine)["down"] == 1
        engine.run()
        assert made.executions(engine)["down"] == start
        before = engine.report.total_cycles
        engine["left"] = [start + 3]
        engine.run()
        assert made.executions(engine)["down"] == start + 3
        assert engine.report.total_cycles > before


def test_trips__loop_in_a_repeat__counts_all_rounds_together():
    made = Counting(5)
    with Engine(made.graph, Repeat(4, Sequence(Copy(made.start, made.left), made.loop))) as engine:
        engine.run()
        assert made.executions(engine)["down"] == 20


def test_trips__if__counts_the_branch_that_ran():
    made = Counting(3)
    flag = made.graph.variable(i32, 1, "flag", initial=[0]).map(0)
    branch = If(flag[0], made.down, Copy(made.start, made.left))
    with Engine(made.graph, Repeat(6, branch)) as engine:
        assert made.executions(engine)["down"] == 6
        engine.run()
        assert made.executions(engine)["down"] == 0
        engine["flag"] = [1]
        engine.run()
        assert made.executions(engine)["down"] == 6


def test_trips__function_called_twice__shares_them_out():
    made = Counting(4)
    function = made.graph.function(Sequence(Copy(made.start, made.left), made.loop))
    with Engine(made.graph, Sequence(Call(function), Repeat(3, Call(function)))) as engine:
        engine.run()
        steps = engine.report.steps
        names, counts = np.array(steps["name"].tolist()), steps["executions"]
        assert sorted(set(counts[names == "down"].tolist())) == [4, 12]


def test_trips__other_program__keeps_its_own():
    made = Counting(4)
    with Engine(made.graph, {"loop": made.loop, "once": made.down}) as engine:
        engine.run("loop")
        engine.run("once")
        steps = engine.report.steps
        found = {
            (int(p), n): int(c) for p, n, c in zip(steps["program"], steps["name"], steps["executions"], strict=True)
        }
        assert found[0, "down"] == 4
        assert found[1, "down"] == 1
