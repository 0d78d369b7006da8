"""Findings on disk, under all that they depend on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from abele.llvm.cache import cache_directory
from abele.llvm.cache_limit import usage
from abele.llvm.kept import kept


@dataclass(frozen=True, eq=False)
class Measured:
    """Costs as segments have them."""

    number: int
    sizes: tuple[int, ...]
    array: npt.NDArray[np.int64]


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path))
    return tmp_path


def made():
    return Measured(3, (1, 2), np.arange(5))


def never():
    raise AssertionError("measured again")


def test_kept__costs_measured_before__are_found_again(own_cache):
    kept("of", Measured, made)
    assert usage(cache_directory()).objects == 1
    found = kept("of", Measured, never)
    assert (found.number, found.sizes) == (3, (1, 2))
    assert found.array.dtype == np.int64
    assert (found.array == np.arange(5)).all()
    with pytest.raises(AssertionError, match="measured again"):
        kept("of another", Measured, never)


@pytest.mark.parametrize("content", [b"", b"no object"])
def test_kept__damaged_file__is_measured_again(own_cache, content):
    kept("of", Measured, made)
    (path,) = [p for p in cache_directory().rglob("*-kept.o") if p.is_file()]
    path.write_bytes(content)
    assert kept("of", Measured, made).number == 3


def test_kept__no_cache__is_measured_each_time(monkeypatch):
    monkeypatch.setenv("ABELE_CACHE_DIR", "off")
    kept("of", Measured, made)
    with pytest.raises(AssertionError, match="measured again"):
        kept("of", Measured, never)
