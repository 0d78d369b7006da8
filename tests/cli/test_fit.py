"""``abele fit``: what it prints, and models that it cannot find."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

pytest.importorskip("torch", reason="needs PyTorch")

from abele.cli import fit_answer
from abele.cli.fit_answer import FitAnswer, FitQuestion
from abele.machine import systems

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

def of_length(sequence=4):
    model = Net()
    labels = torch.zeros(8 * sequence, dtype=torch.long)
    return model, (torch.zeros(8 * sequence, 64), labels), torch.optim.SGD(model.parameters(), lr=0.1)

def alone():
    return Net()

def split():
    return *trained(), {"layers.0": "column", "layers.1": "row"}

def split_forward():
    model, example, _ = trained()
    return model, example, {"layers.0": "column", "layers.1": "row"}
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
    assert "setPartialsType" not in finished.out


def test_fit__half_partials__are_in_the_code(abele: Run, file: Path) -> None:
    out = abele("fit", f"{file}:trained", *HOW, "--half-partials").out
    assert "opts.Precision.setPartialsType(torch.half)" in out


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


SEQUENCES = ("--system", "bow-2000", "--micro-batch", "8", "--check", "0", "--sequence", "2,4")


def test_fit__several_sequence_lengths__an_answer_for_each_and_a_table(abele: Run, file: Path) -> None:
    out = abele("fit", f"{file}:of_length", *SEQUENCES, "--no-code").out
    heading, *rows = out.splitlines()[:3]
    assert heading.split() == ["sequence", "smallest", "IPUs", "x", "replicas", "micro-batch", "samples/s", "tokens/s"]
    assert [row.split()[0] for row in rows] == ["2", "4"]
    samples, tokens = (float(word.replace(",", "")) for word in rows[1].split()[-2:])
    assert tokens == pytest.approx(4 * samples, rel=0.01)
    assert out.count("the smallest part that holds the model is 1 IPU") == 2


@pytest.mark.slow
def test_fit__several_sequence_lengths_as_json__an_answer_for_each(abele: Run, file: Path) -> None:
    data = json.loads(abele("fit", f"{file}:of_length", *SEQUENCES, "--json").out)
    assert [data["sequences"][length]["smallest_ipus"] for length in ("2", "4")] == [1, 1]


@pytest.mark.slow
def test_fit__several_numbers_of_io_tiles__all_are_in_the_ranking(abele: Run, file: Path) -> None:
    data = json.loads(abele("fit", f"{file}:trained", *HOW, "--io-tiles", "0,32", "--json").out)
    assert {plan["io_tiles"] for plan in data["ranking"]} == {0, 32}


@pytest.mark.parametrize(
    ("name", "trains"), [pytest.param("split", True, marks=pytest.mark.slow), ("split_forward", False)]
)
def test_fit__groups_of_a_function_with_a_plan__are_in_the_ranking(
    abele: Run, file: Path, name: str, trains: bool
) -> None:
    data = json.loads(abele("fit", f"{file}:{name}", *HOW, "--tensor", "1,2", "--json").out)
    assert {plan["replicas_per_model"] for plan in data["ranking"]} == {1, 2}
    assert ("gradientAccumulation" in data["code"]) == trains


def test_fit__plan_and_no_groups__each_replica_is_a_model(abele: Run, file: Path) -> None:
    data = json.loads(abele("fit", f"{file}:split", *HOW, "--json").out)
    assert {plan["replicas_per_model"] for plan in data["ranking"]} == {1}


def test_fit__changes__model_that_fits_needs_none(abele: Run, file: Path) -> None:
    said = abele("fit", f"{file}:trained", "--system", "bow-2000", "--changes").out
    assert said.strip().endswith("it fits")


def test_answer__model_with_a_name__is_kept_with_all_that_it_depends_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path))
    asked: list[FitQuestion] = []

    def found(question: FitQuestion, _: object) -> FitAnswer:
        asked.append(question)
        return FitAnswer(text="so", code="", content="{}")

    monkeypatch.setattr(fit_answer, "_found", found)
    question = FitQuestion(model="bert-large", system=systems.resolve("bow-pod16"))
    others = [replace(question, batch=512), replace(question, system=systems.resolve("pod16")), question]
    for each in (question, *others, *others):
        assert fit_answer.answer(each, lambda _what, _part: None).text == "so"
    assert asked == [question, *others[:2]]
    # What a file says is not known before it is run.
    of_file = replace(question, model="some.py:model")
    for _ in range(2):
        fit_answer.answer(of_file, lambda _what, _part: None)
    assert asked[-2:] == [of_file, of_file]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--micro-batch", "four"), "takes whole numbers"),
        (("--system", "pod17"), "pod17"),
        (("--batch", "0"), "batch"),
        (("--sequence", "128"), "takes no argument 'sequence'"),
        (("--sequence", "0"), "--sequence takes positive"),
        (("--io-tiles", "1472"), "1472 IO tiles leave none to compute"),
        (("--io-tiles", "-1"), "cannot have -1 IO tiles"),
        (("--tensor", "1,2"), "has no plan that says how its layers are split"),
    ],
)
def test_fit__wrong_option__is_said(abele: Run, file: Path, given: tuple[str, ...], text: str) -> None:
    finished = abele("fit", f"{file}:trained", *given)
    assert finished.status == 2
    assert text in finished.err


def test_fit_answer__saying_what_is_kept__loads_neither_networks_nor_torch() -> None:
    loaded = "import sys, abele.cli.fit_answer, abele.cli.fit; print(*sys.modules)"
    made = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    heavy = ("torch", "abele.network", "abele.graph", "abele.fitting", "abele.compiler")
    assert not [name for name in made.stdout.split() if name in heavy]
