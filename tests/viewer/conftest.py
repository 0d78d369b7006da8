"""Reports made by the benchmarks' generators, and files of them that are written once for a session."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from abele.report import Report


def _generators() -> ModuleType:
    folder = Path(__file__).parents[2] / "benchmarks"
    _loaded(folder / "viewer_program.py")
    return _loaded(folder / "viewer_reports.py")


def _loaded(path: Path) -> ModuleType:
    """A module of a file, under the name by which others import it: the folder has modules of test folders' names."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for their module by name.
    sys.modules[path.stem] = module
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


@pytest.fixture(scope="session")
def damage() -> Callable[[Path, str], bool]:
    """A function that damages a column of a report file: ``damage(path, "spans/cycles")``."""

    def damaged(path: Path, column: str) -> bool:
        """Change the last byte of a column in a report file, as a bad disk does; False where it holds none."""
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(f"{column}.npy")
        content = bytearray(path.read_bytes())
        at = info.header_offset
        name, extra = (int.from_bytes(content[at + place : at + place + 2], "little") for place in (26, 28))
        content[at + 30 + name + extra + info.file_size - 1] ^= 0x40
        path.write_bytes(content)
        return info.file_size > 128

    return damaged
