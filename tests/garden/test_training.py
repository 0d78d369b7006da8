"""Parts shared by the demos, and demos end to end: one cut down in every run, two whole in the slow one."""

from __future__ import annotations

import functools
import importlib
import io
import json
from typing import Any

import pytest
from rich.console import Console

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("sklearn", reason="needs scikit-learn")
pytest.importorskip("matplotlib", reason="needs matplotlib")

from abele import poptorch
from abele.cli.demo import DEMOS, show
from abele.garden import series
from abele.garden.training import DemoResult, DemoSettings, HeldOut, Predictor
from abele.machine import systems
from support import sweeps

pytestmark = pytest.mark.torch

WHOLE = tuple(name for name in DEMOS if name not in ("digits", "braggnn", "packed-bert"))
"""Demos that set their figure beside simpler means, and have no tests of their own."""


def run(name: str, **settings: Any) -> DemoResult:
    demo = importlib.import_module(f"abele.garden.{name}")
    result: DemoResult = demo.run(DemoSettings(**settings), Console(file=io.StringIO()))
    return result


def check(result: DemoResult) -> None:
    """Compare what a demo found with what stands beside it, and with what it prints."""
    held_out = result.held_out[0]
    weakest = (min if held_out.higher_is_better else max)(held_out.beside.values())
    assert (held_out.value > weakest) is held_out.higher_is_better
    assert result.report.memory.fits
    assert result.report.samples_per_second
    data = json.loads(json.dumps(result.to_json()))
    assert data["held_out"][0]["value"] == held_out.value
    out = Console(file=io.StringIO(), width=200)
    show(result, DemoSettings().system, out)
    printed = out.file.getvalue()  # type: ignore[attr-defined]
    assert held_out.text() in printed
    assert f"loss {float(result.figures['loss']):.4f}" in " ".join(printed.split())
    assert result.exhibit.splitlines()[0] in printed
    assert "one weight update" in printed


def test_demo__cut_down__learns_something_and_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SeriesNetwork", functools.partial(series.SeriesNetwork, width=8))
    check(run("series", epochs=10, threads=1, system=systems.bow_2000().evolve(ipu={"num_tiles": 64})))


@pytest.mark.slow
@pytest.mark.parametrize("name", sweeps.sampled(WHOLE, 2))
def test_demo__whole__beats_what_stands_beside_it_and_is_the_same_again(name: str) -> None:
    """Each run beats what stands beside it; one of them is taken again, by one thread."""
    result = run(name)
    check(result)
    assert [held_out.text() for held_out in result.held_out if not held_out.beats_all] == []
    if name in sweeps.sampled(sweeps.sampled(WHOLE, 2), 1):
        again = run(name, threads=1)
        assert (again.figures, again.held_out, again.exhibit) == (result.figures, result.held_out, result.exhibit)


@pytest.mark.parametrize(("higher", "value", "beats"), [(True, 0.5, True), (True, 0.4, False), (False, 0.3, False)])
def test_held_out__beside_simpler_means__says_whether_it_beats_all(higher: bool, value: float, beats: bool) -> None:
    figure = HeldOut(
        measure="accuracy", value=value, beside={"a": 0.4, "b": 0.25}, on="9 cases", is_share=True,
        higher_is_better=higher,
    )  # fmt: skip
    assert figure.beats_all is beats
    assert figure.text() == f"{value:.1%} on 9 cases (beside it: a 40.0%, b 25.0%)"


@pytest.mark.parametrize("count", [1, 4, 7])
def test_predictor__any_number_of_samples__gives_each_its_own_result(count: int) -> None:
    model = torch.nn.Linear(3, 2)
    inputs = torch.randn(count, 3)
    found = Predictor(model, poptorch.Options(), batch=4)(inputs)
    assert torch.allclose(found, model(inputs), atol=1e-6)
