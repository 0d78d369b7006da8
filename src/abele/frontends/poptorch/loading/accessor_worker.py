"""The process that loads ahead: it writes batches into a ring of shared memory and says where they are.

The two sides talk over a pipe. The worker tells of its length, of how large slots have to be (from its first batch), of
batches, and of the ends of epochs; the other side gives it the memory, asks for epochs, and gives slots back. Tensors
go through the memory, and everything else of a batch through the pipe: mostly nothing but where tensors lie.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from abele.frontends.poptorch.loading.micro_batches import joined
from abele.frontends.poptorch.values.structures import map_tensors

ALIGNMENT = 64
"""Bytes to a multiple of which tensors are put, so that they begin on a line of the cache."""


@dataclass(frozen=True)
class Placed:
    """Where a tensor of a batch lies in its slot.

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
    """Where tensors lie in a slot, and how many bytes they take."""
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


class LoadingWorker:
    """The loop of the process.

    Args:
        pipe: To the process that uses the batches.
        data: What gives batches.
        buffer_size: Slots of the ring.
        indefinitely: True to go on with the next epoch without being asked.
        rebatched: Samples of the batches that are handed on; None for those that ``data`` gives.
    """

    def __init__(
        self, pipe: Connection, data: Any, *, buffer_size: int, indefinitely: bool, rebatched: int | None
    ) -> None:
        self._pipe = pipe
        self._data = data
        self._slots = list(range(buffer_size))
        self._indefinitely = indefinitely
        self._rebatched = rebatched
        self._memory: mmap.mmap | None = None
        self._slot_bytes = 0
        self._asked = 0
        self._run = 0

    def run(self) -> None:
        """Load until there is nobody to load for."""
        with contextlib.suppress(StoppedError, EOFError, BrokenPipeError):
            try:
                self._pipe.send(("length", _length(self._data)))
                while True:
                    while not self._asked:
                        self._take()
                    self._epoch()
            except (StoppedError, EOFError, BrokenPipeError):
                raise
            except Exception as error:
                traceback.print_exc()
                self._pipe.send(("error", f"{type(error).__name__}: {error}"))

    def _epoch(self) -> None:
        run = self._run
        with contextlib.suppress(InterruptedEpochError):
            batches = iterated(self._data)
            for batch in batches if self._rebatched is None else rebatched(batches, self._rebatched):
                while self._pipe.poll():
                    self._take()
                self._hand_on(batch, run)
            self._pipe.send(("end", run))
            if not self._indefinitely:
                self._asked -= 1

    def _take(self) -> None:
        """Take one message; wait for it, unless nobody is there any more to send one."""
        parent = multiprocessing.parent_process()
        if parent is not None and self._pipe not in wait([self._pipe, parent.sentinel]):
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
            case "memory":
                path, size = value
                self._memory = mapped(path, size)
                self._pipe.send(("mapped", None))
            case "stop":
                raise StoppedError
        if self._run != run:
            raise InterruptedEpochError

    def _hand_on(self, batch: Any, run: int) -> None:
        tensors = [t.detach().contiguous() for t in tensors_of(batch)]
        placed, size = _places(tensors)
        if self._memory is None:
            self._slot_bytes = size
            self._pipe.send(("slots", size))
            while self._memory is None:
                self._take()
        if size > self._slot_bytes:
            # Larger than the first batch: through the pipe, which is slower and always right.
            self._pipe.send(("whole", (run, batch)))
            return
        while not self._slots:
            self._take()
        slot = self._slots.pop(0)
        for place, tensor in zip(placed, tensors, strict=True):
            place.read(self._memory, slot * self._slot_bytes).copy_(tensor)
        self._pipe.send(("batch", (run, slot, _hollow(batch), placed)))


def mapped(path: str, size: int) -> mmap.mmap:
    """A file as memory."""
    file = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None


def iterated(data: Any) -> Iterator[Any]:
    """What a data set gives in one epoch, by its iterator or by its indices."""
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


def work(pipe: Connection, data: Any, settings: dict[str, Any]) -> None:
    """The process: it ends when it is told to, or when the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One of several processes; and a forked one may not use its parent's pool of threads.
    torch.set_num_threads(1)
    LoadingWorker(pipe, data, **settings).run()
    pipe.close()
