"""Networks lowered by substitution are those that the libraries would have built, in every detail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from same_program import described

from abele.compiler import compile_program
from abele.distribution import lowering_cache
from abele.distribution.lowering_cache import Repeats
from abele.distribution.program import NetworkProgram, lower_network
from abele.errors import ControlProgramError, TensorError
from abele.expr.derivative import arg
from abele.graph import Copy, DebugRecord, Graph, PrintTensor, Sequence, Tensor
from abele.graph.vertices import VertexGroup
from abele.machine import systems
from abele.network import Adam, Group, Network, NetworkBuilder, Place, Schedule, Sgd, inference_pipeline
from abele.network import training_pipeline as train
from abele.network.ops import build
from abele.network.passes.place import substituted
from abele.numerics import f32
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1, _2
from abele.runtime import Engine
from support.examples import examples

SMALL = systems.bow_2000().evolve(ipu={"num_tiles": 64})


def one_ipu() -> Graph:
    return Graph(SMALL.with_ipus(1))


def lowered(
    final: Network, schedule: Schedule, groups: list[Group], *, repeats: bool = True, graph: Graph | None = None
) -> NetworkProgram:
    build_again = Repeats.build if repeats else lambda self, what, operands, prog, make, **_: make()
    with patch.object(Repeats, "build", build_again):
        return lower_network(final, graph or one_ipu(), schedule, groups)


def layers(count: int, *, width: int = 8, drop: float = 0.0, file: str = "model.py") -> Network:
    net = NetworkBuilder()
    x = net.input((8, width), "f32", "x")
    for number in range(count):
        with net.at(DebugRecord("layer", f"layers/{number}", file, 5, f"layers.{number} (Layer)")):
            w = net.parameter((width, width), "f32", f"layers.{number}.weight")
            b = net.parameter((width,), "f32", f"layers.{number}.bias")
            y = build.nonlinearity(net, "gelu", build.linear(net, x, w, b))
            y = build.dropout(net, y, drop) if drop else y
            centred = build.map_(net, arg(0) - arg(1), [y, build.mean(net, y, [1], keep=True)])
            x = build.map_(net, arg(0) + arg(1), [x, build.softmax(net, centred, 1)])
    net.output(x)
    net.loss = build.reduce(net, build.map_(net, arg(0) * arg(0), [x]), [0, 1])
    return net.finish()


OPTIMISERS = {
    "sgd": Sgd(lr=0.1, momentum=0.9, dampening=0.1, variable=frozenset({"lr", "dampening"})),
    "adam": Adam(lr=0.01, weight_decay=0.1),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("schedule", [Schedule(), Schedule(device_iterations=2, accumulation=3)])
@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_lower_network__equal_layers__are_what_the_libraries_build(
    optimiser: str, schedule: Schedule, drop: float
) -> None:
    net = layers(4, drop=drop)
    groups = [Group(OPTIMISERS[optimiser], net.parameters)]
    final = train(schedule, groups).run(net)
    made, plain = (lowered(final, schedule, groups, repeats=r) for r in (True, False))
    assert list(described(made.graph, made.program)) == list(described(plain.graph, plain.program))
    assert sum(c.copied is not None for c in made.graph.compute_sets) > len(made.graph.compute_sets) // 3
    assert [g.state.keys() for g in made.groups] == [g.state.keys() for g in plain.groups]


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_lower_network__after_one_with_another_layer__is_what_the_libraries_build(optimiser: str) -> None:
    before, after = (train(Schedule(), (g,)).run(n) for n, g in (grouped(layers(3), optimiser), edited(optimiser)))
    _, group = edited(optimiser)
    lowered(before, Schedule(), [grouped(layers(3), optimiser)[1]])
    with taken() as found:
        made = lowered(after, Schedule(), [group])
    plain = lowered(after, Schedule(), [group], repeats=False)
    assert list(described(made.graph, made.program)) == list(described(plain.graph, plain.program))
    assert sum(found) > 10
    # Nothing of a graph before is the source of a copy: compilers know copies by sources in their own graph.
    sets = set(made.graph.compute_sets)
    assert all(c.copied is None or c.copied.source in sets for c in sets)
    assert all(t.graph is made.graph for c in sets for g in c.groups for t in tensors_of(g))


def grouped(net: Network, optimiser: str) -> tuple[Network, Group]:
    return net, Group(OPTIMISERS[optimiser], net.parameters)


def edited(optimiser: str) -> tuple[Network, Group]:
    """The network of three layers with dropout in it."""
    return grouped(layers(3, drop=0.5), optimiser)


def tensors_of(group: VertexGroup) -> list[Tensor]:
    return [edge.regions.tensor for edge in group.edges.values()]


@contextmanager
def taken() -> Iterator[list[int]]:
    """Numbers of things that graphs made inside took from graphs before."""
    found: list[int] = []
    make = Repeats._from_cache

    def counted(self: Repeats, *args: Any) -> Any:
        found.append(1)
        return make(self, *args)

    with patch.object(Repeats, "_from_cache", counted):
        yield found


def test_lower_network__other_planning_or_machine__takes_nothing_from_before() -> None:
    final = inference_pipeline().run(layers(2))
    lowered(final, Schedule(), [])
    with taken() as found:
        lowered(final, Schedule(), [], graph=Graph(systems.m2000().with_ipus(1)))
        lower_network(final, one_ipu(), Schedule(), planning={"available_memory_proportion": 0.3})
        lowered(final, Schedule(), [], graph=Graph("bow-2000", replicas=4))
    assert not found


def test_lower_network__names_and_lines_of_another_model__are_its_own() -> None:
    lowered(inference_pipeline().run(layers(1)), Schedule(), [])
    with taken() as found:
        made = lowered(inference_pipeline().run(layers(1, file="other.py")), Schedule(), [])
    assert found
    assert not any("⁅" in v.name for v in made.graph.variables)
    assert {c.debug.file for c in made.graph.compute_sets} == {"other.py"}


def test_store__more_than_there_is_room_for__drops_what_was_not_used() -> None:
    final = inference_pipeline().run(layers(2))
    with patch.object(lowering_cache, "CACHE_BYTES", 0):
        lowered(final, Schedule(), [])
    with taken() as found:
        lowered(final, Schedule(), [])
    assert not found


OPS = {
    "gelu": lambda net, x: build.nonlinearity(net, "gelu", x),
    "mean": lambda net, x: build.map_(net, arg(0) - arg(1), [x, build.mean(net, x, [0], keep=True)]),
    "softmax": lambda net, x: build.softmax(net, x, 1),
    "turn": lambda net, x: build.permute(net, build.reshape(net, x, (6, 4)), (1, 0)),
    "shift": lambda net, x: build.concat(net, [build.slice_(net, x, 0, 1, 4), build.slice_(net, x, 0, 0, 1)], 0),
    "linear": lambda net, x: build.linear(net, x, net.constant(np.ones((6, 6), np.float32), f32)),
    "weight": lambda net, x: build.linear(net, x, net.parameter((6, 6), "f32", f"w{len(net.parameters)}")),
    "square": lambda net, x: build.matmul(net, build.matmul(net, x, build.permute(net, x, (1, 0))), x),
    "loop": lambda net, x: build.loop(net, 3, [x], lambda body, trip, v: [build.nonlinearity(body, "tanh", v)])[0],
    "max": lambda net, x: build.map_(net, arg(0) / arg(1), [x, build.reduce(net, x, [1], "max", keep=True)]),
}


@examples(5)
@given(kinds=st.lists(st.sampled_from(sorted(OPS)), min_size=1, max_size=6), chained=st.booleans())
def test_lower_network__any_repeated_ops__are_what_the_libraries_build(kinds: list[str], chained: bool) -> None:
    net = NetworkBuilder()
    x = net.input((4, 6), "f32", "x0")
    for number in range(3):
        x = x if chained or not number else net.input((4, 6), "f32", f"x{number}")
        for kind in kinds:
            x = OPS[kind](net, x)
        net.output(x)
    final = inference_pipeline().run(net.finish())
    made, plain = (lowered(final, Schedule(), [], repeats=r) for r in (True, False))
    assert list(described(made.graph, made.program)) == list(described(plain.graph, plain.program))


def on_several_ipus(net: Network, *, pipelined: bool) -> Network:
    """A network of layers with each layer on an IPU of its own."""
    numbers = [int(op.debug.path.rpartition("/")[2] or 0) if op.debug.path else 3 for op in net.ops]
    places = [Place(n, n if pipelined else 0) for n in numbers]
    ops = tuple(
        replace(op, outputs=tuple(replace(v, place=place) for v in op.outputs))
        for op, place in zip(net.ops, places, strict=True)
    )
    moved = {old: new for a, b in zip(net.ops, ops, strict=True) for old, new in zip(a.outputs, b.outputs, strict=True)}
    return substituted(net, moved)


@pytest.mark.parametrize("pipelined", [False, True])
def test_lower_network__equal_layers_on_several_ipus__are_what_the_libraries_build(pipelined: bool) -> None:
    net = on_several_ipus(layers(4, drop=0.5), pipelined=pipelined)
    schedule, groups = Schedule(accumulation=8), [Group(OPTIMISERS["adam"], net.parameters)]
    final = train(schedule, groups).run(net)
    made, plain = (lowered(final, schedule, groups, repeats=r, graph=Graph(SMALL)) for r in (True, False))
    for ours, theirs in zip(described(made.graph, made.program), described(plain.graph, plain.program), strict=True):
        assert ours == theirs
    ours, theirs = (compile_program(p.graph, p.program).report for p in (made, plain))
    assert ours.step_cycles == theirs.step_cycles
    assert np.array_equal(ours.memory.bytes, theirs.memory.bytes)


def test_build__again_on_another_ipu__is_not_made_anew() -> None:
    graph = Graph("bow-2000")
    repeats, made = Repeats(graph), []
    for ipu in range(3):
        repeats.where = ipu
        on = graph.ipu(ipu)
        x = on.map_linear(on.variable(f32, (3000,), name="x"))
        prog = Sequence()

        def make(on: Graph = on, x: Tensor = x, prog: Sequence = prog) -> tuple[Tensor]:
            made.append(on)
            return (popops.map(on, _1 + 1.0, [x], prog),)

        (out,) = repeats.build(("one more",), [x], prog, make)
        assert out is not None
        assert np.array_equal(graph.mapping_of(out).tile // 1472, np.full(len(graph.mapping_of(out).tile), ipu))
    assert len(made) == 1
    assert repeats.found == 2


def test_build__what_reaches_other_ipus__is_made_anew_on_each() -> None:
    graph = Graph("bow-2000")
    repeats, made = Repeats(graph), []
    for ipu in (0, 1, 1):
        repeats.where = ipu
        on = graph.ipu(ipu)
        x = on.map(on.variable(f32, (4,), name="x"), 0)
        prog = Sequence()

        def make(ipu: int = ipu, x: Tensor = x, prog: Sequence = prog) -> tuple[Tensor]:
            made.append(ipu)
            everywhere = graph.map_linear(graph.variable(f32, (400_000,), name="everywhere"))
            prog.add(Copy(x, everywhere[:4]))
            return (everywhere,)

        (out,) = repeats.build(("spread",), [x], prog, make)
        assert out is not None
        assert graph.mapping_of(out).tile.max() > 2 * 1472
    assert made == [0, 1]


def test_compile__equal_layers__cost_what_the_libraries_build() -> None:
    net = layers(3)
    groups = [Group(OPTIMISERS["adam"], net.parameters)]
    final = train(Schedule(), groups).run(net)
    texts = []
    for repeats in (True, False):
        made = lowered(final, Schedule(), groups, repeats=repeats)
        executable = compile_program(made.graph, made.program)
        report = executable.report
        steps = [tuple(row.values()) for row in report.steps.rows()]
        memory = [executable.memory_text(t) for t in range(0, 64, 5)]
        texts.append((executable.listing(), report.cycles(), steps, memory))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_run__equal_layers__give_the_bits_of_what_the_libraries_build(mode: str) -> None:
    net = layers(3)
    groups = [Group(OPTIMISERS["sgd"], net.parameters)]
    final = train(Schedule(), groups).run(net)
    results = []
    for repeats in (True, False):
        made = lowered(final, Schedule(), groups, repeats=repeats)
        rng = np.random.default_rng(0)
        with Engine(compile_program(made.graph, made.program), mode=mode) as engine:
            engine.connect(made.inputs[0], rng.standard_normal((8, 8)).astype(np.float32))
            outputs = [np.zeros(s.shape, np.float32) for s in made.outputs]
            for stream, array in zip(made.outputs, outputs, strict=True):
                engine.connect(stream, array)
            for name, tensor in made.weights.items():
                engine.write(tensor, rng.standard_normal(tensor.shape).astype(np.float32) if name else 0)
            engine.run()
            results.append([*outputs, *(np.array(engine.read(t)) for t in made.weights.values())])
    for got, want in zip(*results, strict=True):
        np.testing.assert_array_equal(got, want)


# --- one call of a library ------------------------------------------------------------------------------------------


class Built:
    """Element-wise sums in one graph, which may be built again."""

    def __init__(self) -> None:
        self.graph = one_ipu()
        self.prog = Sequence()
        self.repeats = Repeats(self.graph)

    def variable(self, name: str, shape: tuple[int, ...] = (64,)) -> Tensor:
        return self.graph.variable(f32, shape, name=name).map_linear()

    def sum(self, a: Tensor, b: Tensor) -> Tensor:
        def make() -> tuple[Tensor]:
            return (popops.map(self.graph, _1 + _2, [a, b], self.prog, name=f"{a.name}_plus"),)

        return self.repeats.build("sum", (a, b), self.prog, make)[0]


def test_build__like_operands__are_found() -> None:
    built = Built()
    names = "abcdef"
    a, b, c, d, e, f = map(built.variable, names)
    sums = [built.sum(a, b), built.sum(c, d), built.sum(e, f)]
    assert built.repeats.found == 2
    assert [s.name[0] for s in sums] == ["a", "c", "e"]
    assert all("⁅" not in v.name for v in built.graph.variables)


def test_build__other_mapping__is_built_by_the_library() -> None:
    built = Built()
    a, b, c = (built.variable(n) for n in "abc")
    d = built.graph.variable(f32, (64,), name="d").map(7)
    built.sum(a, b)
    built.sum(c, d)
    assert built.repeats.found == 0


def test_build__one_variable_twice__is_another_thing_than_two() -> None:
    built = Built()
    a, b, c = (built.variable(n) for n in "abc")
    built.sum(a, b)
    built.sum(c, c)
    assert built.repeats.found == 0


def test_build__a_step_that_no_copy_is_made_of__is_made_each_time() -> None:
    built = Built()
    a, b = built.variable("a"), built.variable("b")
    for tensor in (a, b, a):
        built.repeats.build("print", (tensor,), built.prog, lambda t=tensor: (built.prog.add(PrintTensor(t)), ())[1])
    assert built.repeats.found == 0
    assert [s.tensor.name for s in built.prog] == ["a", "b", "a"]


def test_build__what_reads_more_than_it_says__is_made_each_time() -> None:
    built = Built()
    a, b, hidden = (built.variable(n) for n in ("a", "b", "hidden"))
    for tensor in (a, b):
        built.repeats.build("copy", (tensor,), built.prog, lambda t=tensor: (built.prog.add(Copy(hidden, t)), ())[1])
    assert built.repeats.found == 0
    assert [s.destination.name for s in built.prog] == ["a", "b"]


def test_build__an_error__names_the_operands() -> None:
    built = Built()
    a, b = built.variable("first"), built.variable("second", (65,))
    with pytest.raises(TensorError, match="first") as caught:
        built.sum(a, b)
    assert "⁅" not in str(caught.value)
    assert (a.name, b.name) == ("first", "second")


def test_build__an_error_that_quotes_names__names_the_operands() -> None:
    built = Built()
    a, b = built.variable("first"), built.variable("second", (65,))
    with pytest.raises(ControlProgramError, match=r"'first'.*'second'"):
        built.repeats.build("copy", (a, b), built.prog, lambda: (built.prog.add(Copy(a, b)), ())[1])


def test_build__in_a_virtual_graph__stays_on_its_tiles() -> None:
    whole = one_ipu()
    part = whole.virtual(40, 50)
    prog, repeats = Sequence(), Repeats(part)
    given = [part.map_linear(part.variable(f32, (640,), name=n)) for n in "abcd"]

    def total(x: Tensor, y: Tensor) -> Tensor:
        return repeats.build("sum", (x, y), prog, lambda: (popops.map(part, _1 + _2, [x, y], prog),))[0]

    total(*given[:2])
    again = total(*given[2:])
    assert repeats.found == 1
    assert set(again.mapping.tile.tolist()) <= set(range(40, 50))
    assert all(40 <= g.tile.min() <= g.tile.max() < 50 for c in whole.compute_sets for g in c.groups)
    compile_program(whole, prog)


def test_build__variable_mapped_anew_after__keeps_the_first_mapping_for_copies() -> None:
    built = Built()
    a, b, c, d = (built.variable(n) for n in "abcd")
    first = built.sum(a, b)
    before = first.mapping
    first.map(9)
    again = built.sum(c, d)
    np.testing.assert_array_equal(again.mapping.tile, before.tile)


def test_compile__copy_whose_variable_is_mapped_anew__is_analysed_for_itself() -> None:
    built = Built()
    a, b, c, d = (built.variable(n) for n in "abcd")
    built.sum(a, b)
    built.sum(c, d).map(9)
    executable = compile_program(built.graph, built.prog)
    first, second = executable.plan
    assert first.after != second.after or first.before != second.before


def test_compute_set__vertices_added_to_the_one_that_was_copied__are_not_in_the_copy() -> None:
    built = Built()
    a, b, c, d = (built.variable(n) for n in "abcd")
    built.sum(a, b)
    built.sum(c, d)
    source, copy = built.graph.compute_sets
    group = source.groups[0]
    source.add_group(group)
    assert copy.copied is None
    assert copy.num_vertices == source.num_vertices - group.num
    copy.add_group(group)
    assert copy.num_vertices == source.num_vertices
