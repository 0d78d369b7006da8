"""Two transformers in four precisions: a short run, its table and plots, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from rich.console import Console

from abele.errors import InvalidOptionError
from abele.garden import curves, low_precision, low_precision_training
from abele.garden.low_precision import SHORT
from abele.garden.low_precision_training import PRECISIONS, TrainedCurve, TrainingRates, made, train
from abele.garden.training import DemoSettings
from abele.machine import systems
from abele.poptorch import fp8, unit_scaling

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True, scope="module")
def _library_read_once() -> Iterator[None]:
    """The text of the library, which takes a second to read."""
    files = low_precision.standard_library()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_precision, "standard_library", lambda: files)
        yield


def test_made__precisions__have_their_layers_and_the_same_weights() -> None:
    task = low_precision._task("bert", SHORT, 0)
    models = {precision: made(task, precision, 3) for precision in PRECISIONS}
    plain = dict(models["f32"].named_parameters())
    for precision in ("f16", "f8"):
        for name, value in models[precision].named_parameters():
            assert value.dtype == torch.float16
            assert torch.equal(value, plain[name].half())
    kinds = {p: {type(m) for m in model.modules() if isinstance(m, torch.nn.Linear)} for p, model in models.items()}
    assert kinds["f8"] == {torch.nn.Linear, fp8.Fp8Linear}
    assert kinds["f8 unit"] == {unit_scaling.UnitLinear}
    products = [m.product for m in models["f8 unit"].modules() if isinstance(m, unit_scaling.UnitLinear)]
    assert sum(isinstance(product, fp8.Fp8Product) for product in products) == len(products) - 1


@pytest.mark.parametrize("network", low_precision.NETWORKS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_made__any_precision__has_a_loss_near_that_of_guessing(network: str, precision: str) -> None:
    task = low_precision._task(network, SHORT, 0)
    loss = made(task, precision, 0).float()(*(part[:8] for part in task.data))
    loss.backward()
    assert abs(loss.item() - np.log(len(low_precision.CHARACTERS))) < 1


def test_task__masked_text__says_what_was_masked() -> None:
    task = low_precision._task("bert", SHORT, 0)
    text, places, labels = task.data
    assert len(text) == SHORT.steps * SHORT.batch
    masked = text == len(low_precision.CHARACTERS)
    assert torch.equal(masked.sum(1), torch.full((len(text),), places.shape[1]))
    assert torch.equal(masked.gather(1, places), torch.ones_like(places, dtype=torch.bool))
    assert int(labels.max()) < len(low_precision.CHARACTERS)


def test_text_plot__two_curves__are_where_their_values_are() -> None:
    plot = curves.text_plot(
        {"a": np.array([4.0, 2.0]), "b": np.array([4.0, np.nan])}, np.array([1.0, 9.0]), width=10, height=5
    )
    lines = plot.splitlines()
    assert lines[0].startswith("  4.000 |+++++")
    assert lines[4] == "  2.000 |     ooooo"
    assert lines[-1].split() == ["o", "a", "+", "b"]


def test_picture__two_panels__is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    steps = np.arange(3.0)
    curves.picture({"one": (steps, {"a": steps}), "two": (steps, {"a": steps})}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("size", "networks", "message"),
    [
        ({"steps": 3}, ("gpt",), "steps = 3"),
        ({}, ("gtp",), "one of gpt, bert"),
        ({}, (), "one of gpt, bert"),
        ({"width": 33}, ("gpt",), "width = 33"),
        ({"batch": 0}, ("gpt",), "batch = 0"),
        ({"steps": 10_000_000}, ("gpt",), "the text has"),
    ],
)
def test_run__wrong_sizes__are_refused(size: dict[str, int], networks: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        low_precision.run(DemoSettings(), Console(file=io.StringIO()), size=replace(SHORT, **size), networks=networks)


@pytest.mark.parametrize("name", ["rate", "share"])
@pytest.mark.parametrize("value", [0.0, -1e-3, float("nan")])
def test_rates__not_above_zero__are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidOptionError, match=f"{name} = "):
        replace(TrainingRates(rate=1e-3, share=0.1), **{name: value})


def test_verdict__final_losses__are_held_against_the_bar() -> None:
    def curve(final: float) -> TrainedCurve:
        return TrainedCurve(np.array([5.0, final]), final, None, torch.nn.Identity())  # type: ignore[arg-type]

    made = {"f32": curve(2.0), "f16": curve(2.019), "f8": curve(2.021), "f8 unit": curve(float("nan"))}
    assert low_precision._verdict(made) == "within 1% of f32: f16; not within: f8, f8 unit"
    assert low_precision._verdict({"f32": curve(2.0), "f8": curve(1.0)}) == "within 1% of f32: f8; not within: none"


@pytest.mark.slow
@pytest.mark.parametrize("network", low_precision.NETWORKS)
def test_train__f32__has_the_losses_of_pytorch_over_all_steps_of_a_call(network: str) -> None:
    task = low_precision._task(network, SHORT, 1)
    settings = DemoSettings(system=systems.get("c600"), threads=1, seed=1)
    found = train(task, "f32", settings, low_precision.PER_CALL, lambda _figure="": None)
    model, losses = made(task, "f32", 1), []
    calls = task.num_steps // low_precision.PER_CALL
    for call in range(calls):
        rate = task.rates.rate * low_precision_training._schedule((call + 1) / calls)
        if call == 0:
            optimizer = torch.optim.AdamW(
                model.parameters(), rate, low_precision_training.BETAS, low_precision_training.EPSILON, weight_decay=0.0
            )
        optimizer.param_groups[0]["lr"] = rate
        for step in range(low_precision.PER_CALL):
            begin = (call * low_precision.PER_CALL + step) * task.batch
            optimizer.zero_grad()
            loss = model(*(part[begin : begin + task.batch] for part in task.data))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    np.testing.assert_allclose(found.losses, np.reshape(losses, (calls, -1)).mean(1), rtol=1e-3)


@pytest.mark.slow
def test_run__short_training__prints_four_curves_near_each_other() -> None:
    settings = DemoSettings(system=systems.get("c600"), threads=1)
    found = low_precision.run(settings, Console(file=io.StringIO()), size=SHORT, networks=("gpt",))
    assert all(f"gpt_{p.replace(' ', '_')}_loss" in found.figures for p in PRECISIONS)
    assert abs(float(found.figures["gpt_f16_above_f32"])) < 0.02
    assert abs(float(found.figures["gpt_f8_above_f32"])) < 0.05
    assert all(precision in found.exhibit for precision in PRECISIONS)
    assert max(map(len, found.exhibit.splitlines())) <= 80
    assert found.report.memory.fits
