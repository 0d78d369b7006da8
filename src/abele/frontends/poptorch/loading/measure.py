"""Costs of a loader's samples on this host: a few are made and joined as its workers would, and timed.

The samples come from all over the data set, and each round makes others, so that nothing is found in a cache because
it was made before. The best round counts: what else runs on the host only ever adds. A measurement leaves no trace in
the training: random numbers that the data set draws here are drawn again there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.loading.accessor import AsynchronousDataAccessor
from abele.frontends.poptorch.loading.accessor_worker import tensors_of
from abele.frontends.poptorch.loading.micro_batches import JoinedSampler
from abele.host_facts import host_name
from abele.machine import HostComputer
from abele.machine.source import cite, measured
from abele.report import Loading

ROUNDS = 4
ROUND_SECONDS = 0.05
"""About what a round takes; of slow samples it makes one at least."""
PROBED_SAMPLES = 8
"""Samples that say how many a round has; of slow ones, one."""
MOST_SAMPLES = 8192
"""Samples of a round."""


Make = Callable[[int, int], tuple[Any, int]]
"""Makes and joins samples of a round, so many; gives the batch, and of how many samples its tensors are."""


def measure_loading(data: DataLoader[Any] | AsynchronousDataAccessor, host: HostComputer) -> Loading:
    """Loading of batches by a loader, and the cost of a sample here.

    Args:
        data: The loader, PopTorch's or PyTorch's, perhaps behind an accessor; it need not have been used.
        host: The host that the batches are made on.

    Raises:
        Error: It is no loader, its data cannot be looked at without being used up, its length is not known, or it
            gives no whole batch.
    """
    accessor, loader = _parts(data)
    batches, samples = _batches(data), _samples_per_batch(loader)
    make = _maker(loader)
    with _untouched(), _threads(1 if loader.num_workers else torch.get_num_threads()):
        seconds, tensors, rows = _rounds(make, min(MOST_SAMPLES, samples or 1))
    whole = (accessor._rebatched if accessor is not None else None) or samples or rows
    return cite(
        Loading,
        samples_per_batch=whole,
        batches_per_epoch=batches,
        sample_seconds=measured(seconds, f"on {host_name()}, best of {ROUNDS} rounds"),
        sample_bytes=sum(t.numel() * t.element_size() for t in tensors) / rows,
        tensors_per_batch=len(tensors),
        num_workers=loader.num_workers,
        batches_ahead=loader.prefetch_factor or 2,
        persistent_workers=bool(loader.persistent_workers) or not loader.num_workers,
        ring_batches=0 if accessor is None else accessor._buffer_size,
        next_epoch_ahead=accessor is None or accessor._indefinitely,
        worker_samples=0 if samples in (None, whole) else samples,
        host=host,
        measured_on=host_name(),
    )


def _parts(data: object) -> tuple[AsynchronousDataAccessor | None, DataLoader[Any]]:
    """The accessor, where there is one, and the loader.

    Raises:
        Error: There is no loader.
    """
    accessor: AsynchronousDataAccessor | None = getattr(data, "_accessor", None)
    loader = data
    if isinstance(data, AsynchronousDataAccessor):
        accessor, loader = data, data._dataset
    if not isinstance(loader, DataLoader):
        raise Error(f"{type(loader).__name__} is no DataLoader: there is nothing to measure", remedy=_BY_HAND)
    return accessor, loader


def _rounds(make: Make, most: int) -> tuple[float, list[torch.Tensor], int]:
    """Seconds of a sample in the best round, and a batch with the number of its samples."""
    count = 1
    # The first sample of all may be dear for reasons of its own.
    for few in (1, min(PROBED_SAMPLES, most)):
        begin = time.perf_counter()
        make(0, few)
        each = max(time.perf_counter() - begin, 1e-9) / few
        count = max(1, min(most, int(ROUND_SECONDS / each)))
        if count < PROBED_SAMPLES:
            break
    best, batch, rows = float("inf"), None, 1
    for number in range(ROUNDS):
        begin = time.perf_counter()
        batch, rows = make(number, count)
        best = min(best, (time.perf_counter() - begin) / rows)
    return best, tensors_of(batch), rows


def _batches(loader: Sized) -> int:
    """Batches of an epoch."""
    try:
        batches = len(loader)
    except (TypeError, NotImplementedError) as error:
        raise Error(
            "the loader does not know how many batches it gives", because=str(error), remedy=_BY_HAND
        ) from error
    if not batches:
        raise Error("the loader gives no whole batch: there is nothing to measure")
    return batches


_BY_HAND = "a data set with a length, or report.with_loading(Loading(…)) with figures of your own"


def _samples_per_batch(loader: DataLoader[Any]) -> int | None:
    """Samples that a worker makes at a time; None if the data set gives whole batches."""
    sampler: Any = loader.batch_sampler
    if sampler is None:
        return None
    joined = isinstance(sampler, JoinedSampler)
    inner, count = (sampler.sampler, sampler.count) if joined else (sampler, 1)
    size = getattr(inner, "batch_size", None)
    if not isinstance(size, int):
        raise Error(
            f"{type(inner).__name__} does not say how many samples its batches have",
            remedy="a batch_size in the sampler, or report.with_loading(Loading(…)) with figures of your own",
        )
    return size * count


def _maker(loader: DataLoader[Any]) -> Make:
    """Function that makes and joins samples as the loader does.

    Raises:
        Error: There are none, or they are gone when they have been looked at.
    """
    dataset: Any = loader.dataset
    collate: Any = loader.collate_fn
    whole = loader.batch_sampler is None
    if isinstance(dataset, IterableDataset):
        if iter(dataset) is dataset:
            raise Error("the data set can be gone over once only: measuring would use it up", remedy=_BY_HAND)
        return lambda number, count: _joined(list(islice(iter(dataset), count)), collate, whole=whole)
    length = len(dataset)

    def make(number: int, count: int) -> tuple[Any, int]:
        spread = [(i * ROUNDS + number) * length // (count * ROUNDS) for i in range(count)]
        several = getattr(dataset, "__getitems__", None)
        items = [dataset[i] for i in spread] if several is None or whole else several(spread)
        return _joined(items, collate, whole=whole)

    return make


def _joined(items: list[Any], collate: Callable[[Any], Any], *, whole: bool) -> tuple[Any, int]:
    """A batch of items and the number of its samples: rows of the tensors, where an item is a batch."""
    if not items:
        raise Error("the data set is empty: there is nothing to measure")
    if not whole:
        return collate(items), len(items)
    batch = collate(items[0])
    return batch, max((len(t) for t in tensors_of(batch) if t.dim()), default=1)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads for PyTorch's operations, as workers have one."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _untouched() -> Iterator[None]:
    """Leave the random numbers as they are."""
    python, numbers = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
