"""Recording exponents: which tensors, when, what is counted, and what the modelled machine knows of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from abele.errors import InvalidOptionError, SessionError, UnknownArrayError
from abele.expr.derivative import arg
from abele.network import Anchor, Group, Network, NetworkBuilder, OutputMode, Sgd
from abele.network.ops import build
from abele.numerics import f32
from abele.numerics.exponents import count_exponents
from abele.report import Report
from abele.session import Schedule, Session, Settings
from abele.trace import Trace, recording

FEATURES = 6


def line() -> Network:
    builder = NetworkBuilder()
    x, target = builder.input((8, FEATURES), f32, "x"), builder.input((8, 2), f32, "target")
    weight, bias = builder.parameter((2, FEATURES), f32, "weight"), builder.parameter((2,), f32, "bias")
    with builder.at(builder.origin.renamed("layer")):
        y = build.linear(builder, x, weight, bias)
    error = build.map_(builder, (arg(0) - arg(1)) * (arg(0) - arg(1)), [y, target])
    builder.loss = build.mean(builder, error, [0, 1])
    builder.outputs.append(builder.loss)
    return builder.finish()


def session(schedule: Schedule | None = None, *, training: bool = True, **settings: object) -> Session:
    net = line()
    return Session.of(
        net,
        schedule or Schedule(),
        groups=[Group(Sgd(lr=0.1), net.parameters)] if training else None,
        settings=Settings(system="bow-2000", **settings),  # type: ignore[arg-type]
        weights={"weight": np.full((2, FEATURES), 0.5, np.float32), "bias": np.zeros(2, np.float32)},
    )


def data(rows: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(rows, n)).astype(np.float32) for n in (FEATURES, 2))  # type: ignore[return-value]


def octaves(array: np.ndarray) -> list[int]:
    return count_exponents(array).octaves.tolist()


@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_record__weights_and_gradients__are_those_that_anchors_bring(mode: str) -> None:
    anchors = (Anchor("gradient/weight", OutputMode.FINAL), Anchor("updated/weight", OutputMode.FINAL))
    with session(Schedule(anchors=anchors), exponents=("weights", "gradients"), mode=mode) as found:
        for seed in range(3):
            results = found.run(data(seed=seed))
        heats = {name: found.report.exponents.heat(name) for name in ("gradient/weight", "weight")}
    for heat, array in zip(heats.values(), results.anchors, strict=True):
        assert heat.steps.tolist() == [1, 2, 3]
        assert heat.counts[-1].tolist() == octaves(array)
    assert (heats["gradient/weight"].role, heats["weight"].role) == ("gradient", "weight")


def test_record__activations__are_those_of_the_last_micro_batch() -> None:
    x, target = data(32)
    with session(Schedule(device_iterations=2, accumulation=2), training=False, exponents=("activations",)) as found:
        found.run((x, target))
        names = found.report.exponents.tensors
        (name,) = [n for n in names if n.startswith("layer")]
        heat = found.report.exponents.heat(name)
    assert heat.counts[-1].tolist() == octaves(x[24:] @ np.full((FEATURES, 2), 0.5, np.float32))


def test_record__every_so_many_steps__comes_with_the_run_that_has_one() -> None:
    with session(Schedule(device_iterations=2), exponents=("weight",), exponents_every=3) as found:
        for seed in range(6):
            found.run(data(16, seed))
        # Steps 3, 6, 9 and 12 are in the runs that end with steps 4, 6, 10 and 12.
        assert found.report.exponents.heat("weight").steps.tolist() == [4, 6, 10, 12]


def test_record__modelled_costs__are_those_without() -> None:
    with session(exponents=("all",)) as recorded, session() as plain:
        for each in (recorded, plain):
            each.run(data())
        assert recorded.report.total_cycles == plain.report.total_cycles
        assert recorded.report.memory.total_bytes == plain.report.memory.total_bytes
        assert np.array_equal(recorded.weights["weight"], plain.weights["weight"])
        assert len(plain.report.exponents) == 0
        assert str(plain.report.exponents) == "no exponents were recorded"


def test_record__replicas__are_counted_together() -> None:
    with session(Schedule(replicas=2), exponents=("gradient/weight", "weight")) as found:
        found.run(data(16))
        records = {row["tensor"]: row for row in found.report.exponents.records.rows()}
    assert records["gradient/weight"]["elements"] == 2 * 2 * FEATURES
    assert records["weight"]["elements"] == 2 * FEATURES


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (("weight",), ["weight"]),
        (("updated/weight",), ["weight"]),
        (("gradient/*",), ["gradient/weight", "gradient/bias"]),
        (("weight", "weights", "w*"), ["weight", "bias"]),
        (("?ias",), ["bias"]),
    ],
)
def test_record__names_patterns_and_words__choose_tensors_once(wanted: tuple[str, ...], expected: list[str]) -> None:
    with session(exponents=wanted) as found:
        found.run(data())
        assert list(found.report.exponents.tensors) == expected


def test_record__tensor_that_there_is_not__is_an_error_with_the_nearest() -> None:
    with pytest.raises(UnknownArrayError, match=r"(?s)exponents of 'wieght' cannot be recorded.*did you mean 'weight'"):
        session(exponents=("wieght",)).run(data())
    with pytest.raises(UnknownArrayError, match="no tensor of floats is called so"):
        session(exponents=("nothing*",)).run(data())


def test_record__gradients_of_inference__are_refused() -> None:
    with pytest.raises(UnknownArrayError, match="a program for inference has no gradients"):
        session(training=False, exponents=("gradients",)).run(data())


def test_record__all_of_inference__leaves_gradients_out() -> None:
    with session(training=False, exponents=("all",)) as found:
        found.run(data())
        assert {str(r) for r in found.report.exponents.records["role"].tolist()} == {"weight", "activation"}


def test_record__program_from_a_cache__has_no_names_of_gradients(tmp_path: Path) -> None:
    with session(cache=str(tmp_path), exponents=("weights",)) as first:
        first.run(data())
    with session(cache=str(tmp_path), exponents=("weights",)) as again:
        again.run(data())
        assert again.report.exponents.tensors == ("weight", "bias")
    with pytest.raises(SessionError, match="does not say which tensors are gradients"):
        session(cache=str(tmp_path), exponents=("gradients",)).run(data())


@pytest.mark.parametrize("given", [{"exponents": 3}, {"exponents": ("weight",), "exponents_every": 0}])
def test_settings__that_are_none__are_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidOptionError):
        session(**given)  # type: ignore[arg-type]


def test_record__overflow_and_nan__are_counted() -> None:
    x, target = data()
    x[0, 0], target[1, 0] = np.inf, np.nan
    with session(exponents=("gradient/weight", "layer*")) as found:
        found.run((x, target))
        (name,) = [n for n in found.report.exponents.tensors if n.endswith("/out") and "grad" not in n]
        total = found.report.exponents.total("gradient/weight")
        assert total.nans > 0
        assert found.report.exponents.total(name).infinities == 2
        assert "NaN" in found.report.exponents.text()


def test_report__with_exponents__is_the_same_from_a_file(tmp_path: Path) -> None:
    with session(exponents=("all",)) as found:
        for seed in range(4):
            found.run(data(seed=seed))
        before = found.report
    before.save(tmp_path / "one.abele-report")
    after = Report.load(tmp_path / "one.abele-report")
    assert after.exponents.tensors == before.exponents.tensors
    for name in before.exponents.tensors:
        assert np.array_equal(after.exponents.heat(name).counts, before.exponents.heat(name).counts)
    assert after.exponents.to_json() == before.exponents.to_json()
    assert after.exponents.text("weight") == before.exponents.text("weight")
    columns = after.exponents.columns()
    rows = columns["tensor"] == "weight"
    assert int(columns["count"][rows].sum()) == 4 * 2 * FEATURES
    sums = after.sql("select sum(count) as n from exponent_counts c join exponent_records r on c.record = r.id "
                     "where tensor = 'weight'")  # fmt: skip
    assert int(sums["n"][0]) == 4 * 2 * FEATURES


def test_trace__that_is_recorded_meanwhile__has_a_heat_map_for_each_tensor(tmp_path: Path) -> None:
    path = tmp_path / "one.abele-trace"
    with recording(path), session(exponents=("weights",)) as found:
        found.run(data())
        found.run(data())
    heatmaps = {heat.name: heat for heat in Trace.load(path).heatmaps}
    heat = heatmaps["exponents of weight"]
    assert heat.counts.shape == (2, 255)
    assert heat.counts[0].sum() == 2 * FEATURES
    assert (heat.edges[0], heat.edges[-1]) == (-127, 128)
