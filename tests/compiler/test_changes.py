"""An executable whose graph has changed since, and what runs tell it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from abele.compiler import Executable, compile_program
from abele.errors import EngineError
from abele.graph import Execute, Graph, If, Sequence
from abele.numerics import bool_, f32
from support.vertices import Increment


@pytest.fixture
def made(graph: Graph) -> tuple[Graph, Sequence, Executable]:
    x = graph.variable(f32, (8, 5), "x").map_rows(range(8))
    cs = graph.compute_set("step")
    cs.vertices(Increment, tile=range(8), y=x)
    main = Sequence(Execute(cs))
    return graph, main, compile_program(graph, {"train": main})


def test_unchanged__graph_with_more_variables_and_compute_sets__may_run(made: tuple) -> None:
    graph, _, executable = made
    graph.variable(f32, (3,), "more").map(0)
    graph.compute_set("another").vertex(Increment, tile=0, y=graph.variable(f32, (3,), "z").map(0))
    executable.check_unchanged()


def test_unchanged__vertex_added_later__is_found(made: tuple) -> None:
    graph, _, executable = made
    graph.compute_sets[0].vertex(Increment, tile=0, y=graph.variable(f32, (3,), "z").map(0))
    with pytest.raises(EngineError, match="compute set 'step' had 8 vertices, it has 9 now") as caught:
        executable.check_unchanged()
    assert "compile again" in str(caught.value)


def test_unchanged__step_added_later__is_found(made: tuple) -> None:
    _, main, executable = made
    main.add(Sequence())
    with pytest.raises(EngineError, match="program 'train' had 2 steps, it has 3 now"):
        executable.check_unchanged()


def test_unchanged__variable_mapped_anew__is_found(made: tuple) -> None:
    graph, _, executable = made
    graph.whole(graph.variables[0]).map(3)
    with pytest.raises(EngineError, match="variable 'x' was mapped anew"):
        executable.check_unchanged()


def test_account__of_a_wrong_number_of_steps__is_refused(made: tuple) -> None:
    with pytest.raises(EngineError, match="executions of 2 steps for an executable of 1"):
        made[2].account_of([1, 2])


def test_account__of_fewer_than_no_executions__is_refused(made: tuple) -> None:
    with pytest.raises(EngineError, match="a step cannot be executed -3 times"):
        made[2].account_of([-3])


@pytest.mark.parametrize("number", [-1, 1])
def test_account__with_slots_of_no_superstep__is_refused(made: tuple, number: int) -> None:
    with pytest.raises(EngineError, match=f"superstep {number} has no vertices that can be counted"):
        made[2].account_of(slots={number: {0: [1]}})


def test_account__of_one_program__leaves_the_other_assumed(graph: Graph) -> None:
    flag = graph.variable(bool_, (), "flag").map(0)
    executable = compile_program(graph, [If(flag, Sequence(If(flag, Sequence()))), If(flag, If(flag, Sequence()))])
    assert executable.report.graph["num_assumed_steps"] == 2
    account = executable.account_of([1, 1, 1, 0], programs=[0])
    assert executable.report_of(account).graph["num_assumed_steps"] == 1
    assert account.assumed.tolist() == [False, False, False, True]
    assert executable.report.graph["num_assumed_steps"] == 2


def test_executable__whatever_is_made_of_it__cannot_be_changed(made: tuple) -> None:
    executable = made[2]
    with pytest.raises(FrozenInstanceError):
        executable.plan = ()
    with pytest.raises(TypeError):
        executable.meta["name"] = "other"
    with pytest.raises(TypeError):
        executable.compile_seconds["lower"] = 0.0
    for array in (executable.executions, executable.assumptions.assumed, executable.account_of([4]).executions):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7
    assert isinstance(executable.plan, tuple)
    assert isinstance(executable.steps, tuple)
    assert isinstance(executable.lowered.programs[0].items, tuple)


def test_with_meta__gives_another_executable__with_further_entries(made: tuple) -> None:
    named = made[2].with_meta(name="saxpy")
    assert named.report.meta["name"] == "saxpy"
    assert "name" not in made[2].report.meta
    assert named.plan is made[2].plan
