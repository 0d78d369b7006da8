"""Running ``abele run`` as a user does: real processes, started by a real ``mpiexec``."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from abele.errors import MissingPackageError
from abele.launch.launcher import find_mpiexec

COMMAND = [sys.executable, "-c", "from abele.cli import main; main()", "run"]


@dataclass(frozen=True)
class Ended:
    """Result of a job: exit status, both outputs, and the time of its end."""

    status: int
    out: str
    err: str
    at: float

    def lines(self, rank: int) -> list[str]:
        """Lines that a rank printed to standard output, without its tag."""
        tag = f"[rank {rank}] "
        return [line.removeprefix(tag) for line in self.out.splitlines() if line.startswith(tag)]


def start(*arguments: str | Path, **settings: object) -> subprocess.Popen[bytes]:
    """Start the command."""
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **given)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def run() -> Callable[..., Ended]:
    """A function that runs the command to its end."""

    def run(*arguments: str | Path, typed: bytes = b"") -> Ended:
        process = start(*arguments, stdin=subprocess.PIPE)
        out, err = process.communicate(typed, timeout=300)
        return Ended(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"), time.time())

    return run


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Writer of programs with ``RANK`` as the number of the process."""

    def write(text: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text("import os, sys, time\nRANK = int(os.environ.get('PMI_RANK', 0))\n" + text, encoding="utf-8")
        return path

    return write


def _why_not() -> str | None:
    if os.name != "posix":
        return "process groups need POSIX"
    try:
        find_mpiexec()
    except MissingPackageError as error:
        return error.message
    return None


needs_mpiexec = pytest.mark.skipif(_why_not() is not None, reason=str(_why_not()))
needs_mpi = pytest.mark.skipif(
    _why_not() is not None or importlib.util.find_spec("mpi4py") is None,
    reason=_why_not() or "needs mpi4py",
)
