"""Time of loading: batches from worker processes, and the calls that take them.

The device alone does not set the rate. Worker processes make whole batches, each by itself, in the order of the epoch:
batch ``k`` is made by worker ``k mod workers``. The calling process takes them in order, calls the program and, while
the device works, takes nothing. So an epoch of few large batches has three costs that the device's rate does not show.
The first batches come late, since every epoch begins with empty queues. A last round of batches that does not fill all
workers takes as long as a full one. And the work of the calling process for each batch comes on top. :func:`epoch`
follows these events batch by batch. That is exact for workers of equal speed, because every event waits for at most two
earlier ones: a worker for its batch before and for being asked, the caller for the batch and for the call before.

Example: 4 workers make a batch in 1 s each, and a call takes 0.3 s. An epoch of 10 batches takes 1 + 10 · 0.3 = 4 s,
not 3: the program waits for the first batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from abele.errors import MachineError
from abele.machine import HostComputer, hosts
from abele.machine.hosts import check_sizes
from abele.machine.source import constant, parameter, part, stated
from abele.machine.spec import Spec

MAX_WORKERS = 4096
"""Workers that can be described."""
_FOLLOWED_BATCHES = 1024
"""Batches of an epoch that are followed one by one; a longer one goes on as these do, round by round."""
_ROUND_BATCHES = 256
"""Batches that a round of these has at least, of whole rounds of the workers."""
_EPOCHS = 3
"""Epochs that are followed; every later one equals the last."""


@dataclass(frozen=True, kw_only=True)
class Loading(Spec):
    """Parameters of making batches for a program, and the host that makes them.

    Attributes:
        samples_per_batch: Samples of one call of the program.
        batches_per_epoch: Calls of one pass over the data.
        sample_seconds: Seconds to make one sample: getting it, and its part in joining a batch.
        sample_bytes: Bytes of the tensors that the program is given, per sample.
        tensors_per_batch: Tensors that the program is given.
        num_workers: Worker processes; 0 if the calling process makes batches itself.
        batches_ahead: Batches that each worker may be ahead.
        persistent_workers: True if workers outlive an epoch; False if each epoch starts them.
        ring_batches: Batches that a process between the workers and the caller holds ready; 0 if there is none.
        next_epoch_ahead: True if that process begins with the next epoch before it is asked to.
        worker_samples: Samples that a worker makes at a time, of which that process joins batches; 0 for whole batches.
        host: The host that all this runs on.
        measured_on: Host on which ``sample_seconds`` was measured; empty if it was not.
    """

    samples_per_batch: int = parameter()
    batches_per_epoch: int = parameter()
    sample_seconds: float = parameter(minimum=0)
    sample_bytes: float = parameter(minimum=0)
    tensors_per_batch: int = parameter(minimum=0)
    num_workers: int = parameter(minimum=0)
    batches_ahead: int = constant(stated(2, "prefetch_factor of PyTorch's DataLoader when it is not given"))
    persistent_workers: bool = True
    ring_batches: int = constant(stated(0, "DataLoaderMode.Sync has none"), minimum=0)
    next_epoch_ahead: bool = True
    worker_samples: int = constant(stated(0, "DataLoaderMode.AsyncRebatched alone makes others"), minimum=0)
    host: HostComputer = part(HostComputer)
    measured_on: str = ""

    def check(self) -> None:
        """Check the number of workers, and the truth values."""
        check_sizes(self)
        if self.num_workers > MAX_WORKERS:
            raise MachineError(f"Loading.num_workers = {self.num_workers}: must be at most {MAX_WORKERS}")
        if self.worker_samples and not self.ring_batches:
            raise MachineError(
                f"Loading.worker_samples = {self.worker_samples}: workers make whole batches unless a ring joins them",
                remedy="ring_batches = 3, as DataLoaderMode.AsyncRebatched has",
            )
        for name in ("persistent_workers", "next_epoch_ahead"):
            if not isinstance(getattr(self, name), bool):
                raise MachineError(f"Loading.{name} = {getattr(self, name)!r}: must be true or false")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Loading:
        """Loading described by a table, whose ``host`` may be left out, a name, a file, or a table.

        Raises:
            MachineError: It does not describe one.
        """
        host = table.get("host")
        return cls.of(table if isinstance(host, Mapping) else {**table, "host": hosts.resolve(host)})

    @property
    def samples_per_epoch(self) -> int:
        """Samples of one pass over the data."""
        return self.samples_per_batch * self.batches_per_epoch

    @property
    def batch_bytes(self) -> float:
        """Bytes of one batch."""
        return self.samples_per_batch * self.sample_bytes

    @property
    def call_seconds(self) -> float:
        """Seconds of one call on the calling process beside the device: the call, and copying its inputs."""
        return self.host.run_call_seconds + self.batch_bytes / self.host.copy_bytes_per_second

    @property
    def take_seconds(self) -> float:
        """Seconds to take one batch from a worker."""
        return self.tensors_per_batch * self.host.tensor_transfer_seconds if self.num_workers else 0.0

    @property
    def load_samples(self) -> int:
        """Samples that are made at a time."""
        return self.worker_samples or self.samples_per_batch

    @property
    def load_seconds(self) -> float:
        """Seconds in which a worker makes one batch while all workers with work are busy.

        Workers share the cores, and each byte of a batch is written and read once in memory that they share too.
        """
        samples = self.load_samples * self.sample_seconds
        if not self.num_workers:
            return samples
        busy = min(self.num_workers, -(-self.samples_per_epoch // self.load_samples))
        computed = samples * max(1.0, busy / self.host.num_cores)
        moved = busy * 2 * self.load_samples * self.sample_bytes / self.host.memory_bytes_per_second
        return max(computed, moved) + self.host.worker_batch_seconds

    @property
    def start_seconds(self) -> float:
        """Seconds at the start of an epoch: starting the workers, or telling them of it."""
        host = self.host
        each = host.worker_resume_seconds if self.persistent_workers else host.worker_start_seconds
        return self.num_workers * each


@dataclass(frozen=True)
class Epoch:
    """Seconds of one pass over the data, as the calling process sees them; the parts make up the whole.

    Attributes:
        total: From the end of the last call of the epoch before to the end of its own last call.
        starting: Until workers are told what to load.
        waiting: For batches that are not there yet, or that the calling process makes itself.
        taking: Batches from workers.
        calling: Of calls, beside the device.
        device: In which the device runs.
    """

    total: float
    starting: float
    waiting: float
    taking: float
    calling: float
    device: float

    def __add__(self, other: Epoch) -> Epoch:
        """One after the other, as a pass of training and one of validation."""
        return Epoch(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def epoch(loading: Loading, device_seconds: float, *, calls: bool = True) -> Epoch:
    """One pass over the data, when it has been gone over before.

    Args:
        loading: Parameters of loading.
        device_seconds: Seconds of the device per call.
        calls: False to leave out the host's time of calls.
    """
    called = loading.call_seconds if calls else 0.0
    total, batches = _epoch_seconds(loading, called + device_seconds), loading.batches_per_epoch
    between = loading.ring_batches > 0
    starting = 0.0 if between else loading.start_seconds
    taking = 0.0 if between else batches * loading.take_seconds
    used = starting + taking + batches * (called + device_seconds)
    return Epoch(total, starting, max(total - used, 0.0), taking, batches * called, batches * device_seconds)


def _epoch_seconds(loading: Loading, call_seconds: float) -> float:
    """Seconds of an epoch whose calls take ``call_seconds`` each."""
    batches, round_ = loading.batches_per_epoch, max(loading.num_workers, loading.ring_batches, 1)
    round_ *= -(-_ROUND_BATCHES // round_)
    if batches <= _FOLLOWED_BATCHES + 2 * round_:
        return _followed(loading, batches, call_seconds)
    # Long after its beginning, an epoch takes as long for some rounds of batches as for the next.
    few = _FOLLOWED_BATCHES + (batches - _FOLLOWED_BATCHES) % round_
    more = few + round_
    each = (_followed(loading, more, call_seconds) - _followed(loading, few, call_seconds)) / round_
    return _followed(loading, few, call_seconds) + (batches - few) * each


def _followed(loading: Loading, batches: int, call_seconds: float) -> float:
    """Seconds of the last of some epochs of ``batches`` batches."""
    clocks = _Clocks(workers=[0.0] * loading.num_workers)
    begin = 0.0
    for _ in range(_EPOCHS):
        begin = clocks.caller
        _follow_epoch(loading, batches, call_seconds, clocks)
    return clocks.caller - begin


@dataclass
class _Clocks:
    """Times at which processes are free again, and times of requests for batches.

    Attributes:
        workers: Each worker.
        caller: The calling process.
        between: The process between the two, where there is one.
        asked: Time at which the caller asked for each batch so far, over all epochs.
    """

    workers: list[float]
    caller: float = 0.0
    between: float = 0.0
    asked: list[float] = field(default_factory=list)


def _follow_epoch(loading: Loading, batches: int, call_seconds: float, clocks: _Clocks) -> None:
    """Move the clocks over an epoch."""
    ring, making, taking = loading.ring_batches, loading.load_seconds, loading.take_seconds
    copying = loading.batch_bytes / loading.host.copy_bytes_per_second
    workers, ahead = clocks.workers, loading.num_workers * loading.batches_ahead
    if ring and not loading.next_epoch_ahead:
        clocks.between = max(clocks.between, clocks.caller)
    start = (clocks.between if ring else clocks.caller) + loading.start_seconds
    taker, taken = start, list[float]()
    for k in range(batches):
        clocks.asked.append(clocks.caller if ring else taker)
        while len(taken) * loading.load_samples < (k + 1) * loading.samples_per_batch:
            load = len(taken)
            if workers:
                told = start if load < ahead else taken[load - ahead]
                workers[load % len(workers)] = made = max(workers[load % len(workers)], told) + making
            else:
                made = taker + making
            taker = max(taker, made) + taking
            taken.append(taker)
        if not ring:
            taker = clocks.caller = taker + call_seconds
            continue
        # The place of the batch ``ring`` before is free once the caller asks for the one after that.
        free = clocks.asked[-ring] if len(clocks.asked) >= ring else 0.0
        clocks.between = taker = max(taker, free) + copying
        clocks.caller = max(clocks.caller, taker) + call_seconds


def loading_of(meta: Mapping[str, Any]) -> Loading | None:
    """Parameters of loading in ``meta`` of a report, if it has them.

    Raises:
        MachineError: They are damaged.
    """
    table = meta.get("loading")
    return None if table is None else Loading.of(table)
