"""Updates that are blocks of ops: each against the same update as a rule, and against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from abele.expr import apply
from abele.expr.derivative import arg
from abele.network import (
    CapturedUpdate,
    Group,
    MeanStrategy,
    Network,
    NetworkBuilder,
    NetworkFunction,
    OpBlock,
    Optimiser,
    Place,
    Schedule,
    Sgd,
    evaluate,
    parse,
    training_pipeline,
    verify,
)
from abele.network.ops import build
from abele.session import Session, Settings

RATE, MOMENTUM, CLIP = 0.1, 0.9, 0.5


def model(stages: int = 1, *, buffers: bool) -> Network:
    """Tanh layers in a line, whose loss is the mean square; with the state of :func:`momentum` if asked for."""
    net = NetworkBuilder()
    hidden = net.input((4, 6), "f32", "x")
    names = [f"w{n}" for n in range(2)]
    for number, name in enumerate(names):
        with net.at(place=Place(number % stages, number % stages)):
            hidden = build.nonlinearity(net, "tanh", build.matmul(net, hidden, net.parameter((6, 6), "f32", name)))
            net.loss = build.mean(net, build.map_(net, arg(0) * arg(0), [hidden]), [0, 1])
    net.output(net.loss)
    if buffers:
        net.buffer((), "f32", "rate")
        net.buffer((), "f32", "steps")
        for name in names:
            net.buffer((6, 6), "f32", f"{name}/velocity")
    return net.finish()


def block_of(build_body: object, *types: tuple[tuple[int, ...], str]) -> NetworkFunction:
    """The ops that a function appends, given a value of each type, as a function."""
    net = NetworkBuilder()
    entering = [net.buffer(shape, dtype, f"v{n}") for n, (shape, dtype) in enumerate(types)]
    results = build_body(net, *entering)  # type: ignore[operator]
    return NetworkFunction("update", OpBlock(tuple(entering), tuple(net.ops), tuple(results)))


def momentum(*, clips: bool = False, factor: float = 1.0) -> CapturedUpdate:
    """Descent with momentum as many maps; with a rate and a count of steps; clipped by the norm of all gradients."""

    def body(net, w0, w1, g0, g1, rate, steps, v0, v1):  # type: ignore[no-untyped-def]
        gradients = [build.map_(net, arg(0) * factor, [g]) for g in (g0, g1)]
        if clips:
            squares = [build.reduce(net, build.map_(net, arg(0) * arg(0), [g]), [0, 1]) for g in gradients]
            norm = build.map_(net, apply("sqrt", arg(0) + arg(1)), squares)
            scale = build.map_(net, apply("min", CLIP / arg(0), 1.0), [norm])
            gradients = [build.map_(net, arg(0) * arg(1), [g, scale]) for g in gradients]
        news, olds = [], []
        for w, g, v in zip((w0, w1), gradients, (v0, v1), strict=True):
            grown = build.map_(net, arg(0) * arg(1), [v, net.constant(np.float32(MOMENTUM), "f32")])
            velocity = build.map_(net, arg(0) + arg(1), [grown, g])
            step = build.map_(net, arg(0) * arg(1), [velocity, rate])
            news.append(build.map_(net, arg(0) - arg(1), [w, step]))
            olds.append(velocity)
        return *news, rate, build.map_(net, arg(0) + 1.0, [steps]), *olds

    weight = ((6, 6), "f32")
    types = (weight, weight, weight, weight, ((), "f32"), ((), "f32"), weight, weight)
    return CapturedUpdate(block_of(body, *types), ("rate", "steps", "w0/velocity", "w1/velocity"))


def trained(
    net: Network, rule: Optimiser, schedule: Schedule, data: np.ndarray, *, rate: float = RATE, runs: int = 2
) -> dict[str, np.ndarray]:
    """Weights and buffers after some runs."""
    rng = np.random.default_rng(3)
    weights = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in net.parameters}
    weights |= {b.name: np.zeros(b.shape, np.float32) for b in net.buffers}
    if "rate" in weights:
        weights["rate"] = np.float32(rate)
    groups = [Group(rule, net.parameters)]
    with Session.of(net, schedule, groups=groups, settings=Settings(system="bow-2000"), weights=weights) as session:
        for _ in range(runs):
            session(data)
        return {name: session.weights[name] for name in session.weights}


@pytest.mark.parametrize(
    ("schedule", "factor", "stages"),
    [
        (Schedule(device_iterations=3, mean=False), 1.0, 1),
        (Schedule(device_iterations=2, accumulation=4, mean=False), 0.25, 1),
        (Schedule(device_iterations=2, accumulation=4, mean=True, strategy=MeanStrategy.RUNNING), 1.0, 1),
        (Schedule(device_iterations=2, accumulation=2, replicas=2, mean=False), 0.25, 1),
        (Schedule(device_iterations=2, accumulation=4, mean=False), 0.25, 2),
    ],
    ids=["plain", "accumulation", "running mean", "replicas", "pipeline"],
)
def test_captured_updates__momentum__take_the_steps_of_the_rule(schedule: Schedule, factor: float, stages: int) -> None:
    data = np.random.default_rng(0).normal(size=(4 * schedule.micro_batches, 6)).astype(np.float32)
    mean = Schedule(
        device_iterations=schedule.device_iterations, accumulation=schedule.accumulation, replicas=schedule.replicas
    )
    wanted = trained(model(stages, buffers=False), Sgd(lr=RATE, momentum=MOMENTUM), mean, data)
    found = trained(model(stages, buffers=True), momentum(factor=factor), schedule, data)
    assert found["steps"] == 2 * schedule.device_iterations
    for name in ("w0", "w1"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=2e-6, atol=2e-7)


def test_captured_updates__clipped_by_a_norm_of_all__as_the_rule_does() -> None:
    data = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32) * 3
    schedule = Schedule(device_iterations=3, mean=False)
    rule = Sgd(lr=RATE, momentum=MOMENTUM, max_grad_norm=CLIP)
    wanted = trained(model(buffers=False), rule, schedule, data)
    found = trained(model(buffers=True), momentum(clips=True), schedule, data)
    np.testing.assert_allclose(found["w1"], wanted["w1"], rtol=2e-6, atol=2e-7)


def test_captured_updates__maps__are_one_pass_per_parameter() -> None:
    net, rule, schedule = model(buffers=True), momentum(), Schedule()
    final = training_pipeline(schedule, [Group(rule, net.parameters)]).run(net)
    verify(final)
    steps = [op for op in final.ops if op.stage.value == "update"]
    assert [op.kind for op in steps] == ["element_update"] * 3
    assert [len(op.outputs) for op in steps] == [2, 2, 1]
    assert parse(str(final)) == final


def test_captured_updates__host_writes_a_number_of_the_update__next_run_uses_it() -> None:
    net = model(buffers=True)
    rng = np.random.default_rng(0)
    weights = {v.name: np.zeros(v.shape, np.float32) for v in net.buffers}
    weights |= {p.name: rng.normal(size=p.shape).astype(np.float32) for p in net.parameters}
    data = rng.normal(size=(4, 6)).astype(np.float32)
    settings = Settings(system="bow-2000")
    with Session.of(net, groups=[Group(momentum(), net.parameters)], settings=settings, weights=weights) as session:
        session(data)
        np.testing.assert_array_equal(session.weights["w0"], weights["w0"])
        session.bring_to_host()
        session.weights["rate"] = np.float32(0.5)
        session.upload(["rate"])
        session(data)
        assert np.abs(session.weights["w0"] - weights["w0"]).max() > 0.01


def test_captured_updates__parameter_without_a_gradient__sees_zeros() -> None:
    def body(net, w, g):  # type: ignore[no-untyped-def]
        return [build.map_(net, arg(0) * 0.5 - arg(1), [w, g])]

    net = NetworkBuilder()
    x = net.input((2, 3), "f32", "x")
    used, idle = net.parameter((3,), "f32", "used"), net.parameter((4,), "f32", "idle")
    net.loss = build.mean(net, build.map_(net, arg(0) * arg(1), [x, used]), [0, 1])
    groups = [Group(CapturedUpdate(block_of(body, (p.shape, "f32"), (p.shape, "f32"))), (p,)) for p in (used, idle)]
    final = training_pipeline(Schedule(), groups).run(net.finish())
    feeds = {"x": np.ones((2, 3), np.float32), "used": np.ones(3, np.float32), "idle": np.ones(4, np.float32)}
    values = evaluate(final, {v: feeds[v.name] for v in final.entries})
    np.testing.assert_allclose(values[final.updates[idle]], 0.5)
    np.testing.assert_allclose(values[final.updates[used]], 0.5 - 1 / 3, rtol=1e-6)
