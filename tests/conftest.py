"""Fixtures and settings that all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from budget import BUDGETS, Ledger, Meter
from support import sweeps
from support.examples import load_profile

gc.disable()  # until all tests are collected: imports make no garbage, and a million objects would be looked at again

load_profile()

os.environ.setdefault("ABELE_CHECK_PASSES", "1")  # every form between two passes is checked, in child processes too

os.environ.setdefault("KERAS_BACKEND", "jax")  # whoever imports Keras first
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # and lets no driver be looked for

# JAX is the oracle of a thousand small programs that run once: XLA compiles them three times as fast like this.
# Slow runs have it optimise: a deep network's loss moves by 2e-5. Workers inherit what starts them sets.
if "PYTEST_XDIST_WORKER" not in os.environ and any("not slow" in word for word in sys.argv):
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {os.environ.get('XLA_FLAGS', '')}".strip()

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--budget NAME`` measures the run, prints its time by room, and fails where it is over that budget."""
    parser.addoption("--budget", choices=[name for name in BUDGETS if name != "all"])


def pytest_configure(config: pytest.Config) -> None:
    """Tests are timed in workers, or here where there are none; the sums are made here."""
    if config.getoption("numprocesses", None):
        gc.enable()  # Workers collect.
    if name := config.getoption("budget"):
        is_worker = hasattr(config, "workerinput")
        if is_worker or not config.getoption("numprocesses", None):
            config.pluginmanager.register(Meter(), "meter")
        if not is_worker:
            config.pluginmanager.register(Ledger(name), "ledger")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of slow tests imports only the modules that name the marker."""
    if config.getoption("markexpr") != "slow" or collection_path.suffix != ".py" or collection_path.name[0] == "_":
        return None
    return None if names_slow(collection_path) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to slow runs the rest of sweeps, and of that a sample.

    A module that marks tests without naming the marker would be left out of slow runs in silence.
    """
    sweeps.mark_rest_slow(items)
    for path in {item.path for item in items if item.get_closest_marker("slow")}:
        if not names_slow(path):
            raise pytest.UsageError(f"{path} has slow tests and does not say 'mark.slow'")
    if left := [item for item in items if sweeps.is_left_out(item)]:
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


def names_slow(path: Path) -> bool:
    """True for modules with slow tests: they name the marker, or may have sweeps."""
    text = path.read_text(encoding="utf-8")
    return "mark.slow" in text or text.count("mark.parametrize(") > 1


@pytest.fixture(autouse=True)
def nothing_lowered_before() -> None:
    """Tests lower networks as a process's first: they may change what libraries do."""
    if (module := sys.modules.get("abele.distribution.lowering_cache")) is not None:
        module.CACHE.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A run that failed names its seed, so that its samples can be taken again."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"sweeps were sampled with SWEEP='{sweeps.seed()}'")


def pytest_collection_finish() -> None:
    """Freeze the objects that tests are made of: compiling makes little garbage, so the collector need not look again
    and again.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
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
