"""Options of several processes, and the remaining options of recording models by tracing."""

from __future__ import annotations

import os
from typing import ClassVar, Self

from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.options.checked import CheckedOptions
from abele.job.launched import launched_rank, launched_size
from abele.options import OptionTable, flag, integer, text

_NAMES = (("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK"))
"""Variables that launchers set: those of Open MPI and of MPICH."""


class DistributedOptions(CheckedOptions):
    """``opts.Distributed``: which of how many processes this is. Data loaders give each process its own part."""

    table: ClassVar[OptionTable] = OptionTable(
        "Options.Distributed",
        {
            "num_distributed_processes": integer(1, 1, doc="processes that share a data set"),
            "distributed_process_id": integer(0, 0, doc="number of this process among them"),
            "ipuof_configs": text("", honoured=False, doc="stored"),
        },
    )

    def __init__(self) -> None:
        super().__init__()
        self._read_environment(*next((n for n in _NAMES if n[0] in os.environ), _NAMES[0]))

    def _read_environment(self, count: str, rank: str) -> None:
        values = [os.environ.get(name, default) for name, default in ((count, "1"), (rank, "0"))]
        if not all(value.isdigit() for value in values):
            raise OptionValueError(f"{count} and {rank} are whole numbers, got {values[0]!r} and {values[1]!r}")
        self.set(num_distributed_processes=int(values[0]), distributed_process_id=int(values[1]))

    def disable(self) -> Self:
        """One process, whatever the environment says."""
        return self.set(num_distributed_processes=1, distributed_process_id=0)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> Self:
        """Read the number of processes, and of this one, from these environment variables."""
        self._check_writable()
        self._read_environment(var_num_processes, var_process_id)
        return self

    def configureProcessId(self, process_id: int, num_processes: int) -> Self:
        """Set the number of processes, and that of this one."""
        for number in (process_id, num_processes):
            if isinstance(number, bool) or not isinstance(number, int):
                raise OptionValueError(f"processes are whole numbers, got {number!r}")
        if not 0 <= process_id < num_processes:
            raise OptionValueError(f"process {process_id} is none of {num_processes} processes")
        return self.set(num_distributed_processes=num_processes, distributed_process_id=process_id)

    def getGcdConfigs(self) -> str:
        """Configurations of the fabric that were set."""
        return str(self.ipuof_configs)

    @property
    def shares_replicas(self) -> bool:
        """True if these are the ranks of the job that this process was started in: they train one model together."""
        return self.numProcesses > 1 and launched_size() == self.numProcesses and launched_rank() == self.processId

    @property
    def processId(self) -> int:
        """Number of this process."""
        return int(self.distributed_process_id)

    @property
    def numProcesses(self) -> int:
        """Processes that share a data set."""
        return int(self.num_distributed_processes)


class JitOptions(CheckedOptions):
    """``opts.Jit``."""

    table: ClassVar[OptionTable] = OptionTable(
        "Options.Jit", {"trace_model": flag(False, honoured=False, doc="models are recorded by torch.export")}
    )

    def traceModel(self, trace_model: bool) -> Self:
        """Deprecated: models are always recorded in one way.

        Raises:
            OptionValueError: Tracing is asked for.
        """
        if trace_model:
            raise OptionValueError(
                "Tracing is no longer supported: traceModel(True) has no meaning", remedy="leave traceModel out"
            )
        return self.set(trace_model=trace_model)
