"""Files with changed numbers, lengths, ids, names, nesting and structure: none may do more than be refused or fail."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.harness import Server, is_good, server
from fuzz.programs import save_all
from fuzz.recipes import Recipe, drawn
from support.sweeps import seed

KEPT = Path(__file__).with_name("kept.txt").read_text(encoding="utf-8").splitlines()
"""Recipes of past failures: a signal, another exception, endless loading. One recipe per line."""
SECONDS = [1.0, pytest.param(10.0, marks=pytest.mark.slow)]
"""For files drawn by the commit; ``make fuzz`` takes longer."""


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = save_all(tmp_path_factory.mktemp("bases"))
    return {name: path.read_bytes() for name, path in sorted(files.items())}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("server")) as running:
        yield running


def test_files__unchanged__load_run_and_are_summarised(opened: Server, bases: dict[str, bytes]) -> None:
    ends = {name: opened.tried(Recipe(name, ()), content) for name, content in bases.items()}
    assert {name: end["outcome"] for name, end in ends.items()} == dict.fromkeys(bases, "ok"), ends


def test_files__that_once_did_harm__are_refused(opened: Server, bases: dict[str, bytes]) -> None:
    ends = [(text, opened.tried(Recipe.of(text), bases[Recipe.of(text).base])) for text in KEPT]
    assert [text for text, end in ends if end["outcome"] != "refused"] == [], ends


@pytest.mark.parametrize("seconds", SECONDS)
def test_files__changed_at_random__are_refused_or_fail(opened: Server, bases: dict[str, bytes], seconds: float) -> None:
    rng = random.Random(seed())
    end, tried = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        recipe = drawn(rng, bases)
        result = opened.tried(recipe, bases[recipe.base])
        assert is_good(result), f"{result}\nkeep this line in kept.txt: {recipe.text()}"
        tried += 1
    assert tried > 0
