"""ONNX models with changed fields, names, structure and bytes: none may do more than be refused."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("onnx", reason="needs onnx")

from fuzz.harness import Server, is_good, server
from fuzz.models import PLACES, drawn_model, save_models
from fuzz.recipes import Recipe
from support.sweeps import seed

KEPT = (
    '["loop-model", ["flip", 52484733, 134]]',
    '["shapes-model", ["field", ["graph", "initializer", 2, "int64_data", 0], "set", 1099511627776]]',
    '["loop-model", ["field", ["graph", "initializer", 0, "int64_data", 0], "set", -5]]',
    '["loop-model", ["field", ["graph", "node", 0], "nest", 90]]',
    '["picture-model", ["field", ["graph", "input", 0, "type", "tensor_type", "elem_type"], "set", 20]]',
)
"""Recipes of past failures: names that are no text, extents beyond memory, fewer trips than none, 8-bit fields."""
SECONDS = [1.0, pytest.param(20.0, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    files = save_models(tmp_path_factory.mktemp("models"))
    return {name: path.read_bytes() for name, path in sorted(files.items())}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("server")) as running:
        yield running


def test_models__unchanged__load_and_are_interpreted(opened: Server, bases: dict[str, bytes]) -> None:
    ends = {name: opened.tried(Recipe(name, ()), content) for name, content in bases.items()}
    assert {name: end["outcome"] for name, end in ends.items()} == dict.fromkeys(bases, "ok"), ends


def test_models__that_once_did_harm__are_refused_or_fine(opened: Server, bases: dict[str, bytes]) -> None:
    for text in KEPT:
        result = opened.tried(Recipe.of(text), bases[Recipe.of(text).base])
        assert is_good(result), (text, result)


def test_models__with_data_elsewhere__read_nothing_there(opened: Server, bases: dict[str, bytes]) -> None:
    path = ["graph", "initializer", 0, "external_data", 0, "value"]
    ends = [
        opened.tried(Recipe("outside-model", (("field", path, "set", place),)), bases["outside-model"])["outcome"]
        for place in PLACES
    ]
    assert ends == ["error ModelFileError"] * (len(PLACES) - 1) + ["ok"], dict(zip(PLACES, ends, strict=True))


@pytest.mark.parametrize("seconds", SECONDS)
def test_models__changed_at_random__are_refused_or_run(opened: Server, bases: dict[str, bytes], seconds: float) -> None:
    rng = random.Random(seed())
    end, tried = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        recipe = drawn_model(rng, bases)
        result = opened.tried(recipe, bases[recipe.base])
        assert is_good(result), f"{result}\nkeep this line in KEPT: {recipe.text()}"
        tried += 1
    assert tried > 0
