"""Recipes name files that are there, three for each, and a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = (ROOT / "docs/recipes.md").read_text(encoding="utf-8").split("\n## ")[1:]
_PATH = re.compile(r"`((?:src|tests|docs)/[\w/.]+)`")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda text: text.splitlines()[0])
def test_recipe__files_that_it_names__are_there(recipe: str) -> None:
    named = _PATH.findall(recipe)
    assert not [path for path in named if not (ROOT / path).is_file()]
    assert len(re.findall(r"^\d\. ", recipe, re.M)) == 3
    assert "Test to copy: `tests/" in recipe.replace("\n", " ")


def test_contributing__one_page__names_the_recipes() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) < 70
    for recipe in RECIPES:
        assert recipe.splitlines()[0].lower() in page.lower().replace("\n", " ")
