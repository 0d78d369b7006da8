"""Reports made by the benchmarks' generators, and files of them that are written once for a session."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from abele.report import Report


def _generators() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "viewer_reports.py"
    spec = importlib.util.spec_from_file_location("viewer_reports", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for their module by name.
    sys.modules["viewer_reports"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def generators() -> ModuleType:
    """``benchmarks/viewer_reports.py``."""
    return _generators()


@pytest.fixture(scope="session")
def made_small(generators: ModuleType) -> Report:
    """The generators' small report."""
    report: Report = generators.small()
    return report


@pytest.fixture(scope="session")
def pod64(generators: ModuleType) -> Report:
    """The generators' Pod64."""
    report: Report = generators.pod64()
    return report


@pytest.fixture(scope="session")
def pod64_file(pod64: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Pod64's report as a file of some 95 MB."""
    path = tmp_path_factory.mktemp("reports") / "pod64.abele-report"
    pod64.save(path)
    return path
