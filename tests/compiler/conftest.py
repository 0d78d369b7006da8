"""Fixtures of the compiler's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from abele.graph import Graph
from compiler.support import small_system

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/compiler --update-golden`` writes the golden files anew."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.fixture
def graph() -> Graph:
    """A graph for one IPU of eight tiles."""
    return Graph(small_system())


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the golden file of a name."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden", default=False):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        assert text + "\n" == path.read_text(encoding="utf-8"), f"{path.name} differs; see --update-golden"

    return check
