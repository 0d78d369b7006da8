"""The standard library as data: what is read, in which order, and how it is split."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from abele.errors import AbeleError
from abele.garden import sources
from abele.garden.sources import held_out_split, standard_library


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sources, "LEAST_FILES", 3)
    for name in (
        "b.py",
        "a/__init__.py",
        "a/z.py",
        "test/c.py",
        "a/tests/d.py",
        "a/not-a-name.py",
        "site-packages/e.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import os\nx = '\\d'\n", encoding="utf-8")
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\n")
    return tmp_path


def test_standard_library__folder__gives_modules_in_order_without_tests(library: Path) -> None:
    files = standard_library(library)
    assert [(file.module, file.package) for file in files] == [("a", "a"), ("a.z", "a"), ("b", "")]
    assert isinstance(files[0].tree.body[0], ast.Import)


def test_standard_library__too_few_files__says_how_many(tmp_path: Path) -> None:
    with pytest.raises(AbeleError, match="the source of 0 modules, at least 100 of them are needed"):
        standard_library(tmp_path)


def test_standard_library__of_this_python__has_what_the_demos_need() -> None:
    names = {file.module for file in standard_library()}
    assert {"argparse", "asyncio", "asyncio.tasks", "json.decoder", "email.message"} <= names
    assert not any(name.split(".")[0] in sources.SKIPPED for name in names)


def test_held_out_split__share__parts_are_disjoint_whole_and_the_same_again() -> None:
    train, held_out = held_out_split(range(50), 0.2, seed=3)
    assert len(held_out) == 10
    assert sorted(train + held_out) == list(range(50))
    assert (train, held_out) == held_out_split(range(50), 0.2, seed=3)
    assert held_out != held_out_split(range(50), 0.2, seed=4)[1]
