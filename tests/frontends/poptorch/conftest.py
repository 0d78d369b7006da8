"""Fixtures that the tests of the PopTorch front end share."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
sys.path.insert(0, str(Path(__file__).resolve().parent))

from abele.network import check_passes
from support.machines import small_machine, whole_machine

__all__ = ["small_machine", "whole_machine"]

check_passes()


def _seed(name: str) -> None:
    """Give PyTorch's generator the numbers of a name, so that a failure repeats, alone or among others."""
    torch.manual_seed(zlib.crc32(name.encode()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fixtures of a module draw the same numbers whichever test asks for them first."""
    _seed(item.path.stem)


@pytest.fixture(autouse=True)
def seeded_by_name(request: pytest.FixtureRequest) -> None:
    """A test draws the numbers of its name."""
    _seed(request.node.name)
