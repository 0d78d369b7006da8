"""Networks over several IPUs: sharded, and as pipelines; they compute what one IPU computes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from abele.distribution import inference_program, training_program
from abele.distribution.pipelined import Ticks
from abele.errors import InvalidOptionError, NetworkError
from abele.expr.derivative import arg
from abele.graph import DebugRecord, Graph
from abele.machine import systems
from abele.network import Adam, Group, Lamb, Network, NetworkBuilder, Place, Schedule, Sgd, training_pipeline
from abele.network.ops import build
from abele.network.schedule import OutputMode, PipelineSchedule
from abele.numerics import f16, f32
from abele.session import Session, Settings, SharedArrays, compile_network

WIDTH, BATCH = 8, 4
Array = npt.NDArray[np.float32]


def mlp(
    places: list[Place],
    *,
    dropout: bool = False,
    tied: bool = False,
    dtype: object = f32,
    batch: int = BATCH,
    width: int = WIDTH,
) -> Network:
    """A product, a non-linearity and a skip connection to the input on each place; the loss is on the last."""
    net = NetworkBuilder()
    x, target = net.input((batch, width), dtype, "x"), net.input((batch, width), dtype, "target")
    hidden, first = x, None
    for number, place in enumerate(places):
        weight = first if tied and first is not None and number == len(places) - 1 else None
        weight = weight if weight is not None else net.parameter((width, width), dtype, f"w{number}")
        bias = net.parameter((width,), dtype, f"b{number}")
        first = first or weight
        with net.at(place=place):
            hidden = build.nonlinearity(net, "tanh", build.linear(net, hidden, weight, bias))
            if dropout:
                hidden = build.dropout(net, hidden, 0.5)
            if number:
                hidden = build.map_(net, arg(0) + arg(1), [hidden, x])
    with net.at(place=places[-1]):
        error = build.map_(net, (arg(0) - arg(1)) * (arg(0) - arg(1)), [hidden, target])
        net.loss = build.mean(net, error, [0, 1])
        net.output(net.loss)
    with net.at(place=places[len(places) // 2]):
        net.output(build.map_(net, arg(0) * 2.0, [hidden]) if places[len(places) // 2] == places[-1] else net.loss)
    return net.finish()


def data(rounds: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rounds * BATCH, WIDTH)).astype(np.float32)
    return x, np.tanh(x[:, ::-1])


def weights_of(net: Network) -> SharedArrays:
    rng = np.random.default_rng(0)
    return SharedArrays({p.name: 0.5 * rng.normal(size=p.shape).astype(p.dtype.np) for p in net.parameters})


def train(net: Network, schedule: Schedule, optimiser: object, *, mode: str = "native") -> tuple[Array, SharedArrays]:
    """Losses of three runs, and the weights."""
    weights = weights_of(net)
    settings = Settings(mode=mode)
    session = Session.of(net, schedule, groups=[Group(optimiser, net.parameters)], settings=settings, weights=weights)
    x, target = data(schedule.micro_batches)
    losses = np.stack(
        [session(x.astype(net.inputs[0].dtype.np), target.astype(net.inputs[0].dtype.np))[0] for _ in range(3)]
    )
    session.bring_to_host()
    return losses, weights


@cache
def alone(
    places: int, schedule: Schedule, optimiser: object, mode: str = "native", **kind: bool
) -> tuple[Array, SharedArrays]:
    """Losses and weights of one IPU with as many places; several tests hold several IPUs against it, so nobody changes
    it.
    """
    return train(mlp([Place()] * places, **kind), schedule, optimiser, mode=mode)


PIPELINES = {
    "two stages": [Place(0, 0), Place(1, 1)],
    "four stages": [Place(n, n) for n in range(4)],
    "head on the first IPU": [Place(0, 0), Place(1, 1), Place(0, 2)],
    "two stages on an IPU": [Place(0, 0), Place(0, 1), Place(1, 2)],
    "sharded": [Place(0), Place(1), Place(2)],
    "there and back": [Place(0), Place(1), Place(0)],
}


@pytest.mark.parametrize("places", PIPELINES.values(), ids=PIPELINES)
@pytest.mark.parametrize("mode", ["native", "tiles"])
@pytest.mark.parametrize(
    "optimiser", [Sgd(lr=0.1, momentum=0.9), Adam(lr=0.01), Lamb(lr=0.01)], ids=["sgd", "adam", "lamb"]
)
def test_training__over_ipus__learns_what_one_ipu_learns(places: list[Place], mode: str, optimiser: object) -> None:
    schedule = Schedule(device_iterations=2, accumulation=9, outputs=OutputMode.ALL)
    one, weights = alone(len(places), schedule, optimiser, mode)
    several, spread = train(mlp(places), schedule, optimiser, mode=mode)
    np.testing.assert_allclose(several, one, rtol=2e-6, atol=1e-7)
    for name in weights:
        np.testing.assert_allclose(spread[name], weights[name], rtol=2e-5, atol=1e-6)
    assert one[-1].mean() < one[0].mean()


@pytest.mark.parametrize("places", [PIPELINES["four stages"], PIPELINES["sharded"]], ids=["pipelined", "sharded"])
def test_dropout__over_ipus__draws_what_one_ipu_draws(places: list[Place]) -> None:
    schedule = Schedule(device_iterations=2, accumulation=9, outputs=OutputMode.ALL)
    one, _ = alone(len(places), schedule, Sgd(lr=0.1), dropout=True)
    several, _ = train(mlp(places, dropout=True), schedule, Sgd(lr=0.1))
    np.testing.assert_allclose(several, one, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("places", [PIPELINES["four stages"], PIPELINES["head on the first IPU"]], ids=["far", "near"])
def test_tied_weights__of_first_and_last_stage__have_the_sum_of_gradients(places: list[Place]) -> None:
    schedule = Schedule(device_iterations=2, accumulation=9, outputs=OutputMode.ALL)
    one, weights = train(mlp([Place()] * len(places), tied=True), schedule, Sgd(lr=0.1))
    several, spread = train(mlp(places, tied=True), schedule, Sgd(lr=0.1))
    np.testing.assert_allclose(several, one, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(spread["w0"], weights["w0"], rtol=2e-5, atol=1e-6)


def test_tied_weights__of_stages_of_one_ipu__are_summed_by_each_stage() -> None:
    net = mlp(PIPELINES["head on the first IPU"], tied=True)
    schedule, groups = Schedule(accumulation=9), [Group(Sgd(lr=0.1), net.parameters)]
    final = training_pipeline(schedule, groups).run(net)
    sums = [op for op in final.ops if op.kind == "accumulate" and op.output.shape == (WIDTH, WIDTH)]
    tied = [op for op in sums if op.debug.name == "accumulate/w0"]
    # The head's part waits for nothing: it is added in the stage that makes it, before that of the first stage.
    last = final.num_stages - 1
    assert [op.output.place.pipeline_stage for op in tied] == [last // 2, last]
    assert tied[1].inputs[0] is tied[0].output
    assert not any(op.kind == "map" and op.debug.name == "accumulate/w0" for op in final.ops)


@pytest.mark.parametrize(
    "options",
    [
        {"max_grad_norm": 0.05},
        {"loss_scaling": 8.0},
        {"accumulation": f16},
        {"variable": frozenset({"lr"})},
    ],
    ids=str,
)
def test_options_of_optimisers__in_a_pipeline__do_what_they_do_on_one_ipu(options: dict[str, object]) -> None:
    schedule = Schedule(device_iterations=2, accumulation=9, outputs=OutputMode.ALL)
    one, _ = train(mlp([Place()] * 2), schedule, Adam(lr=0.01, **options))
    several, _ = train(mlp(PIPELINES["two stages"]), schedule, Adam(lr=0.01, **options))
    np.testing.assert_allclose(several, one, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("places", [PIPELINES["four stages"], PIPELINES["two stages on an IPU"]], ids=["four", "two"])
@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_gradients__that_are_the_same_for_all_micro_batches__reach_the_first_stage(
    places: list[Place], mode: str
) -> None:
    net = NetworkBuilder()
    hidden = net.input((BATCH, WIDTH), f32, "x")
    for number, place in enumerate(places):
        with net.at(place=place):
            hidden = build.matmul(net, hidden, net.parameter((WIDTH, WIDTH), f32, f"w{number}"))
            net.loss = build.mean(net, hidden, [0, 1])
    net.output(net.loss)
    model = net.finish()
    weights = weights_of(model)
    start = {name: np.array(weights[name], np.float64) for name in weights}
    session = Session.of(
        model,
        Schedule(accumulation=7),
        groups=[Group(Sgd(lr=1.0), model.parameters)],
        settings=Settings(mode=mode),
        weights=weights,
    )
    x = data(7)[0]
    session(x)
    session.bring_to_host()
    entered, back = [x.astype(np.float64)], np.full((7 * BATCH, WIDTH), 1 / (BATCH * WIDTH))
    for number in range(len(places)):
        entered.append(entered[-1] @ start[f"w{number}"])
    for number in reversed(range(len(places))):
        expected = start[f"w{number}"] - entered[number].T @ back / 7
        np.testing.assert_allclose(weights[f"w{number}"], expected, rtol=1e-4, atol=1e-5, err_msg=f"w{number}")
        back = back @ start[f"w{number}"].T


@pytest.mark.parametrize("outputs", list(OutputMode), ids=str)
def test_outputs__of_a_pipeline__come_back_as_asked_for(outputs: OutputMode) -> None:
    schedule = Schedule(device_iterations=2, accumulation=9, outputs=outputs, period=3)
    one, _ = alone(4, schedule, Sgd(lr=0.1), dropout=False)
    several, _ = train(mlp(PIPELINES["four stages"]), schedule, Sgd(lr=0.1))
    np.testing.assert_allclose(several, one, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("rounds", [1, 2, 4, 7])
def test_inference__over_stages__gives_each_micro_batch_its_result(rounds: int) -> None:
    results = []
    for places in ([Place()] * 4, PIPELINES["four stages"]):
        net = mlp(places)
        session = Session.of(net, Schedule(device_iterations=rounds), weights=weights_of(net))
        results.append(session(*data(rounds))[0])
    np.testing.assert_allclose(results[1], results[0], rtol=2e-6)


def test_replicas__of_a_pipeline__learn_what_one_learns_from_all_samples() -> None:
    whole = Schedule(device_iterations=2, accumulation=14, outputs=OutputMode.SUM)
    halves = Schedule(device_iterations=2, accumulation=7, replicas=2, outputs=OutputMode.SUM)
    _, weights = train(mlp([Place()] * 3), whole, Sgd(lr=0.1))
    _, spread = train(mlp(PIPELINES["head on the first IPU"]), halves, Sgd(lr=0.1))
    for name in weights:
        np.testing.assert_allclose(spread[name], weights[name], rtol=2e-5, atol=1e-6)


def test_stage__that_reads_what_a_later_one_makes__is_refused() -> None:
    net = mlp([Place(1, 1), Place(0, 0)])
    with pytest.raises(NetworkError, match="reads what stage 1 makes"):
        train(net, Schedule(accumulation=9), Sgd(lr=0.1))


@pytest.mark.usefixtures("whole_machine")
def test_stages__on_ipus_of_their_own__work_at_the_same_time() -> None:
    cycles = {}
    for name, places in (("sharded", [Place(n) for n in range(4)]), ("pipelined", PIPELINES["four stages"])):
        net = mlp(places, batch=128, width=1024)
        compiled = compile_network(
            net,
            Schedule(accumulation=20),
            groups=[Group(Sgd(lr=0.1), net.parameters)],
            settings=Settings(),
        )
        cycles[name] = compiled.executable.report.total_cycles
    assert cycles["pipelined"] < 0.7 * cycles["sharded"]


@pytest.mark.parametrize("pipeline", list(PipelineSchedule))
@pytest.mark.parametrize("places", [PIPELINES["four stages"], PIPELINES["two stages on an IPU"]], ids=["four", "two"])
@pytest.mark.parametrize("dropout", [False, True], ids=["plain", "dropout"])
def test_schedules__of_a_pipeline__learn_the_same(
    pipeline: PipelineSchedule, places: list[Place], dropout: bool
) -> None:
    schedule = Schedule(device_iterations=2, accumulation=9, outputs=OutputMode.ALL)
    one, weights = alone(len(places), schedule, Sgd(lr=0.1), dropout=dropout)
    several, spread = train(mlp(places, dropout=dropout), replace(schedule, pipeline=pipeline), Sgd(lr=0.1))
    np.testing.assert_allclose(several, one, rtol=2e-6, atol=1e-7)
    for name in weights:
        np.testing.assert_allclose(spread[name], weights[name], rtol=2e-5, atol=1e-6)


def test_stages__that_take_turns__hold_fewer_micro_batches() -> None:
    held, cycles = {}, {}
    for pipeline in PipelineSchedule:
        net = mlp(PIPELINES["four stages"], batch=256, width=256)
        compiled = compile_network(
            net,
            Schedule(accumulation=40, pipeline=pipeline),
            groups=[Group(Sgd(lr=0.1), net.parameters)],
            settings=Settings(),
        )
        report = compiled.executable.report
        sizes = zip(report.variables["name"], report.variables["bytes"], strict=True)
        held[pipeline], cycles[pipeline] = sum(int(b) for name, b in sizes if "ring" in name), report.total_cycles
    grouped, interleaved, sequential = PipelineSchedule
    # Activations of 6, 4 and 2 micro-batches against those of 4, 3 and 2.
    assert held[grouped] > 12 / 9 * held[interleaved]
    assert held[sequential] == 0
    assert max(cycles[grouped], cycles[interleaved]) < cycles[sequential]


def test_schedule__of_an_unknown_name__is_refused() -> None:
    assert Schedule(pipeline="interleaved").pipeline is PipelineSchedule.INTERLEAVED
    with pytest.raises(InvalidOptionError, match="'grouped', 'interleaved', 'sequential', not '1f1b'"):
        Schedule(pipeline="1f1b")


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3, 7])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 5), (3, 1), (3, 3), (7, 100), (5, 2), (6, 8)])
def test_ticks__of_a_pipeline__bring_each_micro_batch_through_each_stage(
    stages: int, micro_batches: int, stride: int, apart: bool
) -> None:
    ticks = Ticks(stages, micro_batches, stride)
    loops = ticks.runs(apart=apart)
    rows = [set(ticks.busy(tick)) for body, count in loops for _ in range(count) for tick in body]
    every = [{s for s in range(stages) if t >= s and (t - s) % stride == 0 and (t - s) // stride < micro_batches}
             for t in range(ticks.count)]  # fmt: skip
    assert [row for row in rows if row] == [row for row in every if row]
    assert len(loops) <= 2 * stages + 5 * stride


def test_rings__of_large_values__are_read_when_their_first_reader_is_about_to_run() -> None:
    system = systems.get("bow-2000").evolve(ipu={"num_tiles": 16})
    net = NetworkBuilder()
    hidden = net.input((64, 64), "f32", "x")
    for stage in range(3):
        with net.at(place=Place(stage, stage)):
            for layer in range(2):
                product = build.matmul(net, hidden, net.parameter((64, 64), "f32", f"w{stage}.{layer}"))
                hidden = build.keep(net, build.nonlinearity(net, "tanh", product))
            net.loss = build.mean(net, hidden, [0, 1])
    net.output(net.loss)
    model = net.finish()
    settings = Settings(system=system)
    report = compile_network(
        model, Schedule(accumulation=12), groups=[Group(Sgd(lr=0.1), model.parameters)], settings=settings
    ).executable.report
    steps = report.steps
    backward = [str(n) for n, block in zip(steps["name"], steps["block"], strict=True) if str(block) == "stage4"]
    reads = [number for number, name in enumerate(backward) if name.startswith("read_ring")]
    products = [number for number, name in enumerate(backward) if "matmul" in name]
    assert any(reads[0] < product < reads[-1] for product in products)


def test_stages__that_compute_a_norm_again__make_no_result_of_it_that_nothing_reads() -> None:
    net = NetworkBuilder()
    hidden = net.input((BATCH, WIDTH), "f32", "x")
    for stage in range(3):
        with net.at(place=Place(stage, stage)):
            product = build.matmul(net, hidden, net.parameter((WIDTH, WIDTH), "f32", f"w{stage}"))
            gain, shift = (net.parameter((WIDTH,), "f32", f"{what}{stage}") for what in ("gain", "shift"))
            with net.at(DebugRecord("norm")):
                hidden = build.norm(net, product, 1, 1e-5, gain, shift)[0]
            net.loss = build.mean(net, build.map_(net, arg(0) * arg(0), [hidden]), [0, 1])
    net.output(net.loss)
    model = net.finish()
    made = training_program(model, Graph("bow-2000"), Schedule(accumulation=8), [Group(Sgd(lr=0.1), model.parameters)])
    names = [v.name for v in made.graph.variables]
    # Whitened activations alone; where both are made, they are "out" and "whitened".
    assert any("norm/again" in name and name.endswith("norm/out") for name in names)
    assert not any("norm/again" in name and name.endswith("whitened") for name in names)


def test_constant_in_a_value_that_is_sent_once__lies_as_its_reader_wants() -> None:
    def tiles(stages: int) -> list[int]:
        """Tiles of a constant that multiplies a weight of the first of ``stages``, for the last."""
        net = NetworkBuilder()
        x, w = net.input((64, 256), "f32", "x"), net.parameter((256, 256), "f32", "w")
        share = net.constant(np.linspace(0, 1, 256, dtype=np.float32), "f32", "share")
        hidden = build.linear(net, x, w)
        scaled = build.map_(net, arg(0) * arg(1), [w, share])
        with net.at(place=Place(stages - 1, stages - 1)):
            net.output(build.linear(net, hidden, scaled))
        graph = Graph(systems.get("bow-2000").with_ipus(stages))
        inference_program(net.finish(), graph, Schedule(device_iterations=2))
        (variable,) = (v for v in graph.variables if v.name.endswith("share"))
        return graph.mapping_of(graph.whole(variable)).tile.tolist()

    assert tiles(2) == tiles(1)
