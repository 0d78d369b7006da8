"""The command that starts the ranks of a job."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from abele.errors import MissingPackageError
from abele.launch.job import Job

LAUNCHER_VARIABLE = "ABELE_MPIEXEC"
"""The ``mpiexec`` to use, where another one than the first is wanted."""


def find_mpiexec() -> str:
    """Path of ``mpiexec``: the one named by the environment, on PATH, or installed with this Python.

    Raises:
        MissingPackageError: There is none.
    """
    named = os.environ.get(LAUNCHER_VARIABLE, "")
    beside = Path(sys.executable).parent
    for name, path in ((named or "mpiexec", None), ("" if named else "mpiexec", str(beside))):
        found = shutil.which(name, path=path) if name else None
        if found:
            return found
    raise MissingPackageError(
        f"there is no {named or 'mpiexec'}",
        because=f"{LAUNCHER_VARIABLE} names it" if named else f"it is neither on PATH nor in {beside}",
        remedy="pip install 'abele[mpi]'",
    )


def command_of(job: Job) -> list[str]:
    """Command that starts all ranks of a job; one rank alone needs no launcher.

    Raises:
        MissingPackageError: There is no ``mpiexec``.
    """
    replicas = [] if job.replicas is None else ["--replicas", str(job.replicas // job.ranks)]
    keeper = [sys.executable, "-P", "-m", "abele.launch.rank_supervisor", *replicas, "--", *job.program]
    if job.ranks == 1 and not job.hosts and job.hostfile is None:
        return keeper
    hosts: Sequence[str] = ()
    if job.hosts:
        hosts = ("-host", job.hosts)
    elif job.hostfile is not None:
        hosts = ("-hostfile", str(job.hostfile))
    return [find_mpiexec(), *hosts, "-n", str(job.ranks), *keeper]
