"""The demos end to end, on few epochs: real training, the same bits again, a report with everything to print."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("sklearn", reason="needs scikit-learn")

from abele.garden import digits
from abele.garden.training import DemoResult, DemoSettings
from abele.viewer import static_page

pytestmark = pytest.mark.torch


def run_digits(threads: int, epochs: int = 1) -> DemoResult:
    return digits.run(DemoSettings(epochs=epochs, threads=threads), Console(file=io.StringIO()))


@pytest.fixture(scope="module")
def result() -> DemoResult:
    return run_digits(threads=1, epochs=2)


def test_digits__two_epochs__learns(result: DemoResult) -> None:
    assert float(result.figures["held_out_accuracy"]) > 0.8
    assert result.figures["held_out_samples"] == 360


def test_digits__its_report_as_one_file__is_below_1_mb(result: DemoResult, tmp_path: Path) -> None:
    assert static_page(result.report, tmp_path / "digits.html") < 1_000_000


def test_digits__one_thread_and_two__agree_to_the_last_bit(result: DemoResult) -> None:
    again = run_digits(threads=2, epochs=2)
    assert again.figures == result.figures


def test_digits__report__has_what_the_demo_prints(result: DemoResult) -> None:
    report = result.report
    cycles = report.step_cycles
    assert cycles.total > 0
    assert min(cycles.compute, cycles.exchange, cycles.sync, cycles.host) > 0
    assert report.samples_per_second is not None
    assert 0 < report.tile_balance <= 1
    assert report.memory.fits
    dearest = report.ops.top(5, "cycles")
    assert any(str(file).endswith("networks.py") for file in dearest["file"])
    assert float(report.runs["wall_seconds"].sum()) > 0


def test_digits__json__carries_figures_and_report(result: DemoResult) -> None:
    data = result.to_json()
    assert data["figures"] == result.figures
    assert data["report"]["format"] == "abele-report"
