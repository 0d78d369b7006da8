"""``AsynchronousDataAccessor``: batches that another process has loaded before they are asked for."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
import weakref
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle
from multiprocessing.util import Finalize
from typing import Any, Self

import torch.utils.data

from abele.frontends.poptorch.enums import SharingStrategy
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.loading.accessor_worker import Failure, WorkerSettings, with_tensors, work
from abele.frontends.poptorch.program.tracing import TRACED
from abele.report import waiting_for_data

_PATIENCE_S = 2.0
"""Seconds that a worker may take to end by itself."""


class AsynchronousDataAccessor:
    """Loads ahead in a process of its own, through a ring of shared memory.

    A batch is a tensor, a tuple, list or dict of them, or an object with a registered parser. Its tensors show the ring
    itself and are valid until the next batch is asked for.

    Args:
        dataset: A data loader, a data set, or anything that is iterated.
        buffer_size: Batches that are loaded ahead.
        miss_sleep_time_in_ms: Time between looks when no batch is there; a batch that comes ends the wait at once.
        load_indefinitely: True to load the next epoch before it is asked for.
        early_preload: True to begin loading now, False with the first use.
        sharing_strategy: ``ForkServer`` and ``Fork`` fork this process, ``SharedMemory`` and ``FileSystem`` spawn one,
            which imports PyTorch and the program anew; the last keeps batches in temporary files. What another process
            could not make from a pickle is loaded in a fork.
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
        self._indefinitely = load_indefinitely
        self._buffer_size = buffer_size
        self._run = 0
        self._state = "idle"
        self._held: int | None = None
        self._shapes: list[tuple[int, ...]] | None = None
        settings = WorkerSettings(
            buffer_size=buffer_size,
            indefinitely=load_indefinitely,
            rebatched=rebatched_size,
            in_files=sharing_strategy == SharingStrategy.FileSystem,
            parent=os.getpid(),
            by_main_thread=threading.current_thread() is threading.main_thread(),
            seed=_next_seed(),
            start_method=multiprocessing.get_start_method(allow_none=True) or _FORK or "spawn",
        )
        self._worker = _Worker(dataset, settings, sharing_strategy)
        # Before Python waits for processes at its end; and not in a fork, which would end the process of its parent.
        self._finalizer = Finalize(self, self._worker.stop, exitpriority=100)
        try:
            self._worker.receive()
        except Error as error:
            self.terminate()
            raise _unstarted(error, self._worker.spawned) from None
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
                hollow, placed = batch
                if run == self._run:
                    return with_tensors(hollow, (place.read(self._worker.whole, 0) for place in placed))
                continue
            slot, hollow, placed = batch
            if run != self._run:
                self._worker.send(("free", slot))
                continue
            self._held = slot
            self._check([place.shape for place in placed])
            start = slot * self._worker.slot_bytes
            return with_tensors(hollow, (place.read(self._worker.ring, start) for place in placed))

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
    """The process and the memory that it shares; it does not hold what uses it, which so can be collected.

    Attributes:
        ring: Batches that are loaded ahead.
        slot_bytes: Bytes of one of them.
        whole: The last batch that was too large for the ring.
        spawned: True for a process that imports the program.
    """

    ring: mmap.mmap
    whole: mmap.mmap

    def __init__(self, data: Any, settings: WorkerSettings, strategy: SharingStrategy) -> None:
        self.slot_bytes = 0
        self._stopped = False
        self._pipe, self._process, self.spawned = _started(data, settings, strategy)
        _RUNNING.add(self)

    def send(self, message: tuple[str, Any]) -> None:
        """Tell the process something; one that is gone is noticed when something is awaited of it."""
        with contextlib.suppress(OSError):
            self._pipe.send(message)

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
                if what == "ring":
                    self.ring, self.slot_bytes = self._map(value[0]), value[1]
                    continue
                if what == "memory":
                    self.whole = self._map(value[0])
                    continue
            except (EOFError, OSError, ValueError):
                raise Error("An error occurred in the data fetcher", because=self._end()) from None
            if what != "error":
                return what, value
            failure: Failure = value
            error = Error("An error occurred in the data fetcher", at=failure.at, because=failure.error)
            error.add_note(f"\nTraceback of the process that loads:\n{failure.trace}")
            raise error

    def _map(self, size: int) -> mmap.mmap:
        file = recv_handle(self._pipe)
        try:
            return mmap.mmap(file, size)
        finally:
            os.close(file)

    def _end(self) -> str:
        """End of the process, in words."""
        if self._stopped:
            return "it was terminated"
        self._process.join(_PATIENCE_S)
        code = self._process.exitcode
        if code is None:
            return "its process closed its connection"
        if code >= 0:
            return f"its process ended with exit status {code}"
        name = signal.Signals(-code).name
        return f"its process was ended by {name}" + (": memory may be short" if name == "SIGKILL" else "")

    def stop(self) -> None:
        """End the process."""
        self.send(("stop", None))
        self.let_go()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            # The kernel ends workers of its own with it.
            self._process.kill()
            self._process.join()
        self._process.close()

    def let_go(self) -> None:
        """Close this end of the connection."""
        self._stopped = True
        self._pipe.close()


_RUNNING: weakref.WeakSet[_Worker] = weakref.WeakSet()

_FORK = "fork" if sys.platform == "linux" else None


def _next_seed() -> int:
    """The number that PyTorch's generator would draw next; the program's own numbers stay as they were."""
    generator = torch.Generator()
    generator.set_state(torch.get_rng_state())
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


def _unstarted(error: Error, spawned: bool) -> Error:
    died = not error.at and spawned
    made = Error(
        "AsynchronousDataAccessor worker thread failed to start (Check above for details)",
        at=error.at,
        because=error.because,
        remedy="""put the program under `if __name__ == "__main__":`, or choose SharingStrategy.Fork"""
        if died
        else None,
    )
    made.__notes__ = getattr(error, "__notes__", [])
    return made


def _started(data: Any, settings: WorkerSettings, strategy: SharingStrategy) -> tuple[Connection, BaseProcess, bool]:
    """A process that works, the pipe to it, and True where it was spawned.

    Raises:
        Error: This process is itself about to import the program that starts it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise Error(
            "the program starts a process that loads data while another process imports it",
            remedy="""put what the program does under `if __name__ == "__main__":`""",
        )
    forks = strategy in (SharingStrategy.Fork, SharingStrategy.ForkServer) and _FORK is not None
    for method in ["fork"] if forks else ["spawn", "fork"]:
        context: Any = multiprocessing.get_context(method)
        ours, theirs = context.Pipe()
        # Not daemonic, because loaders with workers of their own start processes.
        process = context.Process(target=_work, args=(theirs, ours, data, settings), name="poptorch-data")
        try:
            if method == "spawn" and not _has_program_file():
                _refuse_own_classes(data)
            _start(process)
        except Exception:  # Whatever the user's own classes raise when they are pickled.
            ours.close()
            if method == "fork" or _FORK is None:
                raise
        else:
            return ours, process, method == "spawn"
        finally:
            theirs.close()
    raise AssertionError


def _start(process: BaseProcess) -> None:
    """Start a process that ignores Ctrl-C from its first instruction on."""
    main = threading.current_thread() is threading.main_thread()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if main else None
    try:
        with warnings.catch_warnings():
            # Python warns of forks of a program with threads; see what the other process does about them.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            process.start()
    finally:
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _has_program_file() -> bool:
    """True where another process can import the program; not in a notebook, nor for one on the command line."""
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is not None or os.path.exists(getattr(main, "__file__", None) or "")


def _refuse_own_classes(data: Any) -> None:
    """Raises:
    PicklingError: Data of a class that only this process has.
    """
    if b"__main__" in pickle.dumps(data):
        raise pickle.PicklingError("a class of a program that is in no file")


def _work(pipe: Connection, other_end: Connection, data: Any, settings: WorkerSettings) -> None:
    # With copies of other ends open, processes would not see that the other side is gone.
    other_end.close()
    for worker in _RUNNING:
        worker.let_go()
    work(pipe, data, settings)
