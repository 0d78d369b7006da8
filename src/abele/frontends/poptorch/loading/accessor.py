"""``AsynchronousDataAccessor``: batches that another process has loaded before they are asked for."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import tempfile
import weakref
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Self

import torch.utils.data

from abele.frontends.poptorch.enums import SharingStrategy
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.loading.accessor_worker import mapped, with_tensors, work
from abele.frontends.poptorch.program.tracing import TRACED
from abele.report import waiting_for_data

_SHARED_FOLDER = "/dev/shm"
_PATIENCE_S = 2.0
"""How long a worker may take to end by itself."""


class AsynchronousDataAccessor:
    """Loads ahead in a process of its own, through a ring of shared memory.

    A batch is a tensor, a tuple, list or dict of them, or an object with a registered parser. Its tensors show the ring
    itself and are valid until the next batch is asked for.

    Args:
        dataset: A data loader, a data set, or anything that is iterated.
        buffer_size: Batches that are loaded ahead.
        miss_sleep_time_in_ms: How often to look again when no batch is there; a batch that comes ends the wait at once.
        load_indefinitely: True to load the next epoch before it is asked for.
        early_preload: True to begin loading now, False with the first use.
        sharing_strategy: How the process is started and memory is shared. What cannot be pickled for another way is
            loaded in a fork.
        rebatched_size: Samples of the batches that are handed on; None for those of ``dataset``.

    Raises:
        Error: A loader that loads asynchronously itself; a size below 2.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ) -> None:
        if rebatched_size is not None and rebatched_size <= 1:
            raise Error("rebatched_size must be None or greater than 1")
        if buffer_size < 1:
            raise Error(f"buffer_size is a positive number of batches, not {buffer_size}")
        if not isinstance(sharing_strategy, SharingStrategy):
            raise Error(f"sharing_strategy takes a poptorch.SharingStrategy, got {sharing_strategy!r}")
        if getattr(dataset, "_accessor", None) is not None:
            raise Error(
                "The DataLoader is already asynchronous: it has an AsynchronousDataAccessor of its own",
                remedy="make the DataLoader with mode=DataLoaderMode.Sync",
            )
        self._dataset = dataset
        self._rebatched = rebatched_size
        self._wait_s = max(miss_sleep_time_in_ms, 0.0) / 1000
        self._indefinitely = load_indefinitely
        self._buffer_size = buffer_size
        self._run = 0
        self._state = "idle"
        self._held: int | None = None
        self._shapes: list[tuple[int, ...]] | None = None
        settings = {"buffer_size": buffer_size, "indefinitely": load_indefinitely, "rebatched": rebatched_size}
        self._worker = _Worker(dataset, settings, sharing_strategy, buffer_size)
        self._finalizer = weakref.finalize(self, self._worker.stop)
        self._length: int | None = None
        try:
            self._length = self._worker.wait_for("length")
        except Error:
            self.terminate()
            raise Error(
                "AsynchronousDataAccessor worker thread failed to start (Check above for details)",
                because=self._worker.problem,
            ) from None
        if early_preload:
            self._begin()

    def terminate(self) -> None:
        """End the process; batches can no longer be had."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.terminate()

    def __len__(self) -> int:
        dataset, size = self._dataset, self._rebatched
        if size is None or not isinstance(dataset, torch.utils.data.DataLoader):
            return len(dataset)
        sampler: Any = dataset.sampler
        samples = len(sampler) if dataset.batch_size is not None else len(dataset)
        return samples // size

    def __iter__(self) -> Self:
        if self._state == "epoch":
            # The last epoch was left before its end.
            self._give_back()
            self._run += 1
            self._worker.send(("again", self._run))
        elif self._state in ("idle", "ended") and not (self._state == "ended" and self._indefinitely):
            self._begin()
        self._state = "epoch"
        return self

    def _begin(self) -> None:
        self._worker.send(("epoch", None))
        self._state = "begun"

    def __next__(self) -> Any:
        with waiting_for_data(), TRACED.tracepoint("wait for a batch"):
            return self._next()

    def _next(self) -> Any:
        if self._state == "ended":
            raise StopIteration
        if self._state != "epoch":
            iter(self)
        self._give_back()
        while True:
            what, value = self._worker.receive()
            if what == "end":
                if value == self._run:
                    self._state = "ended"
                    raise StopIteration
                continue
            run, *batch = value
            if what == "whole":
                if run == self._run:
                    return batch[0]
                continue
            slot, hollow, placed = batch
            if run != self._run:
                self._worker.send(("free", slot))
                continue
            self._held = slot
            self._check([place.shape for place in placed])
            start = slot * self._worker.slot_bytes
            return with_tensors(hollow, (place.read(self._worker.memory, start) for place in placed))

    def _check(self, shapes: list[tuple[int, ...]]) -> None:
        """Refuse a last batch that is smaller than the others: the model is compiled for these."""
        first = self._shapes = self._shapes or shapes
        loader = isinstance(self._dataset, torch.utils.data.DataLoader)
        if loader and self._rebatched is None and not self._dataset.drop_last and shapes != first:
            raise Error(
                "The 'drop_last=False' option from the DataLoader only works if 'rebatched_size' is specified too."
            )

    def _give_back(self) -> None:
        if self._held is not None:
            self._worker.send(("free", self._held))
            self._held = None


class _Worker:
    """The process and the memory that it shares; it does not hold what uses it, which so can be collected."""

    def __init__(self, data: Any, settings: dict[str, Any], strategy: SharingStrategy, slots: int) -> None:
        self._slots = slots
        self._folder = _SHARED_FOLDER if os.path.isdir(_SHARED_FOLDER) else None
        if strategy == SharingStrategy.FileSystem:
            self._folder = None
        self.slot_bytes = 0
        self.problem = ""
        self._memory: mmap.mmap | None = None
        self._path: str | None = None
        self._pipe, self._process = _started(data, settings, strategy)

    @property
    def memory(self) -> mmap.mmap:
        """The ring."""
        assert self._memory is not None
        return self._memory

    def send(self, message: tuple[str, Any]) -> None:
        """Tell the process something; one that is gone is noticed when something is awaited of it."""
        with contextlib.suppress(OSError):
            self._pipe.send(message)

    def wait_for(self, kind: str) -> Any:
        """The next message, which is of a kind."""
        what, value = self.receive()
        assert what == kind, f"{what} in place of {kind}"
        return value

    def receive(self) -> tuple[str, Any]:
        """The next message that is not about the memory.

        Raises:
            Error: The process failed, or is gone.
        """
        while True:
            try:
                if not self._pipe.poll():
                    wait([self._pipe, self._process.sentinel])
                what, value = self._pipe.recv()
            except (EOFError, OSError):
                raise self._failed("its process ended") from None
            if what == "error":
                raise self._failed(value)
            if what == "slots":
                self._share(value)
            elif what == "mapped":
                self._unlink()
            else:
                return what, value

    def _failed(self, problem: str) -> Error:
        self.problem = problem
        return Error("An error occurred in the data fetcher", because=problem)

    def _share(self, slot_bytes: int) -> None:
        """Make the ring, and tell the process where it is."""
        size = slot_bytes * self._slots
        file, self._path = tempfile.mkstemp(prefix="abele-batches-", dir=self._folder)
        try:
            os.truncate(file, size)
        finally:
            os.close(file)
        self.slot_bytes, self._memory = slot_bytes, mapped(self._path, size)
        self.send(("memory", (self._path, size)))

    def _unlink(self) -> None:
        """Take the name of the memory away: it goes with the last process that has it, however that ends."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._path = None

    def stop(self) -> None:
        """End the process."""
        self.send(("stop", None))
        self._pipe.close()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._unlink()


_METHODS = {
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
}


def _started(data: Any, settings: dict[str, Any], strategy: SharingStrategy) -> tuple[Connection, BaseProcess]:
    """A process that works, and the pipe to it."""
    method = _METHODS[strategy]
    if method != "fork":
        try:
            pickle.dumps(data)
        except Exception:  # Whatever the user's own classes raise.
            method = "fork"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        multiprocessing.get_context("forkserver").set_forkserver_preload([work.__module__])
    ours, theirs = context.Pipe()
    # Not daemonic, because loaders with workers of their own start processes; the finalizer ends it before Python
    # waits for it.
    process = context.Process(target=_work, args=(theirs, ours, data, settings, method), name="poptorch-data")
    process.start()
    theirs.close()
    return ours, process


def _work(pipe: Connection, other_end: Connection, data: Any, settings: dict[str, Any], method: str) -> None:
    # With its own copy of the other end open, a process would not see that the other side is gone.
    other_end.close()
    work(pipe, data, settings)
