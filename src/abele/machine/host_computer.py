"""Computer that feeds a machine: costs of loading data and calling programs on it."""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import MachineError
from abele.machine.source import constant, guessed, measured, parameter
from abele.machine.spec import Spec

_MEASURED_ON = "PyTorch 2.13 on two cores of an AMD EPYC of family 25 (Zen 4), best of many"

MOST = 1e18
"""The largest number that a host or its loading is described with."""


@dataclass(frozen=True, kw_only=True)
class HostComputer(Spec):
    """A host, as far as the rate of a program depends on it.

    Attributes:
        name: Short name, as ``hosts.get`` takes it.
        title: Full name.
        num_cores: Cores that loader workers share with the calling process.
        memory_bytes_per_second: Bytes that all cores together can read and write of memory.
        copy_bytes_per_second: Bytes that one core copies from memory to memory.
        run_call_seconds: One call of a program beside the device's work: checks, handing over, waking up.
        worker_start_seconds: Starting one loader worker.
        worker_resume_seconds: Telling a worker that is there already of the next epoch, and hearing that it knows.
        worker_batch_seconds: Time of a worker for a batch beside its samples: its queues, shared memory.
        tensor_transfer_seconds: Time of the calling process for each tensor of a batch that a worker made.
    """

    name: str
    title: str
    num_cores: int = parameter()
    memory_bytes_per_second: float = parameter()
    copy_bytes_per_second: float = constant(
        guessed(8e9, "memcpy by one core of a server of 2019 to 2023 outside its caches; within a factor of 1.5")
    )
    run_call_seconds: float = constant(
        guessed(0.5e-3, "PopTorch's checks, Python and the wake-up of a thread; no source found, within a factor of 3"),
        minimum=0,
    )
    worker_start_seconds: float = constant(
        guessed(10e-3, "fork of a process that has gigabytes mapped; 54 ms in a virtual machine, within a factor of 3"),
        minimum=0,
    )
    worker_resume_seconds: float = constant(
        measured(0.5e-3, f"eight workers answer in 3.8 ms: {_MEASURED_ON}; within a factor of 3"), minimum=0
    )
    worker_batch_seconds: float = constant(
        guessed(0.5e-3, "two queues and two files of shared memory, as tensor_transfer_seconds; within a factor of 3"),
        minimum=0,
    )
    tensor_transfer_seconds: float = constant(
        measured(0.5e-3, f"two tensors are taken from a worker in 1.03 ms: {_MEASURED_ON}; within a factor of 3"),
        minimum=0,
    )

    def check(self) -> None:
        """Nothing is so large or so slow that a time could be no number any more."""
        check_sizes(self)
        for name in ("memory_bytes_per_second", "copy_bytes_per_second"):
            if getattr(self, name) < 1:
                raise MachineError(f"HostComputer.{name} = {getattr(self, name)!r}: must be at least 1 B/s")


def check_sizes(spec: Spec) -> None:
    """No number is so large that products of some would be infinite.

    Raises:
        MachineError: One is.
    """
    for name, value in vars(spec).items():
        if isinstance(value, (int, float)) and value > MOST:
            raise MachineError(f"{type(spec).__name__}.{name} = {value:g}: must be at most {MOST:g}")
