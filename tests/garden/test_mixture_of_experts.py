"""The demo of experts: networks of equal compute, curves of both, and its command."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele.cli.demo import demo_app
from abele.errors import InvalidOptionError
from abele.garden import mixture_of_experts as demo
from abele.garden.language import LanguageNetwork
from abele.garden.mixture_of_experts import SHORT, ExpertsNetwork, ExpertsSize
from abele.garden.sources import standard_library
from abele.garden.training import DemoSettings

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def some_files(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [file for file in standard_library() if file.module.split(".")[0] in ("asyncio", "json", "xml")]
    monkeypatch.setattr(demo, "standard_library", lambda: files)


def test_networks__dense_and_with_experts__multiply_as_much_per_character() -> None:
    size = ExpertsSize()
    dense, experts = LanguageNetwork(size.width, size.layers, size.heads), ExpertsNetwork(size)
    block = experts.blocks[0]
    assert isinstance(block, demo.ExpertBlock)
    used = size.top_k * block.experts.get_parameter("up")[0].numel()
    assert used == dense.blocks[0].get_parameter("up.weight").numel()
    assert experts(torch.zeros(1, 128, dtype=torch.long)).shape == dense(torch.zeros(1, 128, dtype=torch.long)).shape


@pytest.mark.slow
def test_demo__short__has_both_curves_and_what_routing_cost(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curves.svg"
    result = demo.run(DemoSettings(threads=1), Console(file=io.StringIO()), size=SHORT, picture=picture)
    assert picture.stat().st_size > 1000
    figures = result.figures
    assert 0 < float(figures["experts_loss"]) < 5
    assert float(figures["experts_weights"]) > float(figures["dense_weights"])
    assert "2 of 4 x 64" in result.exhibit
    assert "fullest expert" in result.exhibit
    (held_out,) = result.held_out
    assert held_out.beside.keys() == {"dense"}


def test_size__that_makes_no_sense__is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="256 hidden features do not divide among 3 experts"):
        ExpertsSize(top_k=3)
    with pytest.raises(InvalidOptionError, match="steps = 30: a multiple of 20"):
        ExpertsSize(steps=30)


def test_command__with_wrong_steps__says_so() -> None:
    result = CliRunner().invoke(demo_app, ["mixture-of-experts", "--steps", "7"])
    assert result.exit_code != 0
    assert isinstance(result.exception, InvalidOptionError)
