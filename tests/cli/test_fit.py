"""``abele fit``: what it prints, and models that it cannot find."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

pytest.importorskip("torch", reason="needs PyTorch")
Run = Callable[..., Any]

FILE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])
    def forward(self, x, labels):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return nn.functional.cross_entropy(x, labels)

def trained():
    model = Net()
    example = torch.zeros(8, 64), torch.zeros(8, dtype=torch.long)
    return model, example, torch.optim.SGD(model.parameters(), lr=0.1)

def alone():
    return Net()
"""
HOW = ("--system", "bow-2000", "--batch", "512", "--micro-batch", "8", "--check", "0")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with models."""
    path = tmp_path / "small_model.py"
    path.write_text(FILE)
    return path


def test_fit__model_of_a_file__ranking_and_code(abele: Run, file: Path, snapshot: SnapshotAssertion) -> None:
    finished = abele("fit", f"{file}:trained", *HOW)
    assert finished.status == 0
    # Figures are those of the compiler, whose own tests hold them.
    words = re.sub(r"[+-]?\d[\d,.]*", "#", finished.out)
    assert re.sub(r" +", " ", words) == snapshot


def test_fit__half_partials__are_in_the_code(abele: Run, file: Path) -> None:
    usual, halves = (abele("fit", f"{file}:trained", *HOW, *more).out for more in ((), ("--half-partials",)))
    line = "opts.Precision.setPartialsType(torch.half)"
    assert line in halves
    assert line not in usual


def test_fit__json__is_one_document(abele: Run, file: Path) -> None:
    data = json.loads(abele("fit", f"{file}:trained", *HOW, "--json").out)
    assert data["system"] == "bow-2000"
    assert data["smallest_ipus"] == 1
    assert data["ranking"][0]["reason"] == ""
    assert "poptorch.Options()" in data["code"]


@pytest.mark.parametrize(
    ("model", "texts"),
    [
        ("bert-lage", ("no model is called 'bert-lage'", "bert-large")),
        ("nowhere.py:model", ("there is no file nowhere.py",)),
        ("{file}:traind", ("has no function 'traind'", "trained")),
        ("{file}:alone", ("returned Net of 1", "return the model and the example inputs")),
    ],
)
def test_fit__model_that_is_not_there__is_said(abele: Run, file: Path, model: str, texts: tuple[str, ...]) -> None:
    finished = abele("fit", model.format(file=file), "--system", "bow-2000")
    assert finished.status == 2
    assert all(text in finished.err for text in texts)


def test_fit__file_that_fails__says_why(abele: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken_model.py"
    path.write_text("1 / 0\n")
    finished = abele("fit", f"{path}:model", "--system", "bow-2000")
    assert finished.status == 2
    assert "cannot be run: ZeroDivisionError" in finished.err


@pytest.mark.parametrize(
    ("given", "text"),
    [(("--micro-batch", "four"), "takes whole numbers"), (("--system", "pod17"), "pod17"), (("--batch", "0"), "batch")],
)
def test_fit__wrong_option__is_said(abele: Run, file: Path, given: tuple[str, ...], text: str) -> None:
    finished = abele("fit", f"{file}:trained", *given)
    assert finished.status == 2
    assert text in finished.err
