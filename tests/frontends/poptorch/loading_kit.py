"""Data sets that other processes can load."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Numbers(Dataset[Any]):
    """Samples (i·[1, 10], i)."""

    def __init__(self, count: int, *, broken: int | None = None, seconds: float = 0.0) -> None:
        self.count = count
        self.broken = broken
        self.seconds = seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index == self.broken:
            raise ValueError(f"sample {index} cannot be read")
        time.sleep(self.seconds)
        return index * torch.tensor([1.0, 10.0]), index


class Stream(IterableDataset[Any]):
    """Numbers from 0; each worker has every n-th of them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for number in range(first, self.count, step):
            yield torch.tensor(float(number))


class Batches:
    """Whole batches of many forms."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[Any]:
        for number in range(4):
            one, other = torch.full((2, 3), float(number)), torch.full((2,), number, dtype=torch.int64)
            forms = {
                "tensor": one,
                "tuple": (one, other),
                "list": [one, other],
                "dict": {"x": one, "y": other.half()},
                "nested": {"x": (one, [other]), "name": "fixed"},
                "growing": torch.full((number + 1, 2), float(number)),
            }
            yield forms[self.kind]


class Vanishing(Dataset[Any]):
    """Its process ends while it loads."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 3:
            os._exit(1)
        return torch.tensor(float(index))


class Unstartable(Dataset[Any]):
    """It cannot be made in another process."""

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(1)


class Calls(Dataset[Any]):
    """Samples that a function makes of their numbers; it need not be one that can be pickled."""

    def __init__(self, count: int, make: Callable[[int], Any]) -> None:
        self.count = count
        self.make = make

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def process(_: int) -> torch.Tensor:
    """Number of the loading process, and that of its parent."""
    return torch.tensor([os.getpid(), os.getppid()])


def is_a_fork(_: int) -> torch.Tensor:
    """True in a process that was not started by a command of its own."""
    command = Path("/proc/self/cmdline").read_text()
    return torch.tensor("forkserver" not in command and "spawn" not in command)


def drawn(_: int) -> torch.Tensor:
    """A random number."""
    return torch.rand(())


def collected(_: int) -> torch.Tensor:
    """Objects that a full collection finds unreachable."""
    return torch.tensor(gc.collect())


def end_of_file(_: int) -> torch.Tensor:
    """A sample of a file that was cut off."""
    raise EOFError("no more samples in the file")


def slow(_: int) -> torch.Tensor:
    """A sample that takes as good as for ever."""
    time.sleep(100)
    return torch.zeros(1)
