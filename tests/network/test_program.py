"""Training and inference programs: what a run does with its micro-batches, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from meaning import Meaning

from abele.compiler import compile_program
from abele.distribution import NetworkProgram, inference_program, training_program
from abele.expr.derivative import arg
from abele.graph import Graph, LibraryCall, Repeat, walk
from abele.kernels.nest.ir import apply
from abele.machine import systems
from abele.network import Adam, Group, NetworkBuilder, OutputMode, Schedule, Sgd
from abele.network.ops import build

RATE = 0.1
X = np.arange(1.0, 13.0, dtype=np.float32).reshape(6, 2) / 10
"""Six micro-batches of two samples."""


def regression() -> NetworkBuilder:
    """loss = Σ (w·x)², so that the gradient by w is 2·w·Σ x²."""
    net = NetworkBuilder()
    x, w = net.input((2,), "f32", "x"), net.parameter((1,), "f32", "w")
    y = build.map_(net, arg(0) * arg(1), [x, w])
    net.loss = build.reduce(net, build.map_(net, apply("square", arg(0)), [y]), [0])
    net.outputs += [y, net.loss]
    return net


def train(schedule: Schedule, optimiser: Sgd | Adam, runs: int = 1) -> tuple[NetworkProgram, Meaning]:
    """Runs of a regression over the micro-batches of ``X``, with w = 1 at first."""
    net, graph = regression(), Graph("bow-2000")
    made = training_program(net.finish(), graph, schedule, [Group(optimiser, tuple(net.parameters))])
    state = Meaning(graph, {made.inputs[0].name: list(np.tile(X, (runs, 1))[: runs * schedule.micro_batches])})
    state.write(made.weights["w"], [1.0])
    for _ in range(runs):
        state.run(made.program)
    return made, state


def sent(made: NetworkProgram, state: Meaning) -> list[list[Any]]:
    return [[a.tolist() for a in state.sent[s.name]] for s in made.outputs]


def expected_weights(groups: Sequence[Any], mean: bool) -> float:
    """w after an SGD step on each group of micro-batches."""
    w = 1.0
    for group in groups:
        gradients = [2 * w * float((x.astype(np.float64) ** 2).sum()) for x in group]
        w -= RATE * (np.mean(gradients) if mean else np.sum(gradients))
    return w


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize(("iterations", "accumulation"), [(1, 1), (6, 1), (1, 6), (2, 3), (3, 2)])
def test_training__any_schedule__updates_after_each_accumulation(
    iterations: int, accumulation: int, mean: bool
) -> None:
    schedule = Schedule(iterations, accumulation, mean)
    made, state = train(schedule, Sgd(lr=RATE))
    groups = X[: schedule.micro_batches].reshape(iterations, accumulation, 2)
    np.testing.assert_allclose(state.read(made.weights["w"]), expected_weights(groups, mean), rtol=1e-6)


def test_training__accumulation_of_one__has_no_accumulators() -> None:
    made, _ = train(Schedule(3, 1), Sgd(lr=RATE))
    assert not [v for v in made.graph.variables if "accumulator" in v.name]
    assert sum(isinstance(step, Repeat) for step in walk(made.program)) == 1


def test_training__accumulation__keeps_the_gradient_of_one_layer_at_a_time() -> None:
    width, peaks = 128, []
    for layers in (4, 12):
        net, graph = NetworkBuilder(), Graph(systems.bow_2000().evolve(ipu={"num_tiles": 16}).with_ipus(1))
        x = net.input((4, width), "f32", "x")
        for number in range(layers):
            x = build.nonlinearity(
                net, "tanh", build.linear(net, x, net.parameter((width, width), "f32", f"w{number}"))
            )
        net.loss = build.reduce(net, x, [0, 1])
        groups = [Group(Sgd(lr=RATE), tuple(net.parameters))]
        made = training_program(net.finish(), graph, Schedule(1, 4), groups)
        peaks.append(int(compile_program(graph, made.program).memory.step_bytes.max()))
    # Each further layer has a sum, and some activations that are smaller by far.
    assert peaks[1] - peaks[0] < (12 - 4) * 1.6 * width * width * 4


@pytest.mark.parametrize("tied", [True, False])
def test_training__accumulation__gradients_of_products_and_tables_have_no_tensors(tied: bool) -> None:
    words, width, samples = 40, 16, 12
    net, graph = NetworkBuilder(), Graph(systems.bow_2000().evolve(ipu={"num_tiles": 16}).with_ipus(1))
    ids, table = net.input((samples,), "i32", "ids"), net.parameter((words, width), "f32", "table")
    decode = table if tied else net.parameter((words, width), "f32", "decode")
    hidden = build.nonlinearity(net, "tanh", build.look_up(net, table, ids))
    net.loss = build.reduce(net, build.map_(net, apply("square", arg(0)), [build.linear(net, hidden, decode)]), [0, 1])
    groups = [Group(Sgd(lr=RATE), tuple(net.parameters))]
    made = training_program(net.finish(), graph, Schedule(1, 3, mean=False), groups)
    assert not [v for v in graph.variables if v.size == words * width and v.name.endswith(("out", "rows"))]
    rng = np.random.default_rng(1)
    given = {name: rng.standard_normal((words, width)).astype(np.float32) / 8 for name in made.weights}
    batches = rng.integers(0, words, (3, samples))
    state = Meaning(graph, {made.inputs[0].name: list(batches.astype(np.int32))})
    for name, value in given.items():
        state.write(made.weights[name], value)
    state.run(made.program)
    weights = {name: torch.tensor(value.astype(np.float64), requires_grad=True) for name, value in given.items()}
    first, last = weights["table"], weights["table" if tied else "decode"]
    loss = sum((torch.tanh(first[torch.tensor(batch)]) @ last.T).square().sum() for batch in batches)
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    for name, weight in weights.items():
        assert weight.grad is not None
        wanted = weight.detach() - RATE * weight.grad
        np.testing.assert_allclose(state.read(made.weights[name]), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_training__several_runs__go_on_from_each_other() -> None:
    made, state = train(Schedule(2, 1), Sgd(lr=RATE), runs=3)
    np.testing.assert_allclose(state.read(made.weights["w"]), expected_weights(X[:6].reshape(6, 1, 2), True), rtol=1e-6)


OUTPUTS = [float((x.astype(np.float64) ** 2).sum()) for x in X]


@pytest.mark.parametrize(
    ("mode", "period", "expected"),
    [
        (OutputMode.ALL, 1, OUTPUTS),
        (OutputMode.FINAL, 1, OUTPUTS[-1:]),
        (OutputMode.EVERY_N, 1, OUTPUTS),
        (OutputMode.EVERY_N, 2, OUTPUTS[1::2]),
        (OutputMode.EVERY_N, 3, OUTPUTS[2::3]),
        (OutputMode.SUM, 1, [sum(OUTPUTS)]),
    ],
)
def test_outputs__every_mode__sends_what_it_says(mode: OutputMode, period: int, expected: list[float]) -> None:
    net, graph = regression(), Graph("bow-2000")
    schedule = Schedule(6, 1, outputs=mode, period=period)
    made = inference_program(net.finish(), graph, schedule)
    for _ in range(2):
        state = Meaning(graph, {made.inputs[0].name: list(X)})
        state.write(made.weights["w"], [1.0])
        state.run(made.program)
        assert schedule.returned == len(expected)
        np.testing.assert_allclose(sent(made, state)[1], expected, rtol=1e-6)
        assert len(sent(made, state)[0]) == len(expected)


def test_training__buffers__carry_from_micro_batch_to_micro_batch() -> None:
    net, graph = regression(), Graph("bow-2000")
    count = net.buffer((), "f32", "count")
    net.updates[count] = build.map_(net, arg(0) + 1.0, [count])
    made = training_program(net.finish(), graph, Schedule(2, 3), [Group(Sgd(lr=RATE), tuple(net.parameters))])
    state = Meaning(graph, {made.inputs[0].name: list(X)})
    state.run(made.program)
    assert state.read(made.weights["count"]) == 6


# --- random numbers -----------------------------------------------------------------------------------------------


def dropping(size: int, micro_batches: int, seed: int) -> tuple[Any, Any]:
    """Outputs of dropout on ones, and the gradient of its input, a micro-batch each, with the state at the end."""
    net, graph = NetworkBuilder(), Graph("bow-2000")
    w = net.parameter((size,), "f32", "w")
    y = build.dropout(net, w, 0.25)
    net.loss = build.reduce(net, y, [0])
    net.outputs.append(y)
    groups = [Group(Sgd(lr=1.0), (w,))]
    made = training_program(net.finish(), graph, Schedule(micro_batches, 1), groups)
    state = Meaning(graph)
    assert made.seed is not None
    state.write(made.seed, [seed, 0])
    state.write(made.weights["w"], np.ones(size))
    state.run(made.program)
    outputs = np.array(state.sent[made.outputs[0].name])
    assert state.read(made.seed).tolist() == [seed, micro_batches]
    return outputs, state.read(made.weights["w"])


def test_dropout__backward__draws_what_forward_drew() -> None:
    outputs, w = dropping(4000, 1, seed=5)
    np.testing.assert_allclose(w, 1 - (outputs[0] > 0) / 0.75, rtol=1e-6)


def test_dropout__next_micro_batch__draws_afresh() -> None:
    outputs, _ = dropping(4000, 3, seed=5)
    kept = outputs != 0
    for first, second in ((0, 1), (1, 2), (0, 2)):
        assert abs((kept[first] == kept[second]).mean() - (0.75**2 + 0.25**2)) < 0.03


def test_dropout__statistics__match_the_probability() -> None:
    outputs, _ = dropping(20000, 1, seed=9)
    assert abs((outputs[0] == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 20000)
    np.testing.assert_allclose(outputs[0][outputs[0] != 0], 1 / 0.75, rtol=1e-6)


def test_dropout__same_seed__gives_the_same_bits() -> None:
    assert dropping(500, 2, seed=5)[0].tobytes() == dropping(500, 2, seed=5)[0].tobytes()
    assert dropping(500, 2, seed=5)[0].tobytes() != dropping(500, 2, seed=6)[0].tobytes()


# --- placement -----------------------------------------------------------------------------------------------


def test_training__library_calls__carry_module_path_and_line() -> None:
    from abele.graph import DebugRecord

    net, graph = NetworkBuilder(), Graph("bow-2000")
    x, w = net.input((4, 3), "f32", "x"), net.parameter((5, 3), "f32", "fc.weight")
    with net.at(DebugRecord("linear", "fc", "model.py", 12)):
        net.loss = build.reduce(net, build.linear(net, x, w), [0, 1])
    net.outputs.append(net.loss)
    made = training_program(net.finish(), graph, Schedule(), [Group(Sgd(lr=RATE), (w,))])
    calls = [step for step in walk(made.program) if isinstance(step, LibraryCall)]
    matmuls = [c for c in calls if c.name == "poplin.matmul"]
    assert [(c.debug.path, c.debug.line) for c in matmuls] == [("fc/linear", 12), ("fc/linear/grad", 12)]
    (update,) = (c for c in calls if c.debug.path == "update/fc.weight")
    assert update.debug.file == __file__


def test_training__groups_of_both_directions__go_their_own_ways() -> None:
    net, graph = NetworkBuilder(), Graph("bow-2000")
    x = net.input((3,), "f32", "x")
    first, second = net.parameter((3,), "f32", "w"), net.parameter((3,), "f32", "v")
    net.loss = build.reduce(net, build.map_(net, arg(0) * (arg(1) + arg(2)), [x, first, second]), [0])
    groups = [Group(Sgd(lr=0.5), (first,)), Group(Sgd(lr=0.5, maximize=True), (second,))]
    made = training_program(net.finish(), graph, Schedule(), groups)
    state = Meaning(graph, {made.inputs[0].name: [np.array([1.0, 2.0, 4.0])]})
    state.run(made.program)
    np.testing.assert_array_equal(state.read(made.weights["w"]), [-0.5, -1.0, -2.0])
    np.testing.assert_array_equal(state.read(made.weights["v"]), [0.5, 1.0, 2.0])


def test_training__outlined_layers__take_the_cycles_of_the_flat_network() -> None:
    from abele.compiler import compile_program
    from abele.network import training_pipeline

    def cycles(*without: str) -> int:
        net = NetworkBuilder()
        value = net.input((8, 16), "f32", "x")
        for number in range(3):
            weight, bias = net.parameter((16, 16), "f32", f"w{number}"), net.parameter((16,), "f32", f"b{number}")
            hidden = build.nonlinearity(net, "gelu", build.linear(net, value, weight, bias))
            centred = build.map_(net, arg(0) - arg(1), [hidden, build.mean(net, hidden, [1], keep=True)])
            value = build.softmax(net, build.map_(net, arg(0) + arg(1), [value, centred]), 1)
        net.loss = build.reduce(net, value, [0, 1])
        groups, graph = [Group(Sgd(), tuple(net.parameters))], Graph("bow-2000")
        pipeline = training_pipeline(Schedule(), groups).without(*without)
        made = training_program(net.finish(), graph, Schedule(), groups, pipeline=pipeline)
        return compile_program(graph, made.program).report.total_cycles

    assert cycles() == cycles("outline")
