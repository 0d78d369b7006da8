"""The host computers that there are, by name, and how a name, a file or a value becomes a :class:`HostComputer`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from abele.errors import MachineError, nearest
from abele.machine.source import cite, constant, derived, guessed, measured, parameter
from abele.machine.spec import Spec
from abele.machine.systems import read_described

# Computer that feeds a machine: costs of loading data and calling programs on it.

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


_PRESETS = {
    host.name: host
    for host in (
        cite(
            HostComputer,
            name="epyc-7742",
            title="two AMD EPYC 7742, as Graphcore's MLPerf systems have",
            num_cores=derived(128, "2 x 64 cores; two EPYC 7742 a host (ML20)"),
            memory_bytes_per_second=derived(409.6e9, "2 sockets x 8 channels x 25.6 GB/s of DDR4-3200 (ML20)"),
        ),
    )
}
DEFAULT = "epyc-7742"
"""The host that rates are said for where none is named."""


def names() -> tuple[str, ...]:
    """Names of the presets."""
    return tuple(_PRESETS)


def get(name: str) -> HostComputer:
    """The preset called ``name``.

    Raises:
        MachineError: There is no such preset.
    """
    key = name.lower().replace("_", "-")
    if key not in _PRESETS:
        close = nearest(key, _PRESETS)
        raise MachineError(
            f"no host is called {name!r}",
            remedy=(f"did you mean {close!r}? " if close else "") + "the presets are " + ", ".join(_PRESETS),
        )
    return _PRESETS[key]


def load(path: str | Path) -> HostComputer:
    """Host described in a TOML or JSON file: the name of a preset as ``base``, and fields that differ from it.

    Raises:
        MachineError: The file cannot be read, has no ``base``, or describes something impossible.
    """
    return read_described(Path(path), get, what="host", example=DEFAULT)


def resolve(host: str | Path | HostComputer | None) -> HostComputer:
    """The host meant by a value, a preset's name, or the path of a description file; None means the default.

    Raises:
        MachineError: No such preset, a description that is none, or a value that means no host.
    """
    if host is None:
        return get(DEFAULT)
    if isinstance(host, HostComputer):
        return host
    if not isinstance(host, (str, Path)):
        raise MachineError(
            f"{host!r} is no host", remedy=f'a HostComputer, the name of a preset as in "{DEFAULT}", or a file'
        )
    if isinstance(host, Path) or Path(host).suffix in (".toml", ".json"):
        return load(host)
    return get(host)
