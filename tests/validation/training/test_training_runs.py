"""Published training runs: small ones are compiled and told, the real ones are configured as they were published."""

from __future__ import annotations

import json
import resource
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from abele.cli.main import app
from abele.errors import MachineError
from abele.machine import systems
from abele.network import Lamb, Lars, Sgd
from abele.validation.page import page_text
from abele.validation.training import comparing
from abele.validation.training.bert import Bert
from abele.validation.training.comparing import (
    UNCERTAINTY,
    Predicted,
    comparisons,
    details_text,
    predict_all,
    uncertainty,
)
from abele.validation.training.resnet import ResNet
from abele.validation.training.run import PARTS, Prediction, TrainingRun
from abele.validation.training.runs import RUNS, SCALINGS
from abele.validation.training.transformer import LayerSizes, StagePlan

SMALL = LayerSizes(hidden=64, heads=2, feed_forward=128)


def small_run(**changes: object) -> TrainingRun:
    run = TrainingRun(
        name="small",
        system="bow-2000",
        model=Bert(SMALL, StagePlan(((1, 0), (1, 2)), (0.2,)), 16, packed=2, masked=4, vocabulary=96),
        micro_batch=2,
        accumulation=6,
        replicas=2,
        items=48,
        item="sequence",
        published_seconds=1e-3,
        held=True,
    )
    return replace(run, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return small_run().predict()


def test_predict__pipeline_on_replicas__says_what_an_update_goes_to(prediction: Prediction) -> None:
    assert prediction.seconds > 0
    assert sum(prediction.parts[p] for p in PARTS) == pytest.approx(prediction.seconds)
    assert sum(prediction.phases.values()) == pytest.approx(prediction.seconds - prediction.parts["waiting"])
    assert prediction.phases["all_reduce"] > 0
    assert prediction.phases["update"] > 0
    # Two stages and that of the head: four ticks beside six.
    assert prediction.bubble == pytest.approx(0.4)
    assert prediction.fits
    assert 0 < prediction.needed_bytes <= prediction.available_bytes


def test_predict__more_micro_batches__take_longer_by_ticks(prediction: Prediction) -> None:
    longer = small_run(accumulation=12).predict()
    tick = (longer.seconds - prediction.seconds) / 6
    # Six ticks at least. Those four that fill and empty the pipeline, and the update, take up to as long.
    assert 6 < prediction.seconds / tick < 12


def test_predict__resnet__is_one_ipu_to_a_replica() -> None:
    model = ResNet(blocks=(1, 1), widths=(8, 16), image=32, classes=10, recompute_after=(1,))
    run = small_run(model=model, replicas=4, accumulation=2, optimiser="lars")
    found = run.predict()
    assert found.bubble == 0
    assert found.phases["update"] > 0
    rules = [type(g.optimiser) for g in run.groups(model.network(2))]
    assert rules == [Lars, Sgd]


def test_predict__system_without_enough_ipus__is_refused() -> None:
    with pytest.raises(MachineError):
        small_run(replicas=4).predict()


def test_comparisons__of_predictions__have_bars_and_details(prediction: Prediction) -> None:
    other = replace(prediction, run=replace(prediction.run, held=False, lacks=("dropout",)))
    found = comparisons(Predicted((prediction, other)))
    assert [c.key for c in found] == ["training", "training_others"]
    assert found[0].bars is not None
    assert found[0].holds == (abs(prediction.error) <= 0.10)
    text = page_text(found, {})
    assert "## Training runs\n" in text
    assert "| small, bow-2000 |" in text
    assert "- small, bow-2000: dropout" in text
    assert details_text([]) == ""


def test_comparisons__runs_on_four_times_as_many_ipus__are_held_to_the_published_growth(
    prediction: Prediction,
) -> None:
    name, (small, on), (large, there) = SCALINGS[0]
    first = replace(prediction, run=small_run(name=small, system=on, published_seconds=2.0))
    second = replace(prediction, seconds=prediction.seconds / 3, run=small_run(name=large, system=there))
    scaling = comparisons(Predicted((first, second)))[-1]
    (figure,) = scaling.figures
    assert (figure.name, figure.predicted, figure.reference) == (name, pytest.approx(3), pytest.approx(2000))


def test_uncertainty__of_parts__follows_the_sources_of_constants(prediction: Prediction) -> None:
    assert 0 < uncertainty(prediction) < max(UNCERTAINTY.values())
    nothing = replace(prediction, parts=dict.fromkeys(PARTS, 0.0), phases=dict.fromkeys(prediction.phases, 0.0))
    assert uncertainty(nothing) == 0


@pytest.mark.slow
def test_predict_all__a_run_that_does_not_compile__is_a_failure_beside_the_others() -> None:
    found = predict_all([small_run(), small_run(name="too large", replicas=64)])
    assert [p.run.name for p in found.predictions] == ["small"]
    assert found.failures[0].startswith("too large on bow-2000: MachineError: ")


def test_cli__training_alone__prints_runs_and_nothing_else(
    prediction: Prediction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "predict_all", lambda **_: Predicted((prediction,)))
    shown = CliRunner().invoke(app, ["validate", "--training", "--json"])
    told = json.loads(shown.stdout)
    assert [c["key"] for c in told["comparisons"]] == ["training"]
    (row,) = told["runs"]
    assert {"name", "system", "predicted_s", "published_s", "uncertainty"} <= row.keys()
    assert shown.exit_code == (0 if abs(prediction.error) <= 0.10 else 1)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.name}, {run.system}")
def test_runs__every_published_one__is_configured_consistently(run: TrainingRun) -> None:
    system = systems.get(run.system)
    stages = getattr(run.model, "stages", None)
    ipus = 1 if stages is None else len(stages.halves)
    assert ipus * run.replicas == system.num_ipus
    batch = run.micro_batch * run.accumulation * run.replicas
    # An item is a sample; packs hold up to three.
    assert 1 <= run.items / batch <= getattr(run.model, "packed", 1) or run.items == pytest.approx(batch, rel=0.01)
    assert run.published_seconds > 0
    assert run.source
    if isinstance(run.model, Bert):
        assert run.model.stages.layers == 24


def test_runs__names_on_systems__are_unique_and_those_of_scalings_exist() -> None:
    keys = [(run.name, run.system) for run in RUNS]
    assert len(set(keys)) == len(keys)
    assert all(key in keys for _, *pair in SCALINGS for key in pair)


def test_groups__of_bert__decay_matrices_alone() -> None:
    run = small_run()
    decayed, plain = run.groups(run.model.network(2))
    assert isinstance(decayed.optimiser, Lamb)
    assert decayed.optimiser.weight_decay > 0
    assert isinstance(plain.optimiser, Lamb)
    assert plain.optimiser.weight_decay == 0
    assert {len(v.shape) for v in plain.parameters} == {1}
    assert "embedding/word" in {v.name for v in decayed.parameters}


@pytest.mark.slow
def test_bert_large__for_a_pod16__compiles_in_bounded_memory() -> None:
    run = next(run for run in RUNS if run.system == "pod16" and run.name.startswith("BERT-Large, MLPerf"))
    found = run.predict()
    assert found.seconds == pytest.approx(run.published_seconds, rel=0.3)
    assert found.compile_seconds < 1800
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8 << 20
