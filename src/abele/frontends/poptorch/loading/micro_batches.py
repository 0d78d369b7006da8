"""Samples of data loaders: micro-batches made one by one and joined, parts of data sets by process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data

from abele.frontends.poptorch.values.structures import level_of


@dataclass(frozen=True)
class MicroBatchCollate:
    """Makes a batch of samples: each micro-batch by itself, as the model is to see it, and these joined.

    Where micro-batches cannot be joined, such as when each is padded to a length of its own, all samples are made into
    one batch at once.

    Attributes:
        collate: Makes one batch of a list of samples.
        size: Samples of a micro-batch.
    """

    collate: Callable[[list[Any]], Any]
    size: int

    def __call__(self, samples: list[Any]) -> Any:
        """The batch."""
        parts = [samples[i : i + self.size] for i in range(0, len(samples), self.size)]
        if len(parts) == 1:
            return self.collate(samples)
        try:
            return joined([self.collate(part) for part in parts])
        except CannotJoinError:
            return self.collate(samples)


class CannotJoinError(ValueError):
    """Batches that do not go together."""


def joined(batches: Sequence[Any]) -> Any:
    """Batches one after the other: tensors along their first dimension, and whatever holds tensors part by part.

    Raises:
        CannotJoinError: They differ in more than the first dimension, or are made of something else.
    """
    first = batches[0]
    if isinstance(first, torch.Tensor):
        if any(not _goes_with(first, batch) for batch in batches):
            raise CannotJoinError
        return torch.cat(list(batches)) if first.dim() else torch.stack(list(batches))
    levels = [level_of(batch) for batch in batches]
    same = all(level is not None and level.names == (levels[0] or level).names for level in levels)
    if levels[0] is None or not same or any(type(batch) is not type(first) for batch in batches):
        if all(batch is None for batch in batches):
            return None
        raise CannotJoinError
    columns = zip(*(level.parts for level in levels if level is not None), strict=True)
    return levels[0].rebuild([joined(column) for column in columns])


def _goes_with(first: torch.Tensor, batch: Any) -> bool:
    return isinstance(batch, torch.Tensor) and batch.shape[1:] == first.shape[1:] and batch.dtype == first.dtype


@dataclass(frozen=True)
class JoinedSampler:
    """Consecutive batches of a sampler as one.

    Attributes:
        sampler: Gives lists of indices.
        count: Number of batches that make one.
    """

    sampler: Any
    count: int

    def __iter__(self) -> Iterator[list[Any]]:
        gathered: list[Any] = []
        for number, batch in enumerate(self.sampler, start=1):
            gathered.extend(batch)
            if number % self.count == 0:
                yield gathered
                gathered = []

    def __len__(self) -> int:
        return len(self.sampler) // self.count


class PartSampler(torch.utils.data.Sampler[int]):
    """The indices of one process among several: a block of the data set, or of a permutation that all have alike.

    Whole batches are dealt out. What is left over is at the end of even epochs and at the start of odd ones, so that no
    sample is left out for good.

    Args:
        data: The data set.
        process: Number of this process.
        num_processes: Number of processes.
        batch: Samples of one batch; each block is whole batches of it, if ``drop_last``.
        drop_last: True to leave out samples that make no whole batch.
        seed: Of the permutations; None for the order of the data set.
    """

    def __init__(
        self, data: Sized, process: int, num_processes: int, *, batch: int, drop_last: bool, seed: int | None
    ) -> None:
        self._count = len(data)
        self._process = process
        self._seed = seed
        whole = self._count // (batch * num_processes) * batch
        self._each = whole if drop_last else -(-self._count // num_processes)
        self._left = max(0, self._count - self._each * num_processes)
        self._epoch = 0

    def __iter__(self) -> Iterator[int]:
        order = torch.arange(self._count)
        start = self._process * self._each
        if self._seed is not None:
            made = torch.Generator().manual_seed(self._seed + self._epoch)
            order = torch.randperm(self._count, generator=made)
            start += self._left * (self._epoch % 2)
            self._epoch += 1
        yield from order[start : start + self._each].tolist()

    def __len__(self) -> int:
        return max(0, min(self._each, self._count - self._process * self._each))
