"""Fixtures of the compiler's tests."""

from __future__ import annotations

import pytest

from abele.graph import Graph
from compiler.support import small_system


@pytest.fixture
def graph() -> Graph:
    """A graph for one IPU of eight tiles."""
    return Graph(small_system())
