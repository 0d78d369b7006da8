"""The life of an engine: loading, host handles, programs by name, closing."""

from __future__ import annotations

import numpy as np
import pytest

from abele.codelet import CompiledCodelet, InOut, Input, Output, Vector, Vertex, codelet
from abele.errors import ApplicationRuntimeError, ControlProgramError, EngineError, TensorAccessError
from abele.graph import Copy, Execute, Graph, Sequence
from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.numerics import f16, f32, i32
from abele.runtime import Engine


@codelet
class Step(Vertex):
    x: InOut[Vector[f32]]
    by: f32
    count: i32

    def compute(self):
        self.count += 1
        for i in range(len(self.x)):
            self.x[i] += self.by * self.count


@codelet
class Third(Vertex):
    x: Input[Vector[f16]]
    y: Output[Vector[f16]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = f32(self.x[i]) / 3.0


@codelet
class Divide(Vertex):
    a: Input[Vector[f32]]
    b: InOut[Vector[f32]]

    def compute(self):
        for i in range(len(self.a)):
            self.b[i] = self.a[i] / self.b[i]


def _counting() -> tuple[Graph, Execute]:
    graph = Graph("bow-2000")
    x = graph.variable(f32, 3, "x", initial=[1, 2, 3]).map(0)
    graph.variable(f32, 2, "other").map(0)
    step = graph.compute_set("step")
    step.vertex(Step, tile=0, x=x, by=10.0, count=0)
    return graph, Execute(step)


@pytest.mark.parametrize("debug", [False, True])
def test_load__after_runs__brings_contents_and_state_back(debug):
    graph, step = _counting()
    with Engine(graph, Sequence(step, step), debug=debug) as engine:
        engine.run()
        np.testing.assert_array_equal(engine["x"], [31, 32, 33])
        engine.run()
        np.testing.assert_array_equal(engine["x"], [101, 102, 103])
        engine.load()
        np.testing.assert_array_equal(engine["x"], [1, 2, 3])
        assert engine.load_and_run()
        np.testing.assert_array_equal(engine["x"], [31, 32, 33])


def test_run__after_close__starts_threads_again():
    graph, step = _counting()
    with Engine(graph, step) as engine:
        engine.run()
    engine.run()
    engine.close()
    engine.close()
    np.testing.assert_array_equal(engine["x"], [31, 32, 33])


def test_programs__by_index_and_by_name__are_the_ones_given():
    graph, step = _counting()
    programs = {"one": step, "two": Sequence(step, step)}
    with Engine(graph, programs) as engine:
        assert list(engine.programs) == ["one", "two"]
        assert engine.programs["two"] is programs["two"]
        engine.run("two")
        engine.run(0)
        np.testing.assert_array_equal(engine["x"], [61, 62, 63])
        with pytest.raises(EngineError, match="did you mean 'two'"):
            engine.run("tow")
        with pytest.raises(EngineError, match="no program 2: the engine has 2"):
            engine.run(2)


# --- host handles ----------------------------------------------------------------------------------------------------


@pytest.fixture
def exposed() -> Engine:
    graph, step = _counting()
    x, other = (graph.whole(graph.find(n)[0]) for n in ("x", "other"))
    graph.expose(x[::2], "ends")
    graph.expose(x, "x-in", readable=False)
    graph.expose(x, "x-out", writable=False)
    graph.expose(x[1:], "other")
    assert other.size == 2
    return Engine(graph, step)


def test_handle__of_a_view__is_read_and_written_by_name(exposed):
    np.testing.assert_array_equal(exposed["ends"], [1, 3])
    exposed["ends"] = [5, 6]
    np.testing.assert_array_equal(exposed["x-out"], [5, 2, 6])
    exposed["x-in"] = 4
    np.testing.assert_array_equal(exposed["x"], [4, 4, 4])


def test_handle__with_the_name_of_a_variable__is_found_first(exposed):
    exposed["other"] = [8, 9]
    np.testing.assert_array_equal(exposed["x"], [1, 8, 9])


def test_handle__that_may_not_be_read_or_written__is_refused_with_its_line(exposed):
    with pytest.raises(TensorAccessError, match=r"the host cannot read 'x-in': .* to be written only") as caught:
        exposed.read("x-in")
    assert __file__ in str(caught.value)
    assert "did you mean 'x-out'?" in str(caught.value)
    with pytest.raises(TensorAccessError, match=r"the host cannot write 'x-out': .* to be read only") as caught:
        exposed.write("x-out", 1)
    assert "did you mean 'x-in'?" in str(caught.value)


def test_handle__misspelt__names_the_nearest(exposed):
    with pytest.raises(EngineError, match="did you mean 'ends'"):
        _ = exposed["edns"]


def test_handle__of_a_value_between_kernels__is_kept():
    graph = Graph("bow-2000")
    a, b, c = (graph.variable("f32", 4, n).map(0) for n in "abc")
    kernel = HostKernel(((4,),) * 2, (f32,) * 2, 1, 1, (nest({"i": 4}, store(1, ("i",), load(0, "i") + 1.0)),))
    body = Sequence()
    for source, target in ((a, b), (b, c)):
        with graph.library_call(body, "plus_one", inputs=(source,), outputs=(target,), kernel=kernel):
            pass
    graph.expose(b, "between", writable=False)
    with Engine(graph, body) as engine:
        engine["a"] = 1.0
        engine.run()
        np.testing.assert_array_equal(engine["between"], 2)
        np.testing.assert_array_equal(engine["c"], 3)


def test_option__float_exceptions__are_on_from_the_start():
    graph = Graph("bow-2000")
    a, b = (graph.variable(f32, 4, n, initial=v).map(0) for n, v in (("a", [1, 2, 0, 4]), ("b", [1, 1, 0, 1])))
    step = graph.compute_set("divide")
    step.vertex(Divide, tile=0, a=a, b=b)
    with Engine(graph, Execute(step)) as engine:
        assert engine.run()
    with Engine(graph, Execute(step), options={"debug.floatPointOpException": "true"}) as engine:
        with pytest.raises(ApplicationRuntimeError, match="an invalid operation"):
            engine.run()
        engine.load()
        engine["b"] = 2.0
        assert engine.run()


def test_copy_of_a_handle__in_a_program__does_not_close_it(exposed):
    graph = exposed.graph
    x = graph.whole(graph.find("x")[0])
    y = graph.variable(f32, 3, "y").map(0)
    graph.expose(y, "y handle")
    with Engine(graph, Copy(x, y)) as engine:
        engine.run()
        np.testing.assert_array_equal(engine["y handle"], [1, 2, 3])


def _thirds(**options: object) -> np.ndarray:
    graph = Graph("bow-2000")
    x, y = (graph.variable("f16", 2000, n, initial=1.0).map(0) for n in "xy")
    step = graph.compute_set("thirds")
    step.vertex(Third, tile=0, x=x, y=y)
    with Engine(graph, Execute(step), mode="tiles", options=options) as engine:
        engine.run()
        return engine["y"].astype(np.float64)


def test_option__stochastic_rounding__is_on_from_the_start_and_follows_the_seed():
    on = {"prng.enableStochasticRounding": "true"}
    if not hasattr(CompiledCodelet, "run_stochastic"):
        with pytest.raises(ControlProgramError, match="the results of Third cannot be rounded at random"):
            _thirds(**on)
        return
    nearest = np.float16(1 / 3)
    beyond = np.nextafter(nearest, np.float16(1 if float(nearest) < 1 / 3 else 0))
    below, above = sorted((float(nearest), float(beyond)))
    assert set(_thirds()) == {float(nearest)}
    first, again, other = (_thirds(**on, **{"prng.seed": seed}) for seed in (1, 1, 2))
    assert set(first) == {below, above}
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    # The mean of 2,000 draws is within five standard deviations of the exact third.
    assert abs(first.mean() - 1 / 3) < 5 * (above - below) / 2 / np.sqrt(2000)
