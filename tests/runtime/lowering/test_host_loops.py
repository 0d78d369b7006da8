"""Loops of kernels in which variables move on, where a host runs them in place of other steps."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import ControlProgramError
from abele.graph import Copy, Graph, HostLoop, PrintTensor, Sequence
from abele.kernels.nest import ir
from abele.numerics import f32
from abele.runtime import Engine

KERNEL = ir.HostKernel(
    ((4,), (4,), (4,)),
    (f32,) * 3,
    2,
    1,
    (ir.nest({"i": 4}, ir.store(2, ("i",), ir.load(0, "i") + ir.load(1, "i"))),),
)


def _running_sums(backwards: bool):
    """A program of running sums of five rows on hosts, whose vertices do nothing."""
    graph = Graph("bow-2000:1")
    x = graph.variable("f32", (5, 4), name="x").map(0)
    sums = graph.variable("f32", (6, 4), name="sums").map(0)
    steps, body, host = Sequence(), Sequence(), Sequence()
    at, before, after = (4, 5, 4) if backwards else (0, 0, 1)
    with graph.library_call(
        body, "test.add", inputs=(x[at], sums[before]), outputs=(sums[after],), kernel=KERNEL, debug_name="add"
    ):
        pass
    stride = -4 if backwards else 4
    variables = [t.strided().variable for t in (x, sums)]
    host.add(HostLoop(5, body, dict.fromkeys(variables, stride)))
    steps.host_body = host
    steps.add(Copy(x, sums[:5]))
    return graph, steps, x, sums


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("backwards", [False, True])
def test_host_loop__variables_that_move_on__each_trip_sees_its_own_rows(backwards, threads):
    graph, steps, x, sums = _running_sums(backwards)
    rows = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    with Engine(graph, steps, threads=threads, keep=[x, sums]) as engine:
        for _ in range(2):
            engine[x], engine[sums] = rows, np.zeros((6, 4), np.float32)
            engine.run()
            ordered = rows[::-1] if backwards else rows
            wanted = np.concatenate([np.zeros((1, 4), np.float32), np.cumsum(ordered, axis=0, dtype=np.float32)])
            np.testing.assert_allclose(engine[sums][::-1] if backwards else engine[sums], wanted, rtol=1e-6)


def test_host_loop__as_placed__the_steps_it_stands_for_run():
    graph, steps, x, sums = _running_sums(False)
    rows = np.arange(20, dtype=np.float32).reshape(5, 4)
    with Engine(graph, steps, mode="tiles", keep=[x, sums]) as engine:
        engine[x], engine[sums] = rows, np.zeros((6, 4), np.float32)
        engine.run()
        np.testing.assert_array_equal(engine[sums][:5], rows)


def test_host_loop__the_model__knows_nothing_of_it():
    graph, steps, _, _ = _running_sums(False)
    with Engine(graph, steps) as engine:
        counted = engine.report.cycles()
    steps.host_body = None
    with Engine(graph, steps) as engine:
        assert engine.report.cycles() == counted
    assert counted.total > 0


def test_host_loop__a_step_without_a_kernel__the_steps_it_stands_for_run():
    graph, steps, x, sums = _running_sums(False)
    steps.host_body.steps[0].body.add(PrintTensor(x))
    rows = np.arange(20, dtype=np.float32).reshape(5, 4)
    with Engine(graph, steps, keep=[x, sums]) as engine:
        engine[x], engine[sums] = rows, np.zeros((6, 4), np.float32)
        engine.run()
        np.testing.assert_array_equal(engine[sums][:5], rows)


def test_host_loop__in_a_program_of_tiles__cannot_be_compiled():
    with pytest.raises(ControlProgramError, match="HostLoop is no program step"):
        Engine(Graph("bow-2000:1"), Sequence(HostLoop(2, Sequence(), {})))


def test_host_loop__bad_arguments__typed_errors():
    with pytest.raises(ControlProgramError, match="the body of a HostLoop is"):
        HostLoop(2, PrintTensor(Graph("bow-2000:1").variable("f32", (1,), name="x")), {})
    with pytest.raises(ControlProgramError, match="a HostLoop runs a number of times"):
        HostLoop("two", Sequence(), {})


@pytest.mark.parametrize("stride", [5, -1])
def test_host_loop__views_that_leave_their_variable__are_refused(stride):
    _, steps, x, _ = _running_sums(False)
    with pytest.raises(ControlProgramError, match="a view of x leaves it in the 5 trips of a loop"):
        HostLoop(5, steps.host_body.steps[0].body, {x.variables[0]: stride})
