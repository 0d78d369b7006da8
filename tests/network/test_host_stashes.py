"""Stashes of hosts: values have the bits that are made again, and the machine does not know of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from abele.compiler import compile_program
from abele.distribution import training_program
from abele.distribution.host_stashes import HostStashes
from abele.expr.derivative import arg
from abele.graph import Graph, LibraryCall, Program, StashCopy, Steps, walk
from abele.network import Group, Network, NetworkBuilder, Place, Schedule, Sgd
from abele.network.ops import build
from abele.network.passes.recompute_stages import made_again
from abele.network.schedule import PipelineSchedule
from abele.numerics import f8_143
from abele.runtime import Engine, image
from abele.session import Session, Settings, SharedArrays

BATCH, WIDTH, STAGES, COUNT = 4, 8, 3, 9
Array = npt.NDArray[np.float32]


def model(*, pipelined: bool = True, dropout: bool = False) -> Network:
    """On each stage a product, GELU, a norm and dropout; the loss is on the last."""
    net = NetworkBuilder()
    hidden = net.input((BATCH, WIDTH), "f32", "x")
    for stage in range(STAGES):
        with net.at(place=Place(stage, stage) if pipelined else Place()):
            weight = net.parameter((WIDTH, WIDTH), "f32", f"w{stage}")
            bias, gain, shift = (net.parameter((WIDTH,), "f32", f"{what}{stage}") for what in ("bias", "gain", "shift"))
            product = build.linear(net, hidden, weight, bias)
            active = build.nonlinearity(net, "gelu", product)
            if dropout:
                active = build.dropout(net, active, 0.5)
            normed = build.norm(net, active, 1, 1e-5, gain, shift)[0]
            hidden = build.map_(net, arg(0) + arg(1), [normed, hidden])
            net.loss = build.mean(net, build.map_(net, arg(0) * arg(0), [hidden]), [0, 1])
    assert net.loss is not None
    net.output(net.loss)
    return net.finish()


def weights_of(net: Network) -> SharedArrays:
    rng = np.random.default_rng(0)
    return SharedArrays({p.name: 0.5 * rng.normal(size=p.shape).astype(np.float32) for p in net.parameters})


def trained(
    net: Network, schedule: Schedule, *, mode: str = "native", threads: int | None = None
) -> tuple[Array, SharedArrays]:
    """Losses of two runs, and the weights."""
    weights = weights_of(net)
    settings = Settings(mode=mode) if threads is None else Settings(mode=mode, threads=threads)
    groups = [Group(Sgd(lr=0.1), net.parameters)]
    session = Session.of(net, schedule, groups=groups, settings=settings, weights=weights)
    x = np.random.default_rng(1).normal(size=(COUNT * BATCH, WIDTH)).astype(np.float32)
    losses = np.stack([session(x)[0] for _ in range(2)])
    session.bring_to_host()
    return losses, weights


@cache
def trained_on_one(*, dropout: bool) -> tuple[Array, SharedArrays]:
    return trained(model(pipelined=False, dropout=dropout), Schedule(accumulation=COUNT))


def every_step(program: Program) -> Iterator[Program]:
    """Each step once, and what hosts run in its place."""
    seen, waiting = set[Program](), [program]
    while waiting:
        step = waiting.pop()
        if step not in seen:
            seen.add(step)
            yield step
            waiting.extend(step.children())
            if isinstance(step, Steps) and step.host_body is not None:
                waiting.append(step.host_body)


def program_of(schedule: Schedule) -> tuple[Graph, Program]:
    net, graph = model(), Graph("bow-2000")
    return graph, training_program(net, graph, schedule, [Group(Sgd(lr=0.1), net.parameters)]).program


@pytest.mark.parametrize("pipeline", list(PipelineSchedule))
def test_backward_stages__of_a_pipeline__make_no_product_again_on_hosts(pipeline: PipelineSchedule) -> None:
    _, program = program_of(Schedule(accumulation=COUNT, pipeline=pipeline))
    left_out = [s for s in every_step(program) if isinstance(s, Steps) and s.debug.name == "again" and s.host_body]
    calls = [c for steps in left_out for c in walk(steps) if isinstance(c, LibraryCall)]
    # Of two stages the product and GELU; the norm's whitened activations are not made before, and are made here.
    assert len([c for c in calls if "matmul" in c.debug.full_name]) == 2
    assert len([c for c in calls if "nonlinearity" in c.name or "gelu" in c.debug.full_name]) >= 2
    copies = [s for s in every_step(program) if isinstance(s, StashCopy)]
    assert {c.variable for c in copies if c.saves} == {c.variable for c in copies if not c.saves}


@pytest.mark.parametrize("pipeline", list(PipelineSchedule))
@pytest.mark.parametrize("dropout", [False, True], ids=["plain", "dropout"])
@pytest.mark.parametrize("threads", [1, 3])
def test_training__with_stashes__learns_what_one_ipu_learns(
    pipeline: PipelineSchedule, dropout: bool, threads: int
) -> None:
    schedule = Schedule(device_iterations=1, accumulation=COUNT, pipeline=pipeline)
    losses, weights = trained_on_one(dropout=dropout)
    several, spread = trained(model(dropout=dropout), schedule, threads=threads)
    np.testing.assert_allclose(several, losses, rtol=5e-6)
    for name in weights:
        np.testing.assert_allclose(spread[name], weights[name], rtol=5e-5, atol=1e-6)


def test_values__made_again_by_vertices__have_the_bits_that_are_saved() -> None:
    graph, program = program_of(Schedule(accumulation=COUNT))
    copies = [s for s in every_step(program) if isinstance(s, StashCopy)]
    saved = {c.variable: c.tensor for c in copies if c.saves}
    again = {c.variable: c.tensor for c in copies if not c.saves}
    rng = np.random.default_rng(2)
    weights = [graph.whole(v) for v in graph.variables if v.name.startswith(("w", "gain")) and "/" not in v.name]
    with Engine(graph, program, mode="tiles", keep=[*saved.values(), *again.values(), *weights]) as engine:
        for stream in graph.streams.values():
            engine.connect(stream, rng.normal(size=COUNT * stream.size).astype(stream.dtype.np))
        for weight in weights:
            engine[weight] = rng.normal(size=weight.shape).astype(np.float32)
        engine.run()
        # The last micro-batch is the last in both stages.
        for variable, tensor in saved.items():
            first, second = engine[tensor], engine[again[variable]]
            assert np.ptp(first) > 0
            np.testing.assert_array_equal(first.view(np.uint32), second.view(np.uint32))


def test_the_model__knows_nothing_of_stashes(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, program = program_of(Schedule(accumulation=COUNT))
    kept = compile_program(graph, program).report
    monkeypatch.setattr(HostStashes, "close", lambda *_: None)
    graph, program = program_of(Schedule(accumulation=COUNT))
    assert not any(isinstance(s, StashCopy) for s in every_step(program))
    made = compile_program(graph, program).report
    assert kept.cycles() == made.cycles()
    assert str(kept) == str(made)
    assert str(kept.memory_use()) == str(made.memory_use())


def test_cycles__that_a_run_counts__are_those_of_the_whole_program() -> None:
    counted = {}
    for mode in ("native", "tiles"):
        net = model()
        session = Session.of(
            net,
            Schedule(accumulation=COUNT),
            groups=[Group(Sgd(lr=0.1), net.parameters)],
            settings=Settings(mode=mode),
            weights=weights_of(net),
        )
        session(np.ones((COUNT * BATCH, WIDTH), np.float32))
        counted[mode] = session.compiled.executable.report.total_cycles
    assert counted["native"] == counted["tiles"] > 0


def test_stashes__beyond_the_memory_of_the_host__are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, weights = trained(model(), Schedule(accumulation=COUNT))
    monkeypatch.setattr(image, "physical_bytes", lambda: 1000)
    again, others = trained(model(), Schedule(accumulation=COUNT))
    np.testing.assert_allclose(again, losses, rtol=5e-6)
    for name in weights:
        np.testing.assert_allclose(others[name], weights[name], rtol=5e-5, atol=1e-6)


def test_activations__that_wait_as_8_bit_floats__are_made_again() -> None:
    _, program = program_of(Schedule(accumulation=COUNT, stash=f8_143))
    assert not any(isinstance(s, StashCopy) for s in every_step(program))


def test_values_made_again__of_a_captured_network__are_those_of_the_stage() -> None:
    net = NetworkBuilder()
    x, w = net.input((2, 2), "f32", "x"), net.parameter((2, 2), "f32", "w")
    with net.at(place=Place(0, 0)):
        net.output(build.linear(net, x, w))
    assert made_again(net.finish()) == {}
