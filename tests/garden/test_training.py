"""Parts shared by the demos, and each new demo end to end: cut down in every run, whole in the slow one."""

from __future__ import annotations

import functools
import importlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("sklearn", reason="needs scikit-learn")
pytest.importorskip("matplotlib", reason="needs matplotlib")

from abele import poptorch
from abele.cli.demo import DEMOS, show
from abele.garden import graph, language, recommender, segmentation, series
from abele.garden.sources import LibraryModule, standard_library
from abele.garden.training import DemoResult, DemoSettings, HeldOut, Predictor
from abele.machine import systems

pytestmark = pytest.mark.torch

WHOLE = tuple(name for name in DEMOS if name not in ("digits", "braggnn", "packed-bert"))
"""Demos that set their figure beside simpler means, and have no tests of their own."""


def run(name: str, **settings: Any) -> DemoResult:
    demo = importlib.import_module(f"abele.garden.{name}")
    result: DemoResult = demo.run(DemoSettings(**settings), Console(file=io.StringIO()))
    return result


@functools.cache
def some_files() -> list[LibraryModule]:
    return [file for file in standard_library() if file.module.split(".")[0] in ("asyncio", "email", "json", "xml")]


def cut_down_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "standard_library", some_files)
    monkeypatch.setattr(graph, "COPIES", 20)


def cut_down_recommender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommender, "standard_library", some_files)
    monkeypatch.setattr(recommender, "TEST_BATCH", 64)


def cut_down_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SeriesNetwork", functools.partial(series.SeriesNetwork, width=8))


def cut_down_language(monkeypatch: pytest.MonkeyPatch) -> None:
    small = functools.partial(language.LanguageNetwork, width=16, layers=1, heads=2)
    for name, value in {
        "LanguageNetwork": small,
        "standard_library": some_files,
        "SAMPLE": 8,
        "NUM_TEST": 16,
        "CONTEXT": 32,
    }.items():
        monkeypatch.setattr(language, name, value)
    monkeypatch.setattr(language, "NUM_TRAINING", 2 * language.BATCH * language.DEVICE_ITERATIONS)


def cut_down_segmentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        segmentation, "SegmentationNetwork", functools.partial(segmentation.SegmentationNetwork, width=4)
    )
    monkeypatch.setattr(segmentation, "NUM_TRAINING", 6 * segmentation.BATCH * segmentation.DEVICE_ITERATIONS)
    monkeypatch.setattr(segmentation, "NUM_TEST", 32)


CUT_DOWN: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], int]] = {
    "graph": (cut_down_graph, 1),
    "recommender": (cut_down_recommender, 1),
    "series": (cut_down_series, 10),
    "language": (cut_down_language, 3),
    "segmentation": (cut_down_segmentation, 2),
}
"""Functions that make a demo small, with its remaining epochs."""


LONGER = ("graph", "language", "recommender", "segmentation")
"""Demos that are left to the slow tests even so."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONGER)) for n in CUT_DOWN])
def test_demo__cut_down__learns_something_and_prints_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_down, epochs = CUT_DOWN[name]
    cut_down(monkeypatch)
    result = run(name, epochs=epochs, threads=1, system=systems.bow_2000().evolve(ipu={"num_tiles": 64}))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_demo__whole__beats_what_stands_beside_it_and_is_the_same_again(name: str) -> None:
    result = run(name)
    assert [held_out.text() for held_out in result.held_out if not held_out.beats_all] == []
    again = run(name, threads=1)
    assert (again.figures, again.held_out, again.exhibit) == (result.figures, result.held_out, result.exhibit)


def test_demos__names__are_modules_of_the_garden_and_all_run_in_one_of_the_tests() -> None:
    assert set(WHOLE) == set(CUT_DOWN)


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
