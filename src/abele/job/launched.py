"""Number of ranks and own rank, from the environment variables of MPI's launchers."""

from __future__ import annotations

import os
from collections.abc import Sequence

SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE")
"""Variables that launchers of MPICH and Open MPI set to the number of ranks."""
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
"""Variables that they set to the number of this one."""
LOCAL_VARIABLES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""Variables that they set to the number of ranks on this host."""
REPLICAS_VARIABLE = "ABELE_RANK_REPLICAS"
"""Variable that ``abele run --replicas`` sets to the number of replicas of one rank."""


def _number(names: Sequence[str], otherwise: int) -> int:
    found = [os.environ[name] for name in names if os.environ.get(name, "").isdigit()]
    return int(found[0]) if found else otherwise


def launched_size() -> int:
    """Ranks of the job that this process was started in; 1 without a launcher."""
    return _number(SIZE_VARIABLES, 1)


def launched_rank() -> int:
    """Number of this process in its job; 0 without a launcher."""
    return _number(RANK_VARIABLES, 0)


def ranks_on_host() -> int:
    """Ranks of the job on this host, which share its cores."""
    return max(1, _number(LOCAL_VARIABLES, 1))


def is_launched() -> bool:
    """True if a launcher of MPI started this process."""
    return any(name in os.environ for name in RANK_VARIABLES)


def launched_replicas() -> int:
    """Replicas of each rank, as the launcher of the job said; 1 otherwise."""
    return max(1, _number((REPLICAS_VARIABLE,), 1))
