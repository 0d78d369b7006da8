"""Fixtures and settings that all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.examples import load_profile
from support.sweeps import mark_rest_slow

load_profile()

os.environ.setdefault("ABELE_CHECK_PASSES", "1")  # every form between two passes is checked, in child processes too

SHARED = Path(__file__).resolve().parents[2] / "shared"


SWEPT = ("codelet", "compiler", "expr", "graph", "host_facts", "kernels", "llvm", "numerics", "poplibs", "runtime")
"""Rooms where plain runs take a part of each sweep over several parameters."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What plain runs leave out of sweeps is slow."""
    tests = Path(__file__).parent
    mark_rest_slow(item for item in items if item.path.relative_to(tests).parts[0] in SWEPT)


def pytest_collection_finish() -> None:
    """What tests are made of stays, and compiling makes little garbage: the collector need not look again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of reference data beside the checkout; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the reference data folder ../shared is not beside this checkout")
    return SHARED


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Ctrl-C is heard, also where the tests run in the background of a shell that has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
