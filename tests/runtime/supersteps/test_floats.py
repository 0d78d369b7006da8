"""Floating-point behaviour: exceptions that stop the program, rounding modes and hardware seeds."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from abele.codelet import CompiledCodelet, InOut, Input, Output, Vector, Vertex, codelet
from abele.errors import ApplicationRuntimeError, ControlProgramError
from abele.graph import (
    Execute,
    FloatingPointBehaviour,
    GetHwSeeds,
    Graph,
    Repeat,
    Sequence,
    SetFloatingPointBehaviour,
    SetHwSeeds,
)
from abele.kernels import plan_native
from abele.kernels.nest.ir import HostKernel, load, nest, store
from abele.numerics import f16, f32
from abele.poplibs import popops
from abele.runtime import Engine
from abele.runtime.native import plan_runs

NATIVE = [{"mode": mode, "threads": threads} for mode in ("native", "tiles") for threads in (1, 2)]
WAYS = [*NATIVE, {"debug": True, "threads": 2}]
REST = [pytest.mark.slow, pytest.mark.rest]
"""Marks of ways of which plain runs have each mode and each number of threads already."""
KINDS = {"invalid": "an invalid operation", "divide_by_zero": "a division by zero", "overflow": "an overflow"}


@pytest.fixture(
    params=[pytest.param(way, marks=REST * (n in (1, 2))) for n, way in enumerate(NATIVE)],
    ids=lambda way: "-".join(map(str, way.values())),
)
def native(request):
    return request.param


@codelet
class Divide(Vertex):
    a: Input[Vector[f32]]
    b: Input[Vector[f32]]
    c: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.c)):
            self.c[i] = self.a[i] / self.b[i]


@codelet
class SafeDivide(Vertex):
    a: Input[Vector[f32]]
    b: Input[Vector[f32]]
    c: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.c)):
            self.c[i] = self.a[i] / self.b[i] if self.b[i] != 0.0 else 0.0


@codelet
class Raise16(Vertex):
    x: InOut[Vector[f16]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] = self.x[i] * 256.0


def _division(vertex=Divide, size: int = 40, **behaviour: bool):
    """A graph that divides a by b on two tiles under a behaviour, and its programs: set it, divide."""
    graph = Graph("bow-2000")
    a, b, c = (graph.variable("f32", (2, size), n, initial=1.0).map_rows([3, 5]) for n in "abc")
    compute_set = graph.compute_set("division")
    compute_set.vertices(vertex, tile=[3, 5], a=a, b=b, c=c)
    return graph, [SetFloatingPointBehaviour(**behaviour), Execute(compute_set)]


OPERANDS = {"invalid": (0.0, 0.0), "divide_by_zero": (-3.0, 0.0), "overflow": (1e30, 1e-30)}


@pytest.mark.parametrize("kind", OPERANDS)
def test_exception__that_is_on__ends_the_run_and_names_the_vertex(native, kind):
    graph, programs = _division(**{kind: True})
    with Engine(graph, programs, **native) as engine:
        engine.run(0)
        engine.run(1)
        (operands := np.ones((2, 2, 40), "f4"))[:, 1, 17] = OPERANDS[kind]
        engine["a"], engine["b"] = operands
        with pytest.raises(ApplicationRuntimeError, match=f"{KINDS[kind]} in compute set 'division'") as caught:
            engine.run(1)
        assert "vertex 1 of 2 × Divide on tile 5" in caught.value.because
        assert "test_floats.py" in caught.value.at
        engine["a"] = 1.0
        engine["b"] = 2.0
        engine.run(1)
        assert (engine["c"] == 0.5).all()


@pytest.mark.parametrize("kind", OPERANDS)
def test_exception__that_is_off__is_not_seen(native, kind):
    others = {name: name != kind for name in KINDS}
    graph, programs = _division(**others)
    with Engine(graph, programs, **native) as engine:
        (operands := np.ones((2, 2, 40), "f4"))[:, 1, 17] = OPERANDS[kind]
        engine["a"], engine["b"] = operands
        engine.run(1)
        engine.run(0)
        engine.run(1)
        assert not np.isfinite(engine["c"][1, 17])


@pytest.mark.parametrize("kind", OPERANDS)
def test_exception__in_debug_mode__ends_the_run_too(kind):
    graph, programs = _division(invalid=True, divide_by_zero=True, overflow=True)
    with Engine(graph, programs, debug=True) as engine:
        (operands := np.ones((2, 2, 40), "f4"))[:, 1, 17] = OPERANDS[kind]
        engine["a"], engine["b"] = operands
        engine.run(0)
        with pytest.raises(ApplicationRuntimeError, match=KINDS[kind]):
            engine.run(1)


def test_exception__of_numbers_that_were_not_finite_before__is_none(native):
    graph, programs = _division(invalid=True, divide_by_zero=True, overflow=True)
    with Engine(graph, programs, **native) as engine:
        a = np.ones((2, 40), "f4")
        a[0, 3], a[1, 4] = np.nan, np.inf
        engine["a"] = a
        engine.run(0)
        engine.run(1)
        np.testing.assert_array_equal(engine["c"], a)


def test_exception__of_a_branch_that_is_not_taken__is_none(native):
    graph, programs = _division(SafeDivide, invalid=True, divide_by_zero=True, overflow=True)
    with Engine(graph, programs, **native) as engine:
        engine["b"] = np.arange(80).reshape(2, 40) % 3
        engine.run(0)
        engine.run(1)
        assert np.isfinite(engine["c"]).all()


def test_overflow__of_f16__is_found(native):
    graph = Graph("bow-2000")
    x = graph.variable("f16", 20, "x", initial=np.arange(20)).map(0)
    compute_set = graph.compute_set("raise")
    compute_set.vertex(Raise16, tile=0, x=x)
    program = Sequence(SetFloatingPointBehaviour(overflow=True), Repeat(2, Execute(compute_set)))
    with Engine(graph, program, **native) as engine, pytest.raises(ApplicationRuntimeError, match="an overflow"):
        engine.run()


def test_behaviour__stays_on_for_later_programs_until_it_is_switched_off(native):
    graph, (on, divide) = _division(divide_by_zero=True)
    off = SetFloatingPointBehaviour(divide_by_zero=False)
    with Engine(graph, {"on": on, "off": off, "divide": divide}, **native) as engine:
        engine["b"] = 0.0
        engine.run("divide")
        engine.run("on")
        with pytest.raises(ApplicationRuntimeError):
            engine.run("divide")
        engine.run("off")
        engine.run("divide")
        engine.run("on")
        engine.load()
        engine["b"] = 0.0
        engine.run("divide")


def test_exception__in_a_library_call__names_the_compute_set_of_its_body(native):
    graph = Graph("bow-2000")
    a, b, c = (graph.variable("f32", 8, n, initial=1.0).map(0) for n in "abc")
    nests = (nest({"i": 8}, store(2, ("i",), load(0, "i") / load(1, "i"))),)
    kernel = HostKernel(((8,),) * 3, (f32,) * 3, 2, 1, nests)
    program = Sequence(SetFloatingPointBehaviour(divide_by_zero=True))
    with graph.library_call(program, "divide", inputs=(a, b), outputs=(c,), kernel=kernel) as body:
        compute_set = graph.compute_set("inside")
        compute_set.vertex(Divide, tile=0, a=a, b=b, c=c)
        body.add(Execute(compute_set))
    with Engine(graph, program, **native) as engine:
        engine.run()
        engine["b"] = 0.0
        with pytest.raises(ApplicationRuntimeError, match="a division by zero in compute set 'divide/inside'"):
            engine.run()


def test_exception__in_a_replica__names_it():
    graph = Graph("bow-2000", replicas=2)
    a, b, c = (graph.variable("f32", 8, n, initial=1.0).map(0) for n in "abc")
    compute_set = graph.compute_set()
    compute_set.vertex(Divide, tile=0, a=a, b=b, c=c)
    program = Sequence(SetFloatingPointBehaviour(divide_by_zero=True), Execute(compute_set))
    with Engine(graph, program) as engine:
        engine["b"] = np.array([[1.0] * 8, [0.0] * 8])
        with pytest.raises(ApplicationRuntimeError) as caught:
            engine.run()
        assert "vertex 0 of 1 × Divide on tile 0 of replica 1" in caught.value.because


@pytest.mark.parametrize("random", [False, True])
def test_overflow__while_it_is_switched_off__is_held_at_the_largest_number(native, random):
    graph = Graph("bow-2000")
    x = graph.variable("f16", (4, 3), "x", initial=1000.0).map_rows(range(4))
    compute_set = graph.compute_set("raise")
    compute_set.vertices(Raise16, tile=range(4), x=x)
    hold = SetFloatingPointBehaviour(nan_on_overflow=False, stochastic_rounding=random)
    back = SetFloatingPointBehaviour(nan_on_overflow=True, stochastic_rounding=False)
    programs = {"held": Sequence(hold, Execute(compute_set), back), "plain": Execute(compute_set)}
    with Engine(graph, programs, **native) as engine:
        engine.run("held")
        np.testing.assert_array_equal(engine["x"], np.finfo(np.float16).max)
        engine["x"] = np.full((4, 3), 1000, np.float16)
        engine.run("plain")
        assert np.isinf(engine["x"]).all()


def test_overflow__held_in_debug_mode__is_refused():
    graph = Graph("bow-2000")
    x = graph.variable("f16", (4, 3), "x", initial=1000.0).map_rows(range(4))
    compute_set = graph.compute_set("raise")
    compute_set.vertices(Raise16, tile=range(4), x=x)
    program = Sequence(SetFloatingPointBehaviour(nan_on_overflow=False), Execute(compute_set))
    with pytest.raises(ControlProgramError, match="cannot be held at the largest number by interpreted vertices"):
        Engine(graph, program, debug=True)


def test_behaviour__has_the_machines_fields():
    assert FloatingPointBehaviour() == FloatingPointBehaviour(True, True, True, False, True)


# Seeds


def _seeds(graph: Graph, name: str):
    shape = (graph.num_tiles, graph.system.ipu.num_workers, 4)
    return graph.variable("u32", shape, name).map_linear()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("replicas", [1, 2])
def test_seeds__that_were_set__are_read_back(way, replicas):
    graph = Graph("bow-2000", replicas=replicas)
    given, got = _seeds(graph, "given"), _seeds(graph, "got")
    values = np.random.default_rng(3).integers(0, 1 << 32, (replicas, *given.shape), dtype=np.uint32)
    with Engine(graph, Sequence(SetHwSeeds(given), GetHwSeeds(got)), **way) as engine:
        engine["given"] = values if replicas > 1 else values[0]
        engine.run()
        np.testing.assert_array_equal(engine["got"].reshape(values.shape), values)


def test_seeds__of_another_shape__are_refused():
    graph = Graph("bow-2000")
    x = graph.variable("u32", 4, "x").map(0)
    with pytest.raises(ControlProgramError, match=r"SetHwSeeds needs u32\[\d+, 6, 4\] \(tiles, workers, 4\)"):
        Engine(graph, SetHwSeeds(x))


# Random rounding


class _Drawn:
    """Stands for the code of a codelet that rounds at random: writes down what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        self._function = kind(lambda begin, end, tables, seed: self.calls.append((begin, end, seed)))
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value

    def take(self) -> list[tuple[int, int, int]]:
        calls, self.calls = sorted(self.calls), []
        return calls


@pytest.fixture
def drawn(monkeypatch):
    found = _Drawn()
    monkeypatch.setattr(CompiledCodelet, "run_stochastic", found.address, raising=False)
    return found


def _rounding(replicas: int = 1):
    """Programs that round two supersteps at random, set and get the seeds; and the same without random rounding."""
    graph = Graph("bow-2000", replicas=replicas)
    x = graph.variable("f16", (8, 4), "x", initial=1.0).map_rows(range(8))
    seeds = _seeds(graph, "seeds")
    sets = [graph.compute_set(n) for n in ("one", "two")]
    for compute_set in sets:
        compute_set.vertices(Raise16, tile=range(8), x=x)
    both = Sequence(*(Execute(s) for s in sets))
    on, off = (SetFloatingPointBehaviour(stochastic_rounding=flag) for flag in (True, False))
    programs = {"random": Sequence(on, both, off), "nearest": both, "set": SetHwSeeds(seeds), "get": GetHwSeeds(seeds)}
    return graph, programs


def test_stochastic_rounding__draws_anew_each_time_and_replays_from_equal_seeds(native, drawn):
    graph, programs = _rounding()
    with Engine(graph, programs, **native) as engine:
        engine.run("get")
        engine.run("random")
        first = drawn.take()
        engine.run("random")
        second = drawn.take()
        seeds = {seed for *_, seed in first + second}
        assert len(seeds) == 4
        assert sum(end - begin for begin, end, _ in first) == 16
        engine.run("set")
        engine.run("random")
        assert drawn.take() == first
        engine.run("get")
        middle = engine["seeds"]
        engine.run("random")
        assert drawn.take() == second
        engine["seeds"] = middle
        engine.run("set")
        engine.run("random")
        assert drawn.take() == second
        engine["seeds"] = middle + np.uint32(1)
        engine.run("set")
        engine.run("random")
        assert seeds.isdisjoint(seed for *_, seed in drawn.take())


def test_stochastic_rounding__off__rounds_to_nearest(native, drawn):
    graph, programs = _rounding()
    with Engine(graph, programs, **native) as engine:
        engine.run("nearest")
        assert drawn.take() == []
        assert np.isinf(engine["x"]).all()


def test_stochastic_rounding__of_replicas_with_equal_seeds__is_equal(drawn):
    graph, programs = _rounding(replicas=2)
    with Engine(graph, programs, threads=1) as engine:
        engine.run("random")
        calls = drawn.take()
        assert sorted(calls) == sorted(2 * sorted(set(calls)))
        seeds = engine["seeds"]
        seeds[1] += np.uint32(5)
        engine["seeds"] = seeds
        engine.run("set")
        engine.run("random")
        assert len(set(drawn.take())) == 4


def test_stochastic_rounding__in_debug_mode__is_refused():
    graph, programs = _rounding()
    with pytest.raises(ControlProgramError, match="cannot be rounded at random by interpreted vertices"):
        Engine(graph, programs, debug=True)


# Host kernels


def _scaling(replicas: int = 1, behaviour: tuple[dict[str, bool], ...] = ()):
    """Programs that switch the behaviour, and one with a library call: y times a bit above one."""
    graph = Graph("bow-2000", replicas=replicas)
    y = graph.variable("f16", (64, 64), "y", initial=1.0).map_rows(range(64))
    seeds = _seeds(graph, "seeds")
    multiply = Sequence()
    popops.mul_in_place(graph, y, 1.0 + 2.0**-12, prog=multiply)
    switches = {f"set{n}": SetFloatingPointBehaviour(**fields) for n, fields in enumerate(behaviour)}
    return graph, {**switches, "multiply": multiply, "set": SetHwSeeds(seeds), "get": GetHwSeeds(seeds)}


def test_kernels__rounding_switched_while_programs_run__is_that_of_the_moment(native):
    graph, programs = _scaling(behaviour=({"stochastic_rounding": True}, {"stochastic_rounding": False}))
    with Engine(graph, programs, **native) as engine:
        engine.run("multiply")
        assert (engine["y"] == 1).all()
        engine.run("set0")
        engine.run("multiply")
        up = (engine["y"] > 1).mean()
        assert abs(up - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4096)
        before = engine["y"]
        engine.run("set1")
        engine.run("multiply")
        np.testing.assert_array_equal(engine["y"], before)


def test_kernels__held_at_the_largest_number_and_back__follow(native):
    both = {"nan_on_overflow": False, "stochastic_rounding": True}
    graph, programs = _scaling(behaviour=(both, {"stochastic_rounding": False}, {"nan_on_overflow": True}))
    with Engine(graph, programs, **native) as engine:
        for switch, wanted in (("set0", 65504.0), ("set1", 65504.0), ("set2", np.inf)):
            engine.run(switch)
            engine["y"] = np.full((64, 64), 65504, np.float16)
            for _ in range(3):
                engine.run("multiply")
            # A quarter of a step beyond the largest number rounds to nearest there.
            assert (engine["y"] == (65504.0 if switch == "set2" else wanted)).all()
        engine["y"] = np.full((64, 64), 65504, np.float16)
        engine.run("set0")
        engine.run("set2")
        engine.run("multiply")
        assert np.isinf(engine["y"]).any()


def test_kernels__draw_anew_each_time_and_replay_from_equal_seeds(native):
    graph, programs = _scaling(behaviour=({"stochastic_rounding": True},))
    with Engine(graph, programs, **native) as engine:
        engine.run("set0")

        def drawn() -> np.ndarray:
            engine["y"] = np.ones((64, 64), np.float16)
            engine.run("multiply")
            return engine["y"]

        engine.run("get")
        seeds = engine["seeds"]
        first, second = drawn(), drawn()
        # Words of one element over time are as good as others.
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 4 / 64
        engine["seeds"] = seeds
        engine.run("set")
        np.testing.assert_array_equal(drawn(), first)
        np.testing.assert_array_equal(drawn(), second)


@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_kernels__of_replicas__round_alike_while_their_seeds_are_equal(mode):
    graph, programs = _scaling(replicas=2, behaviour=({"stochastic_rounding": True},))
    with Engine(graph, programs, mode=mode) as engine:
        engine.run("set0")
        engine.run("multiply")
        y = engine["y"]
        assert 0 < (y[0] > 1).sum() < y[0].size
        np.testing.assert_array_equal(y[0], y[1])
        engine.run("get")
        seeds = engine["seeds"]
        seeds[1] += np.uint32(9)
        engine["seeds"] = seeds
        engine.run("set")
        engine.run("multiply")
        assert (engine["y"][0] != engine["y"][1]).any()


@pytest.mark.parametrize(("switches", "planned"), [(1, ["random"]), (2, ["random", "nearest"])])
def test_kernels__are_planned_for_the_roundings_that_can_be_on(monkeypatch, switches: int, planned: list[str]):
    asked = []

    def plan(buffers, calls, rounding=None):
        asked.append("nearest" if rounding is None else "random")
        return plan_native(buffers, calls, rounding)

    monkeypatch.setattr(plan_runs, "plan_native", plan)
    graph, programs = _scaling(behaviour=({"stochastic_rounding": True}, {"stochastic_rounding": False}))
    program = Sequence(programs["set0"], programs["multiply"], *([programs["set1"]] if switches > 1 else []))
    with Engine(graph, program) as engine:
        engine.run()
        assert (engine["y"] > 1).any()
    assert sorted(asked) == sorted(planned)
