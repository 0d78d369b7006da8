"""Fixtures of the compiler's tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from compiler_kit import Compiled, small_system

import abele.codelet
from abele.graph import Graph


@pytest.fixture(autouse=True)
def _codelets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abele.codelet, "compile_codelet", lambda d: Compiled(), raising=False)


@pytest.fixture
def graph() -> Graph:
    """A graph for one IPU of eight tiles."""
    return Graph(small_system())
