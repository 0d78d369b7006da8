"""``poptorch.DataLoader``: batches with all samples of one call of the device."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Self

import torch.utils.data
from torch.utils.data import IterableDataset

from abele.frontends.poptorch import logs
from abele.frontends.poptorch.enums import DataLoaderMode
from abele.frontends.poptorch.errors import CheckError, Error
from abele.frontends.poptorch.loading.accessor import AsynchronousDataAccessor
from abele.frontends.poptorch.loading.measure import measure_loading
from abele.frontends.poptorch.loading.micro_batches import JoinedSampler, MicroBatchCollate, PartSampler
from abele.frontends.poptorch.options import Options
from abele.frontends.poptorch.program.tracing import TRACED
from abele.machine import HostComputer, hosts
from abele.report import Loading, waiting_for_data


class DataLoader(torch.utils.data.DataLoader[Any]):
    """A PyTorch loader whose batch is ``batch_size`` × device iterations × replicas × gradient accumulation.

    Args:
        options: Options of the model; they are frozen.
        dataset: Data set of the samples.
        batch_size: Samples of one micro-batch; None to let ``dataset`` give whole batches.
        shuffle: True if to shuffle; no by default.
        num_workers: Worker processes that load samples.
        drop_last: True if an incomplete last batch is left out; yes by default.
        persistent_workers: True if workers outlive an epoch; by default when there are any.
        auto_distributed_partitioning: True to give each of several processes its own part of ``dataset``.
        mode: ``Sync`` to load in this process; ``Async`` ahead in another; ``AsyncRebatched`` there too, whose workers
            load batches of ``rebatched_worker_size``, of which combined batches are made, so that none drops samples.
        async_options: Arguments of :class:`AsynchronousDataAccessor`.
        rebatched_worker_size: Samples that a worker loads at a time; by default those of a combined batch.
        batch_sampler: Batches of indices; consecutive ones are joined.
        **kwargs: For PyTorch's loader.

    Raises:
        Error: Arguments that exclude each other.
        CheckError: Several processes are to shuffle without a seed that they have in common.
    """

    _accessor: AsynchronousDataAccessor | None = None

    def __init__(
        self,
        options: Options,
        dataset: torch.utils.data.Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        # One loaded batch has the samples of all micro-batches of a call.
        options._freeze()
        self.options = options
        self._micro_batches = _micro_batches(options)
        self._combined = None if batch_size is None else batch_size * self._micro_batches
        _check(batch_size, mode, async_options, rebatched_worker_size, num_workers)
        persistent = num_workers > 0 if persistent_workers is None else persistent_workers
        common = {"num_workers": num_workers, "persistent_workers": persistent, **kwargs}
        rebatches = mode == DataLoaderMode.AsyncRebatched or (mode == DataLoaderMode.Async and not drop_last)
        # Of batches of one sample nothing is ever left over.
        rebatches = rebatches and self._combined != 1
        # Three ways to load: batches of the user's sampler joined, samples as they are, or combined batches cut again.
        if batch_sampler is not None:
            if batch_size != 1 or shuffle:
                raise Error("batch_sampler excludes batch_size and shuffle", remedy="let the sampler do both")
            if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
                raise Error(
                    "batch_sampler excludes the automatic partitioning of data among processes",
                    remedy="auto_distributed_partitioning=False, and a sampler of this process's part",
                )
            self._combined = None
            super().__init__(dataset, batch_sampler=JoinedSampler(batch_sampler, self._micro_batches), **common)
        elif batch_size is None or self._combined is None:
            super().__init__(dataset, batch_size=None, shuffle=shuffle, **common)
        else:
            # Rebatching keeps the remainder of each worker for the next batch, so nothing is dropped while loading.
            loaded, dropped = self._combined, drop_last
            if rebatches:
                loaded, dropped = rebatched_worker_size or self._combined, False
            elif not drop_last:
                _warn_of_remainder(dataset, self._combined)
            sampler = _part(options, dataset, shuffle, loaded, drop_last) if auto_distributed_partitioning else None
            if sampler is not None and "sampler" not in common:
                common, shuffle = {**common, "sampler": sampler}, None
            super().__init__(dataset, loaded, shuffle, drop_last=dropped, **common)
            self.collate_fn = MicroBatchCollate(self.collate_fn, batch_size)
        if mode != DataLoaderMode.Sync:
            given = {"rebatched_size": self._combined, **(async_options or {})} if rebatches else async_options or {}
            self._accessor = AsynchronousDataAccessor(_plain(self), **given)

    @property
    def combinedBatchSize(self) -> int | None:
        """Samples of one batch of the loader; None when the dataset gives whole batches."""
        return self._combined

    def __len__(self) -> int:
        return super().__len__() if self._accessor is None else len(self._accessor)

    def __iter__(self) -> Any:
        return _WaitedFor(super().__iter__()) if self._accessor is None else iter(self._accessor)

    def loading(self, host: str | Path | HostComputer | None = None) -> Loading:
        """Loading of batches, and the cost of a sample: some are made now and timed, which takes a fifth of a second.

        Args:
            host: The host that feeds the machine; a preset's name, a description file, or a value.

        Raises:
            Error: The data cannot be looked at without being used up, its length is not known, or it is too short.
            MachineError: There is no such host.
        """
        return measure_loading(self, hosts.resolve(host))

    def terminate(self) -> None:
        """Stop worker processes."""
        if self._accessor is not None:
            self._accessor.terminate()
        iterator = getattr(self, "_iterator", None)
        if iterator is not None and hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *error: object) -> None:
        self.terminate()

    def __del__(self) -> None:
        """Let no process outlive the loader."""
        with contextlib.suppress(Exception):
            if self._accessor is not None:
                self._accessor.terminate()


class _WaitedFor:
    """An iterator of PyTorch's loader; the time in which a program waits for each batch is counted."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with waiting_for_data(), TRACED.tracepoint("wait for a batch"):
            return next(self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_batches"], name)


def _micro_batches(options: Options) -> int:
    """Micro-batches of one call of a model."""
    groups = options.replication_factor // options.input_group_size
    return int(options.device_iterations * groups * options.Training.gradient_accumulation)


def _check(
    batch_size: int | None, mode: DataLoaderMode, given: dict[str, Any] | None, worker_size: int | None, workers: int
) -> None:
    if mode == DataLoaderMode.Sync and given:
        raise Error("async_options have a meaning in the asynchronous modes only", remedy="mode=DataLoaderMode.Async")
    if mode != DataLoaderMode.AsyncRebatched and worker_size is not None:
        raise Error("rebatched_worker_size has a meaning in DataLoaderMode.AsyncRebatched only")
    if mode == DataLoaderMode.AsyncRebatched and batch_size is None:
        raise Error("DataLoaderMode.AsyncRebatched needs a batch_size")


def _plain(loader: DataLoader) -> Any:
    """The loader as another process uses it, without what that makes ahead."""
    made = DataLoader.__new__(DataLoader)
    made.__dict__.update({**loader.__dict__, "_accessor": None})
    return made


def _warn_of_remainder(dataset: Any, combined: int) -> None:
    if hasattr(dataset, "__len__") and not isinstance(dataset, IterableDataset) and len(dataset) % combined:
        logs.warn(
            f"The number of elements in the dataset ({len(dataset)}) is not divisible by the number of elements "
            f"processed per step ({combined}) and drop_last=False: the last batch does not fit the compiled model. "
            "Switch to drop_last=True.",
            stacklevel=2,
        )


def _part(
    options: Options, dataset: Any, shuffle: bool | None, batch: int, drop_last: bool
) -> torch.utils.data.Sampler[int] | None:
    """Sampler of this process's own part of the data; None where it is the only one.

    Raises:
        CheckError: Several processes are to shuffle without a seed that they have in common.
    """
    processes = options.Distributed.numProcesses
    if processes == 1 or isinstance(dataset, IterableDataset):
        return None
    if shuffle and not options.exists("random_seed"):
        raise CheckError(
            "shuffle=True in several processes needs poptorch.Options().randomSeed: all of them shuffle alike",
            remedy="options.randomSeed(…) with the same number in every process",
        )
    seed = int(options.random_seed) if shuffle else None
    return PartSampler(dataset, options.Distributed.processId, processes, batch=batch, drop_last=drop_last, seed=seed)
