"""Functions of which the machine has one copy compute what inlined calls do, in less memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from abele.compiler import Executable, compile_program
from abele.distribution import shared_functions, training_program
from abele.distribution.program import NetworkProgram
from abele.distribution.program_options import RunModes
from abele.distribution.shared_functions import SharedFunctions
from abele.expr import select
from abele.expr.derivative import arg
from abele.graph import Call, Copy, Graph, walk
from abele.graph.debug import DebugRecord
from abele.machine import systems
from abele.network import Group, Network, NetworkBuilder, Place, Schedule, Sgd
from abele.network.ir import BlockBuilder, NetworkFunction, RegionBuilder, Value
from abele.network.ops import build
from abele.network.passes import training_pipeline
from abele.runtime import Engine

SCHEDULE = Schedule(device_iterations=2, accumulation=2)


def layers(count: int, *, drop: float = 0.0, mask: bool = False, width: int = 8) -> Network:
    """Equal blocks after each other, the gradient of which needs what they read and make."""
    net = NetworkBuilder()
    x = net.input((6, width), "f32", "x")
    hidden = net.input((6, width), "f32", "hidden") if mask else None
    for number in range(count):
        w = net.parameter((width, width), "f32", f"{number}.weight")
        b = net.parameter((width,), "f32", f"{number}.bias")
        y = build.nonlinearity(net, "gelu", build.linear(net, x, w, b))
        y = build.dropout(net, y, drop) if drop else y
        y = build.total(net, [y, hidden]) if hidden is not None else y
        y = build.softmax(net, build.linear(net, y, w), 1)
        y = build.nonlinearity(net, "sigmoid", build.linear(net, build.nonlinearity(net, "tanh", y), w, b))
        x = build.total(net, [x, build.map_(net, arg(0) * arg(0), [y])])
    net.output(x)
    net.loss = build.mean(net, x, [0, 1])
    return net.finish()


def lowered(net: Network, *, shared: bool) -> NetworkProgram:
    graph = Graph(systems.bow_2000().evolve(ipu={"num_tiles": 24}).with_ipus(1))
    groups = [Group(Sgd(lr=0.5, momentum=0.9), net.parameters)]
    return training_program(net, graph, SCHEDULE, groups, modes=RunModes(shared_functions=shared))


def compiled(program: NetworkProgram) -> Executable:
    return compile_program(program.graph, program.program)


def trained(program: NetworkProgram, mode: str) -> list[npt.NDArray[np.float32]]:
    """Outputs and weights after a run, from data that depend on names alone."""
    engine = Engine(compiled(program), mode=mode)
    for name, tensor in program.weights.items():
        engine.write(tensor, _numbers(name, tensor.shape))
    if program.seed is not None:
        engine.write(program.seed, np.array([3, 4], np.uint32))
    rounds = SCHEDULE.device_iterations * SCHEDULE.accumulation
    for stream in program.inputs:
        engine.connect(stream, _numbers(stream.name, (rounds, *stream.shape)))
    found = [np.zeros((rounds, *stream.shape), np.float32) for stream in program.outputs]
    for stream, array in zip(program.outputs, found, strict=True):
        engine.connect(stream, array)
    engine.run()
    return [*found, *(engine.read(t) for t in program.weights.values())]


def _numbers(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    return np.random.default_rng([ord(c) for c in name]).standard_normal(shape).astype(np.float32)


def functions_of(program: NetworkProgram) -> list[int]:
    """Number of calls of each function."""
    calls = [step.function for step in walk(program.program) if isinstance(step, Call)]
    return sorted(calls.count(f) for f in set(calls))


@pytest.mark.parametrize("mask", [False, True])
def test_shared_functions__equal_layers__compute_the_same_bits_on_tiles(mask: bool) -> None:
    inlined, shared = (trained(lowered(layers(4, mask=mask), shared=s), "tiles") for s in (False, True))
    for one, other in zip(inlined, shared, strict=True):
        np.testing.assert_array_equal(one, other)


def test_shared_functions__equal_layers__compute_the_same_on_hosts() -> None:
    inlined, shared = (trained(lowered(layers(4), shared=s), "native") for s in (False, True))
    for one, other in zip(inlined, shared, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_shared_functions__equal_layers__are_there_once() -> None:
    inlined, shared = (lowered(layers(8), shared=s) for s in (False, True))
    assert functions_of(inlined) == []
    assert functions_of(shared) == [7, 7]  # Stretches start inside of a layer, which leaves parts at both ends.
    assert len(shared.graph.compute_sets) < len(inlined.graph.compute_sets) / 2


def test_shared_functions__code__does_not_grow_with_layers() -> None:
    grown = {}
    for shared in (False, True):
        code = []
        for count in (4, 8):
            memory = compiled(lowered(layers(count), shared=shared)).report.memory
            parts = dict(zip(memory.categories, memory.bytes, strict=True))
            code.append(sum(int(parts[name].sum()) for name in ("vertex_state", "exchange_code", "control_code")))
        grown[shared] = code[1] - code[0]
    assert grown[True] < grown[False] / 3


def test_shared_functions__layers_that_draw__stay_inlined_with_their_own_numbers() -> None:
    inlined, shared = (lowered(layers(3, drop=0.5), shared=s) for s in (False, True))
    assert functions_of(shared) == []
    for one, other in zip(trained(inlined, "tiles"), trained(shared, "tiles"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_shared_functions__what_all_calls_read_alike__is_not_copied() -> None:
    program = lowered(layers(4, mask=True), shared=True)
    steps = list(walk(program.program))
    (entering,) = (s.destination for s in steps if isinstance(s, Copy) and s.source is program.inputs[1])
    copied = [v for s in steps if isinstance(s, Call) for c in s.copies_in for v in c.source.variables]
    assert copied
    assert not set(entering.variables).intersection(copied)


def test_shared_functions__large_weights__are_copied_before_their_first_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    net = NetworkBuilder()
    x = net.input((48, 96), "f32", "x")
    for number in range(3):
        for part in range(3):
            w = net.parameter((96, 96), "f32", f"{number}.{part}.weight")
            y = build.nonlinearity(net, "tanh", build.linear(net, x, w))
            x = build.map_(net, arg(0) * arg(1) + arg(0), [x, build.softmax(net, y, 1)])
    net.loss = build.mean(net, x, [0, 1])
    net.output(net.loss)
    made = net.finish()
    with monkeypatch.context() as patched:
        patched.setattr(shared_functions, "_LARGE_WEIGHT", 1 << 30)
        early = lowered(made, shared=True)
    late = lowered(made, shared=True)
    assert len(functions_of(late)) > len(functions_of(early)) > 1
    # At the peak of the second product's step one weight is there twice, not three.
    least = [compiled(program).memory.least["temporaries"].max() for program in (early, late)]
    assert least[1] <= least[0] - 96 * 96 * 4 // 24
    for one, other in zip(trained(early, "tiles"), trained(late, "tiles"), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("same", [1, 8])
def test_shared_functions__small_weights_of_equal_layers__lie_alike_in_groups(
    same: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_functions, "_SAME_PLACE", same)
    program = lowered(layers(5), shared=True)
    first = [int(tensor.mapping.tile[0]) for name, tensor in program.weights.items() if name.endswith(".bias")]
    assert len(first) == 5
    # Those of one group have equal copies; those of all layers would fill the same tiles.
    assert len(set(first)) > 2 if same == 1 else len(set(first)) == 1
    assert functions_of(program)


def checkpointed(count: int) -> Network:
    """Layers with checkpoints on the first of two IPUs, and the loss on the second."""
    net = NetworkBuilder()
    x = net.input((64, 64), "f32", "x")
    with net.at(place=Place(0, 0)):
        for number in range(count):
            w, b = net.parameter((64, 64), "f32", f"{number}.w"), net.parameter((64,), "f32", f"{number}.b")
            y = x
            for _ in range(3):
                y = build.softmax(net, build.nonlinearity(net, "gelu", build.linear(net, y, w, b)), 1)
            x = build.keep(net, build.total(net, [x, y]))
    with net.at(place=Place(1, 1)):
        net.loss = build.mean(net, build.map_(net, arg(0) * arg(0), [x]), [0, 1])
        net.output(net.loss)
    return net.finish()


def test_shared_functions__layers_with_checkpoints__are_computed_again_one_at_a_time() -> None:
    # A layer keeps one activation and four variables as large, weight and gradients; what it makes on the way, some ten
    # activations, is there for one layer at a time.
    peaks = []
    for count in (4, 12):
        net = checkpointed(count)
        graph = Graph(systems.get("bow-pod16").evolve(ipu={"num_tiles": 16}).with_ipus(2))
        groups = [Group(Sgd(lr=0.5), net.parameters)]
        program = training_program(net, graph, Schedule(accumulation=8), groups, modes=RunModes(shared_functions=True))
        executable = compiled(program)
        peaks.append(int(executable.memory.step_bytes.max()))
        live = executable.memory.liveness
        left = [v for v in live.candidates[live.end[live.ptr[1:] - 1] == live.num_steps].tolist() if v >= 0]
        assert not [name for v in left if (name := graph.variables[v].name).endswith("result")]
    activation = 64 * 64 * 4
    assert peaks[1] - peaks[0] < (12 - 4) * 4 * activation


def in_regions(drop: float = 0.0) -> Network:
    """Two stretches that the backward pass computes again, each another, the second with draws."""
    net = NetworkBuilder()
    x = net.input((6, 8), "f32", "x")
    for number in range(2):
        w, b = net.parameter((8, 8), "f32", f"{number}.weight"), net.parameter((8,), "f32", f"{number}.bias")

        def body(
            region: BlockBuilder, x: Value = x, w: Value = w, b: Value = b, again: bool = number > 0
        ) -> list[Value]:
            y = region.read(x)
            for _ in range(3):
                y = build.nonlinearity(region, "gelu", build.linear(region, y, region.read(w), region.read(b)))
                y = build.dropout(region, y, drop) if drop and again else y
            return [build.softmax(region, y, 1) if again else y]

        (x,) = build.checkpoint(net, body)
    net.output(x)
    net.loss = build.mean(net, x, [0, 1])
    return net.finish()


@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_shared_functions__checkpoints__run_one_forward_pass_twice_without_copies(drop: float) -> None:
    inlined, shared = (lowered(in_regions(drop), shared=s) for s in (False, True))
    assert functions_of(shared) == [2, 2]
    assert not any(s.copies_in for s in walk(shared.program) if isinstance(s, Call))
    for one, other in zip(trained(inlined, "tiles"), trained(shared, "tiles"), strict=True):
        np.testing.assert_array_equal(one, other)
    one, other = (compiled(program).report for program in (inlined, shared))
    assert other.total_cycles == one.total_cycles
    totals = [dict(report.memory.totals()) for report in (one, other)]
    assert all(totals[1][name] < 0.9 * totals[0][name] for name in ("vertex_state", "exchange_code", "control_code"))
    assert max(other.liveness["live_bytes"]) <= 1.02 * max(one.liveness["live_bytes"])


def convolutions(kernels: tuple[int, ...], *, recomputed: bool) -> Network:
    """Convolutions of one shape for each kernel, with their tanh, the first half in a checkpoint if asked for."""
    net = NetworkBuilder()
    x = net.input((2, 8, 9, 9), "f32", "x")

    weights = [net.parameter((8, 8, k, k), "f32", f"{n}.weight") for n, k in enumerate(kernels)]

    def some(block: BlockBuilder, x: Value, numbers: range) -> Value:
        for number in numbers:
            pad = (kernels[number] // 2,) * 2
            with block.at(DebugRecord(f"layer{number}")):
                y = build.convolution(block, x, weights[number], stride=(1, 1), padding=pad, dilation=(1, 1))
            x = build.nonlinearity(block, "tanh", y)
        return x

    half = len(kernels) // 2
    if recomputed:
        (x,) = build.checkpoint(net, lambda inside: [some(inside, inside.read(x), range(half))])
    else:
        x = some(net, x, range(half))
    x = some(net, x, range(half, len(kernels)))
    net.output(x)
    net.loss = build.mean(net, x, [0, 1, 2, 3])
    return net.finish()


def with_convolutions(net: Network, *, shared: bool) -> NetworkProgram:
    graph = Graph(systems.bow_2000().evolve(ipu={"num_tiles": 24}).with_ipus(1))
    groups = [Group(Sgd(lr=0.5, momentum=0.9), net.parameters)]
    passes = training_pipeline(SCHEDULE, groups, share_convolutions=shared)
    modes = RunModes(shared_functions=shared)
    return training_program(net, graph, SCHEDULE, groups, modes=modes, pipeline=passes)


@pytest.mark.parametrize("mode", ["tiles", "native"])
@pytest.mark.parametrize("recomputed", [False, True])
def test_shared_convolutions__equal_ones__compute_the_same(mode: str, recomputed: bool) -> None:
    net = convolutions((3, 1, 3, 3), recomputed=recomputed)
    inlined, shared = (trained(with_convolutions(net, shared=s), mode) for s in (False, True))
    # Hosts sum in another order, and each layer multiplies an error by the sum of 72 weights of size 1.
    tolerance = 1e-6 if mode == "tiles" else 1e-4
    for one, other in zip(inlined, shared, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=tolerance)


def test_shared_convolutions__equal_ones__have_one_function_of_each_kind_and_less_state() -> None:
    net = convolutions((3, 1, 3, 1, 3, 3), recomputed=False)
    inlined, shared = (with_convolutions(net, shared=s) for s in (False, True))
    # Four convolutions, the gradients of three by their inputs, and those of four by their weights.
    assert functions_of(inlined) == []
    assert functions_of(shared) == [3, 4, 4]
    one, other = (compiled(program).report.memory.totals()["vertex_state"] for program in (inlined, shared))
    assert other < 0.7 * one


def test_shared_convolutions__of_named_layers__carry_the_first_ones_name_once() -> None:
    report = compiled(with_convolutions(convolutions((3, 1, 3, 3), recomputed=False), shared=True)).report
    names = set(report.ops.where("name", "convolution")["path"].tolist())
    assert names == {"layer0", "layer1"}


def test_shared_convolutions__no_two_alike__stay_inlined() -> None:
    assert functions_of(with_convolutions(convolutions((3, 1, 5, 1), recomputed=False), shared=True)) == []


def test_shared_functions__constant_of_stages_of_one_ipu__is_one_tensor_and_no_argument() -> None:
    net = NetworkBuilder()
    x, mask = net.input((4, 4), "f32", "x"), net.constant(np.tri(4), "bool", "mask")
    region = RegionBuilder(NetworkBuilder())
    scores, seen = region.parameter(x), region.parameter(mask)
    hidden = build.map_(region, select(arg(1), arg(0), 0.0), [scores, seen])
    function = NetworkFunction("hide", region.finish([build.matmul(region, hidden, hidden)]))
    for stage in range(2):
        with net.at(place=Place(0, stage)):
            (x,) = build.call(net, function, [x, mask])
    net.output(x)
    made = net.finish()
    # The micro-batch that a stage works on is another tensor in each.
    assert list(SharedFunctions.of(made.ops).common.values()) == [(False, True)]
