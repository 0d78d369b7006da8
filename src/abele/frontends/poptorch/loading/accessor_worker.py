"""Process that loads ahead: it writes batches into a ring of shared memory and says where they are.

The two sides talk over a socket. The worker tells of its length, of the ring (sized by its first batch), of batches,
and of the ends of epochs; the other side asks for epochs, and gives slots back. Tensors go through the memory, and
everything else of a batch through the socket: mostly nothing but where tensors lie. Memory has no name: its file
descriptor goes through the socket, so whatever process is killed at whatever time leaves nothing in ``/dev/shm``. A
batch of 64 float32 images [3, 224, 224], for example, takes 38,535,168 B, and a ring of 3 slots 116 MB.

The process is mostly a fork of a program with threads, of which it has only the one that forked. It therefore uses no
pool of threads of its parent, collects nothing that its parent owns, and has none of its parent's handlers of signals.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from typing import Any

import torch
import torch.utils.data

from abele.frontends.poptorch.loading.micro_batches import joined
from abele.frontends.poptorch.values.structures import map_tensors

ALIGNMENT = 64
"""Bytes to a multiple of which tensors are put, so that they begin on a line of the cache."""

_LOOK_S = 1.0
"""Seconds between looks of a waiting process whether its parent is still there."""

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Placed:
    """Place of a tensor of a batch in its slot.

    Attributes:
        offset: Bytes from the start of the slot.
        dtype: Element type.
        shape: Dimensions.
    """

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def read(self, memory: mmap.mmap, start: int) -> torch.Tensor:
        """The tensor over the memory of a slot that begins at ``start``."""
        count = int(torch.Size(self.shape).numel())
        if not count:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.frombuffer(memory, dtype=self.dtype, count=count, offset=start + self.offset).reshape(self.shape)


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """The tensors of a batch in order."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, batch)
    return found


def with_tensors(batch: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """A batch with other tensors in the same order."""
    return map_tensors(lambda _: next(tensors), batch)


def _places(tensors: list[torch.Tensor]) -> tuple[list[Placed], int]:
    """Places of tensors in a slot, and the bytes that they take."""
    placed, offset = [], 0
    for tensor in tensors:
        placed.append(Placed(offset, tensor.dtype, tuple(tensor.shape)))
        offset += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
    return placed, max(offset, ALIGNMENT)


def _hollow(batch: Any) -> Any:
    """A batch without the elements of its tensors."""
    return map_tensors(lambda _: torch.empty(0), batch)


class StoppedError(Exception):
    """Nobody wants more batches."""


class InterruptedEpochError(Exception):
    """The rest of an epoch is not wanted."""


class DataError(Exception):
    """An error that the data raised.

    Args:
        of_data: That error.
    """

    def __init__(self, of_data: Exception) -> None:
        super().__init__()
        self.of_data = of_data


@dataclass(frozen=True)
class WorkerSettings:
    """Settings of a worker that loads batches ahead.

    Attributes:
        buffer_size: Slots of the ring.
        indefinitely: True to go on with the next epoch without being asked.
        rebatched: Samples of the batches that are handed on; None for those that the data gives.
        in_files: True to keep shared memory in temporary files.
        parent: Process that the batches are for.
        by_main_thread: True where the main thread of that process starts this one.
        seed: Start of all generators of random numbers.
        start_method: Start method of the data's own workers.
    """

    buffer_size: int
    indefinitely: bool
    rebatched: int | None
    in_files: bool
    parent: int
    by_main_thread: bool
    seed: int
    start_method: str


@dataclass(frozen=True)
class Failure:
    """An error of the data, as the other process tells it.

    Attributes:
        error: Its kind and text.
        at: The last line of the user's code.
        trace: The whole traceback.
    """

    error: str
    at: str | None
    trace: str


class LoadingWorker:
    """The loop of the process.

    Args:
        pipe: Socket to the process that uses the batches.
        data: Data set or loader of the batches.
        settings: Settings of the loading.
    """

    def __init__(self, pipe: Connection, data: Any, settings: WorkerSettings) -> None:
        self._pipe = pipe
        self._data = data
        self._settings = settings
        self._slots = list(range(settings.buffer_size))
        self._memory: mmap.mmap | None = None
        self._slot_bytes = 0
        self._asked = 0
        self._run = 0

    def run(self) -> None:
        """Load until there is nobody to load for."""
        with contextlib.suppress(StoppedError, EOFError, ConnectionError):
            try:
                self._pipe.send(("length", self._length()))
                while True:
                    while not self._asked:
                        self._take()
                    self._epoch()
            except DataError as error:
                self._fail(error.of_data)
            except (StoppedError, EOFError, ConnectionError):
                raise
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        traceback.print_exception(error)
        trace = "".join(traceback.format_exception(error))
        self._pipe.send(("error", Failure(f"{type(error).__name__}: {error}", _users_line(error), trace)))

    def _length(self) -> int | None:
        try:
            return len(self._data)
        except TypeError:
            return None
        except Exception as error:
            raise DataError(error) from error

    def _batches(self) -> Iterator[Any]:
        size = self._settings.rebatched
        try:
            yield from iterated(self._data) if size is None else rebatched(iterated(self._data), size)
        except Exception as error:
            # Apart from those of the socket: a truncated file is an EOFError too.
            raise DataError(error) from error

    def _epoch(self) -> None:
        run = self._run
        with contextlib.suppress(InterruptedEpochError):
            for batch in self._batches():
                while self._pipe.poll():
                    self._take()
                self._hand_on(batch, run)
            self._pipe.send(("end", run))
            if not self._settings.indefinitely:
                self._asked -= 1

    def _take(self) -> None:
        """Take one message; wait for it, unless nobody is there any more to send one."""
        while not wait([self._pipe], _LOOK_S):
            # Other processes may have inherited the other end, so that it is open after those who used it are gone.
            if os.getppid() != self._settings.parent:
                raise StoppedError
        what, value = self._pipe.recv()
        run = self._run
        match what:
            case "epoch":
                self._asked += 1
            case "again":
                self._run, self._asked = value, 1
            case "free":
                self._slots.append(value)
            case "stop":
                raise StoppedError
        if self._run != run:
            raise InterruptedEpochError

    def _hand_on(self, batch: Any, run: int) -> None:
        tensors = [t.detach().contiguous() for t in tensors_of(batch)]
        placed, size = _places(tensors)
        if self._memory is None:
            self._slot_bytes = size
            self._memory = self._share("ring", size * len(self._slots), size)
        if size > self._slot_bytes:
            # Larger than the first batch: it gets memory of its own.
            memory = self._share("memory", size, size)
            _write(memory, 0, placed, tensors)
            self._pipe.send(("whole", (run, _hollow(batch), placed)))
            return
        while not self._slots:
            self._take()
        slot = self._slots.pop(0)
        _write(self._memory, slot * self._slot_bytes, placed, tensors)
        self._pipe.send(("batch", (run, slot, _hollow(batch), placed)))

    def _share(self, what: str, size: int, slot_bytes: int) -> mmap.mmap:
        """New memory that both processes have."""
        file = _unnamed_file(size, on_disk=self._settings.in_files)
        try:
            memory = mmap.mmap(file, size)
            self._pipe.send((what, (size, slot_bytes)))
            send_handle(self._pipe, file, self._settings.parent)
        finally:
            os.close(file)
        return memory


def _write(memory: mmap.mmap, start: int, placed: list[Placed], tensors: list[torch.Tensor]) -> None:
    for place, tensor in zip(placed, tensors, strict=True):
        place.read(memory, start).copy_(tensor)


def _unnamed_file(size: int, *, on_disk: bool) -> int:
    """File without a name that goes with its last process.

    ``/dev/shm``, of which a container often has 64 MB, is not asked: memory of no file system takes its place.
    """
    if not on_disk:
        # Kernels without it, and sandboxes that refuse it, keep the memory in a file as well.
        with contextlib.suppress(AttributeError, OSError):
            file = os.memfd_create("poptorch-batches")
            os.truncate(file, size)
            return file
    with tempfile.TemporaryFile() as made:
        if hasattr(os, "posix_fallocate"):
            # A full disk is an error here, and a crash when the memory is written.
            os.posix_fallocate(made.fileno(), 0, size)
        else:
            made.truncate(size)
        return os.dup(made.fileno())


def _users_line(error: BaseException) -> str | None:
    """The last line that is neither PyTorch's nor of this package."""
    own = (os.path.dirname(torch.__file__), os.path.dirname(__file__), os.path.dirname(multiprocessing.__file__))
    steps = [(step.filename, step.lineno, step.name) for step in traceback.extract_tb(error.__traceback__)]
    # A worker of PyTorch's loader tells its traceback as text.
    steps += re.findall(r'File "([^"]+)", line (\d+), in (.+)', str(error))
    found = [f"{file}:{line}, in {name}" for file, line, name in steps if not file.startswith(own)]
    return found[-1] if found else None


def iterated(data: Any) -> Iterator[Any]:
    """Items of a data set in one epoch, by its iterator or by its indices."""
    if hasattr(data, "__iter__"):
        yield from data
    else:
        for index in range(len(data)):
            yield data[index]


def rebatched(batches: Iterator[Any], size: int) -> Iterator[Any]:
    """Batches of ``size`` samples from batches of any number; what makes no whole one at the end is left out."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(tensors_of(batch)[0])
        while count >= size:
            together = waiting[0] if len(waiting) == 1 else joined(waiting)
            yield map_tensors(lambda t: t[:size], together)
            count -= size
            waiting = [map_tensors(lambda t: t[size:], together)] if count else []


def work(pipe: Connection, data: Any, settings: WorkerSettings) -> None:
    """The process: it ends when it is told to, or when the other side is gone."""
    _alone(settings)
    LoadingWorker(pipe, data, settings).run()
    pipe.close()
    # Workers that outlive an epoch finish their sample: one that is ended while it shares it leaves the memory behind.
    shut_down = getattr(getattr(data, "_iterator", None), "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


def _alone(settings: WorkerSettings) -> None:
    """Make a process of a program independent of the program's threads and resources."""
    # Objects that a parent let go of are for the parent to end: temporary folders, models, threads.
    gc.freeze()
    _forget_signals()
    if settings.by_main_thread:
        _die_with_parent(settings.parent)
    # Workers of the data end with this process, however it ends.
    forking = [0]
    os.register_at_fork(
        before=lambda: forking.__setitem__(0, os.getpid()), after_in_child=lambda: _die_with_parent(forking[0])
    )
    # One of several processes; and a forked one may not use its parent's pool of threads.
    torch.set_num_threads(1)
    multiprocessing.set_start_method(settings.start_method, force=True)
    # Each loader would otherwise go through its parent's numbers again.
    random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(settings.seed % 2**32)
    # The loader said so when it was made.
    warnings.filterwarnings("ignore", message="This DataLoader will create")


def _forget_signals() -> None:
    """Leave Ctrl-C to the parent, and all signals for which the program has handlers; SIGTERM ends this process."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGCHLD}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _die_with_parent(parent: int) -> None:
    """Have the kernel end this process when the thread that started it is gone, where the kernel can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
