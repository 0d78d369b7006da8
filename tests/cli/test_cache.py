"""``abele cache``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from abele.host_facts import measured
from abele.llvm.cache import store_object

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of three objects."""
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ABELE_CACHE_LIMIT", "1 MB")
    for name in "abc":
        store_object(hashlib.sha256(name.encode()).hexdigest(), b"x")
    return tmp_path / "cache"


def test_cache__where_and_size__are_printed(abele: Run, folder: Path) -> None:
    assert abele("cache", "where").out == f"{folder}\n"
    out = abele("cache").out
    assert "3 objects, 12,288 B" in out
    assert "1,000,000 B; 1% of it is used" in out
    assert abele("cache", "size").out == out


def test_cache__json__is_for_programs(abele: Run, folder: Path) -> None:
    data = json.loads(abele("cache", "size", "--json").out)
    assert {**data, "oldest": None} == {
        "directory": str(folder),
        "objects": 3,
        "bytes": 12_288,
        "oldest": None,
        "limit_bytes": 1_000_000,
    }


def test_cache__clear__removes_all(abele: Run, folder: Path) -> None:
    finished = abele("cache", "clear")
    assert finished.out == f"removed 3 objects, 12,288 B, from {folder}\n"
    assert abele("cache", "clear").out.startswith("removed 0 objects")


def test_cache__clear__removes_what_was_measured_of_the_host(
    abele: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abele.host_facts.rates._known", {})
    measured("rate", 1, float, lambda: 2.0)
    finished = abele("cache", "clear")
    assert finished.out == f"removed 3 objects, 12,288 B, and 1 measured fact from {folder}\n"
    assert measured("rate", 1, float, lambda: 3.0) == 3.0


def test_cache__objects_that_stay__are_an_error(abele: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("abele.llvm.cache_limit.os.unlink", refuse)
    finished = abele("cache", "clear")
    assert finished.status == 2
    assert "3 objects could not be removed: Permission denied" in finished.err


def test_cache__switched_off__says_so(abele: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_CACHE_DIR", "off")
    assert "switched off" in abele("cache").out
    assert abele("cache", "where").out == ""
    assert "switched off" in abele("cache", "clear").err


def test_cache__limit_that_is_no_size__is_refused(abele: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABELE_CACHE_LIMIT", "lots")
    finished = abele("cache")
    assert finished.status == 2
    assert "ABELE_CACHE_LIMIT = 'lots'" in finished.err
