"""Checks: a wrong program is caught with the right names, a right one passes; off, they change nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import InOut, Input, MultiVertex, Output, Vector, Vertex, codelet
from abele.errors import (
    AbeleError,
    ApplicationRuntimeError,
    CodeletAccessError,
    InvalidOptionError,
    UninitialisedReadError,
)
from abele.graph import (
    Call,
    Copy,
    Execute,
    Graph,
    If,
    Program,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    WriteUndef,
    concat,
)
from abele.numerics import f32, i32
from abele.runtime import Checks, Engine
from support import vertices
from support.examples import examples
from support.vertices import AddOne, OutOfRange

UNINITIALISED = Checks(uninitialised=True)


@codelet
class Some(Vertex):
    """Reads and writes only the first ``count`` elements of its fields."""

    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    z: InOut[Vector[f32]]
    count: Input[i32]

    def compute(self):
        for i in range(self.count):
            self.y[i] = self.x[i]
            self.z[i] = self.x[i]


@codelet
class Rows(Vertex):
    rows: Vector[Input[Vector[f32]]]
    out: Output[f32]

    def compute(self):
        total = f32(0)
        for r in range(len(self.rows)):
            for i in range(len(self.rows[r])):
                total += self.rows[r][i]
        self.out = total


@codelet
class Root(Vertex):
    x: Input[Vector[f32]]
    y: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = (self.x[i] - 1.0) / (self.x[i] - 1.0)


@codelet
class Ordered(MultiVertex):
    """Wrong: each worker reads what the one before it wrote."""

    x: InOut[Vector[i32]]

    def compute(self, worker_id):
        if worker_id == 0:
            self.x[0] += 1
        else:
            self.x[worker_id] = self.x[worker_id - 1]


@codelet
class Shared(MultiVertex):
    x: InOut[Vector[i32]]

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), 6):
            self.x[i] += worker_id


class Fixture:
    """Two variables of three rows, one row per tile."""

    def __init__(self) -> None:
        self.graph = Graph("bow-2000")
        self.x, self.y, self.z = (self.graph.variable(f32, (3, 4), n).map_rows(range(3)) for n in "xyz")

    def add_one(self, source=None, target=None) -> Execute:
        step = self.graph.compute_set("add one")
        x, y = (self.x if source is None else source), (self.y if target is None else target)
        step.vertices(AddOne, tile=range(3), x=x, y=y)
        return Execute(step)

    def some(self, count: int) -> Execute:
        number = self.graph.variable(i32, 3, "count", initial=count).map(0)
        step = self.graph.compute_set("some")
        step.vertices(Some, tile=range(3), x=self.x, y=self.y, z=self.z, count=number)
        return Execute(step)

    def engine(self, program: Program, checks: Checks | str | None = UNINITIALISED, **options) -> Engine:
        return Engine(self.graph, program, checks=checks, threads=2, **options)


def _caught(engine: Engine, kind: type[AbeleError] = UninitialisedReadError) -> str:
    with pytest.raises(kind) as caught:
        engine.run()
    return str(caught.value)


# --- uninitialised reads ---------------------------------------------------------------------------------------------


def test_uninitialised__vertex_that_reads_it__is_named_with_field_tile_and_lines():
    made = Fixture()
    with made.engine(made.add_one()) as engine:
        engine[made.x[:2]] = np.ones((2, 4))
        engine[made.x[2, 1:]] = np.ones(3)
        text = _caught(engine)
        assert "element [2, 0] of variable 'x' is read as AddOne.x[0], and nothing has written it" in text
        assert re.search(rf"at +{re.escape(vertices.__file__)}:\d+\n +vertex 2 of 3 × AddOne on tile 2\n", text)
        assert re.search(rf"compute set 'add one', made at {re.escape(__file__)}:\d+", text)
        assert re.search(rf"because +'x' was made at {re.escape(__file__)}:\d+", text)
        engine[made.x[2, 0]] = 1
        assert engine.run()
        np.testing.assert_array_equal(engine["y"], 2)


def test_uninitialised__row_of_a_vector_of_vectors__is_named():
    graph = Graph("bow-2000")
    x, out = graph.variable(f32, (2, 3), "x").map(0), graph.variable(f32, 1, "out").map(0)
    step = graph.compute_set("rows")
    step.vertex(Rows, tile=0, rows=[x[0], x[1]], out=out[0])
    with Engine(graph, Execute(step), checks=UNINITIALISED) as engine:
        engine[x.flatten()[:5]] = np.ones(5)
        assert "element [1, 2] of variable 'x' is read as Rows.rows[1][2]" in _caught(engine)


def test_uninitialised__what_a_vertex_only_might_read__is_no_error():
    made = Fixture()
    with made.engine(made.some(2)) as engine:
        engine[made.x[:, :2]] = np.ones((3, 2))
        assert engine.run()
        np.testing.assert_array_equal(engine["y"][:, :2], 1)


@pytest.mark.parametrize("name", ["y", "z"])
def test_uninitialised__output_that_a_vertex_left_out__is_not_there_for_the_next(name):
    made = Fixture()
    source = {"y": made.y, "z": made.z}[name]
    later = made.graph.variable(f32, (3, 4), "later").map_rows(range(3))
    with made.engine(Sequence(made.some(3), made.add_one(source, later))) as engine:
        engine["x"] = np.ones((3, 4))
        assert f"element [0, 3] of variable '{name}' is read as AddOne.x[3]" in _caught(engine)


def test_uninitialised__output_written_before__is_undefined_again_where_the_vertex_leaves_it_out():
    made = Fixture()
    with made.engine(Sequence(made.some(3), Copy(made.y, made.z))) as engine:
        for name in "xyz":
            engine[name] = np.ones((3, 4))
        text = _caught(engine)
        assert "element [0, 3] of variable 'y' is read, and nothing has written it" in text
        assert f"Copy, made at {__file__}" in text


def test_uninitialised__inout_that_a_vertex_leaves_out__stays_as_it_was():
    made = Fixture()
    with made.engine(Sequence(made.some(3), Copy(made.z, made.x))) as engine:
        engine["x"] = np.ones((3, 4))
        engine["z"] = np.zeros((3, 4))
        assert engine.run()
        np.testing.assert_array_equal(engine["x"], [[1, 1, 1, 0]] * 3)


def test_uninitialised__output_in_place_of_an_input__is_not_poisoned_before_it_is_read():
    made = Fixture()
    with made.engine(made.add_one(made.x, made.x)) as engine:
        engine["x"] = np.ones((3, 4))
        assert engine.run()
        np.testing.assert_array_equal(engine["x"], 2)


def test_uninitialised__scattered_regions__are_followed():
    graph = Graph("bow-2000")
    x, y = (graph.variable(f32, (4, 3), n).map(0) for n in "xy")
    step = graph.compute_set("columns")
    step.vertices(AddOne, tile=range(3), x=x.T, y=y.T)
    check = graph.variable(f32, (4, 3), "check").map(0)
    with Engine(graph, Sequence(Execute(step), Copy(y, check)), checks=UNINITIALISED) as engine:
        engine[x[:3]] = np.zeros((3, 3))
        assert "element [3, 0] of variable 'x' is read as AddOne.x[3]" in _caught(engine)
        engine["x"] = np.zeros((4, 3))
        assert engine.run()
        np.testing.assert_array_equal(engine["check"], 1)


def _copy_of_undefined(made: Fixture) -> Program:
    return Copy(made.x, made.y)


def _after_write_undef(made: Fixture) -> Program:
    stream = made.graph.host_stream_in("in", f32, 12)
    return Sequence(Copy(stream, made.x.flatten()), WriteUndef(made.x[1]), Copy(made.x, made.y))


def _to_the_host(made: Fixture) -> Program:
    return Copy(made.x.flatten(), made.graph.host_stream_out("out", f32, 12))


def _predicate(made: Fixture) -> Program:
    flag = made.graph.variable("bool", 1, "flag").map(0)
    return If(flag[0], Sequence())


def _loop_predicate(made: Fixture) -> Program:
    flag = made.graph.variable(i32, 1, "flag").map(0)
    return RepeatWhileTrue(Sequence(), flag[0], Sequence())


def _function_that_is_called_twice(made: Fixture) -> Program:
    function = made.graph.function(Copy(made.x, made.y))
    return Sequence(Call(function), Call(function))


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (_copy_of_undefined, "element [0, 0] of variable 'x' is read"),
        (_after_write_undef, "element [1, 0] of variable 'x' is read"),
        (_to_the_host, "element [0, 0] of variable 'x' is read"),
        (_predicate, "element [0] of variable 'flag' is read"),
        (_loop_predicate, "element [0] of variable 'flag' is read"),
        (_function_that_is_called_twice, "element [0, 0] of variable 'x' is read"),
    ],
)
def test_uninitialised__step_that_reads_it__is_named_with_its_line(program: Callable[[Fixture], Program], text):
    made = Fixture()
    steps = program(made)
    with made.engine(steps) as engine:
        for stream in made.graph.streams:
            engine.connect(stream, np.zeros(12, np.float32))
        found = _caught(engine)
        assert text in found
        assert re.search(rf"made at {re.escape(__file__)}:\d+, which reads Tensor\(", found)


def test_uninitialised__loop_that_fills_what_it_reads_later__passes():
    made = Fixture()
    counter = made.graph.variable(i32, 1, "counter", initial=[1]).map(0)
    zero = made.graph.constant(i32, 1, [0]).map(0)
    loop = RepeatWhileTrue(Copy(made.x, made.y), counter[0], Copy(zero, counter))
    with made.engine(Sequence(Repeat(2, made.add_one(made.x, made.x)), loop)) as engine:
        engine["x"] = np.ones((3, 4))
        assert engine.run()
        np.testing.assert_array_equal(engine["y"], 3)


def test_uninitialised__loaded_again__is_undefined_again():
    made = Fixture()
    with made.engine(made.add_one()) as engine:
        engine["x"] = np.ones((3, 4))
        assert engine.run()
        engine.load()
        assert "element [0, 0] of variable 'x'" in _caught(engine)


def test_uninitialised__replicas__name_the_replica():
    graph = Graph("bow-2000", replicas=2)
    x, y = (graph.variable(f32, 4, n).map(0) for n in "xy")
    step = graph.compute_set("add one")
    step.vertex(AddOne, tile=0, x=x, y=y)
    with Engine(graph, Execute(step), checks=UNINITIALISED) as engine:
        assert "on tile 0 of replica 0" in _caught(engine)
        engine["x"] = np.ones(4)
        assert engine.run()
        np.testing.assert_array_equal(engine["y"], np.full((2, 4), 2))


@examples(8)
@given(st.data())
def test_uninitialised__random_copies__are_caught_exactly_when_a_read_comes_too_early(data):
    """Against a set of written elements in plain Python."""
    size = 6
    graph = Graph("bow-2000")
    variables = [graph.variable(f32, size, f"v{n}").map(0) for n in range(3)]
    whole = concat(variables)
    written = set(data.draw(st.sets(st.integers(0, 3 * size - 1))))
    written |= set(range(size))
    steps, wrong = Sequence(), None
    values = {i: float(i) for i in written}
    for _ in range(data.draw(st.integers(1, 4))):
        length = data.draw(st.integers(1, size))
        source, target = (data.draw(st.integers(0, 3 * size - length)) for _ in range(2))
        steps.add(Copy(whole[source : source + length], whole[target : target + length]))
        early = [i for i in range(source, source + length) if i not in values]
        if early and wrong is None:
            wrong = early[0]
        if wrong is None:
            values.update({target + k: values[source + k] for k in range(length)})
    with Engine(graph, steps, checks=UNINITIALISED, threads=1) as engine:
        for i in written:
            engine[whole[i]] = float(i)
        if wrong is None:
            assert engine.run()
            assert all(engine[whole[i]] == value for i, value in values.items())
        else:
            assert f"element [{wrong % size}] of variable 'v{wrong // size}'" in _caught(engine)


# --- bounds, inputs, NaN ---------------------------------------------------------------------------------------------


def test_bounds__index_past_the_end__names_vertex_field_index_length_and_tile():
    graph = Graph("bow-2000")
    x, y = graph.variable(f32, (3, 4), "x", initial=0.0).map_rows(range(3)), graph.variable(f32, 3, "y").map(0)
    step = graph.compute_set("too far")
    step.vertices(OutOfRange, tile=[4, 5, 6], x=x, y=y)
    with Engine(graph, Execute(step), checks=Checks(bounds=True)) as engine:
        text = _caught(engine, CodeletAccessError)
    assert "read of OutOfRange.x[4], which has 4 elements" in text
    assert "vertex 0 of 3 × OutOfRange on tile 4" in text
    assert "compute set 'too far', made at" in text


@pytest.mark.parametrize("checks", [Checks(bounds=True), Checks(inputs=True), Checks(nan=True), "all"])
def test_checks__right_program__gives_the_same_values(checks):
    made = Fixture()
    with made.engine(Repeat(2, Sequence(made.add_one(), Copy(made.y, made.x))), checks) as engine:
        engine["x"] = np.ones((3, 4))
        assert engine.run()
        np.testing.assert_array_equal(engine["x"], 3)


def test_nan__compute_set_that_makes_one__is_named():
    made = Fixture()
    step = made.graph.compute_set("root")
    step.vertices(Root, tile=range(3), x=made.y, y=made.z)
    with made.engine(Sequence(made.add_one(), Execute(step)), "nan") as engine:
        engine["x"] = np.ones((3, 4))
        engine[made.x[1, 2:]] = np.zeros(2)
        text = _caught(engine, ApplicationRuntimeError)
        assert "compute set 'root' turns element [1, 2] of variable 'z' NaN, the first of 2" in text
        assert "Root.y[2]" in text
        assert "vertex 1 of 3 × Root on tile 1" in text


@pytest.mark.parametrize("checks", ["nan", "nan,uninitialised"])
def test_nan__that_was_there_before__is_no_error(checks):
    made = Fixture()
    with made.engine(made.add_one(made.x, made.x), checks) as engine:
        engine["x"] = np.full((3, 4), np.nan)
        assert engine.run()
        engine["x"] = np.ones((3, 4))
        assert engine.run()


# --- vertex order ----------------------------------------------------------------------------------------------------


def _workers(kind: type[MultiVertex]) -> tuple[Graph, Execute]:
    graph = Graph("bow-2000")
    x = graph.variable(i32, (3, 6), "x", initial=np.arange(18).reshape(3, 6)).map_rows(range(3))
    step = graph.compute_set("workers")
    step.vertices(kind, tile=range(3), x=x)
    return graph, Execute(step)


def _orders(graph: Graph, program: Program, seeds: range = range(8)) -> list[np.ndarray]:
    found = []
    for seed in seeds:
        with Engine(graph, program, checks=Checks(vertex_order=seed)) as engine:
            engine.run()
            found.append(engine["x"])
    return found


def test_vertex_order__workers_that_depend_on_each_other__show_it():
    graph, program = _workers(Ordered)
    with Engine(graph, program) as engine:
        engine.run()
        usual = engine["x"]
    orders = _orders(graph, program)
    assert any((found != usual).any() for found in orders)
    np.testing.assert_array_equal(_orders(graph, program), orders)


def test_vertex_order__right_program__gives_the_same_bits():
    graph, program = _workers(Shared)
    for found in _orders(graph, program):
        np.testing.assert_array_equal(found, np.arange(18).reshape(3, 6) + np.arange(6))


def test_vertex_order__one_seed_after_load__repeats_its_order():
    graph, program = _workers(Ordered)
    with Engine(graph, program, checks=Checks(vertex_order=3)) as engine:
        results = []
        for _ in range(2):
            engine.load_and_run()
            results.append(engine["x"])
        np.testing.assert_array_equal(*results)


def test_compare_orders__hidden_dependence__is_named_and_leaves_the_engine_alone():
    graph, program = _workers(Ordered)
    with Engine(graph, program) as engine:
        engine["x"] = 0
        with pytest.raises(
            ApplicationRuntimeError, match=r"the order of vertices decides .* of variable 'x'"
        ) as caught:
            engine.compare_orders(seeds=range(8))
        assert "seed" in str(caught.value)
        np.testing.assert_array_equal(engine["x"], 0)


def test_compare_orders__right_program_with_streams__passes():
    graph, program = _workers(Shared)
    x = graph.whole(graph.find("x")[0])
    source, sink = graph.host_stream_in("in", i32, 18), graph.host_stream_out("out", i32, 18)
    steps = Repeat(2, Sequence(Copy(source, x.flatten()), program, Copy(x.flatten(), sink)))
    result = np.zeros(36, np.int32)
    with Engine(graph, steps) as engine:
        engine.connect("in", np.arange(36, dtype=np.int32))
        engine.connect("out", result)
        engine.compare_orders(seeds=range(3))
        assert (result == 0).all()
        engine.run()
        np.testing.assert_array_equal(result, np.arange(36) + np.tile(np.arange(6), 6))


# --- all off ---------------------------------------------------------------------------------------------------------


def _skeleton(engine: Engine) -> list[str]:
    """Operations of the bytecode; addresses differ from engine to engine."""
    return [line.split()[1] for line in engine.listing().splitlines() if re.match(r" *\d+  [A-Z]", line)]


def test_checks__off__change_nothing_in_the_bytecode():
    made = Fixture()
    program = Repeat(2, Sequence(made.add_one(), WriteUndef(made.x), Copy(made.y, made.x)))
    plain = _skeleton(Engine(made.graph, program, mode="tiles", threads=2))
    assert "CALLBACK" not in plain
    for checks in (None, Checks(), ""):
        assert _skeleton(made.engine(program, checks, mode="tiles")) == plain
    assert "CALLBACK" in _skeleton(made.engine(program))


def test_checks__names__are_read():
    assert Checks.of("all") == Checks(uninitialised=True, bounds=True, inputs=True, nan=True, vertex_order=0)
    assert Checks.of("nan, bounds") == Checks(nan=True, bounds=True)
    assert Checks.of(None) == Checks.of("") == Checks()


def test_checks__unknown_name__names_the_nearest():
    made = Fixture()
    with pytest.raises(InvalidOptionError, match="there is no check 'bound'") as caught:
        made.engine(Sequence(), "bound")
    assert "did you mean 'bounds'?" in str(caught.value)
    with pytest.raises(InvalidOptionError, match="checks cannot be True"):
        made.engine(Sequence(), True)  # type: ignore[arg-type]
