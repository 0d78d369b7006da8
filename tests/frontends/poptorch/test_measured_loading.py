"""A loader's account of itself: figures of the real one, and a measurement that leaves no trace."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, SequentialSampler, TensorDataset

from abele import poptorch
from abele.errors import InvalidOptionError, MachineError


class Noisy(Dataset[Any]):
    """Samples with random numbers of every kind."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.rand(3) + float(np.random.rand()) + random.random()


class Slow(Dataset[Any]):
    """Samples of two milliseconds."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> torch.Tensor:
        time.sleep(2e-3)
        return torch.zeros(5)


class Stream(IterableDataset[Any]):
    def __init__(self, length: int | None) -> None:
        self.length = length

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.zeros(32, 4))

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("no length")
        return self.length


class Once(Stream):
    def __iter__(self) -> Any:
        return self

    def __next__(self) -> torch.Tensor:
        raise AssertionError("was used")


def options(iterations: int = 4) -> poptorch.Options:
    return poptorch.Options().deviceIterations(iterations)


def test_loading__tensors__has_sizes_workers_and_bytes() -> None:
    data = TensorDataset(torch.zeros(100, 3, 2), torch.zeros(100, dtype=torch.int64))
    loader = poptorch.DataLoader(options(), data, batch_size=8, num_workers=1, prefetch_factor=5)
    found = loader.loading()
    assert (found.samples_per_batch, found.batches_per_epoch, found.tensors_per_batch) == (32, 3, 2)
    assert found.sample_bytes == 3 * 2 * 4 + 8
    assert (found.num_workers, found.batches_ahead, found.persistent_workers, found.ring_batches) == (1, 5, True, 0)
    assert found.sample_seconds > 0
    assert found.measured_on
    assert found.source_of("sample_seconds").confidence == "M"
    assert found.host.name == "epyc-7742"


def test_loading__slow_samples__cost_what_they_take() -> None:
    found = poptorch.DataLoader(options(), Slow(), batch_size=8).loading()
    assert found.sample_seconds >= 2e-3


def test_loading__asynchronous__has_the_ring() -> None:
    loader = poptorch.DataLoader(
        options(),
        Noisy(),
        batch_size=8,
        mode=poptorch.DataLoaderMode.Async,
        async_options={"buffer_size": 4, "load_indefinitely": False, "sharing_strategy": poptorch.SharingStrategy.Fork},
    )
    with loader:
        found = loader.loading()
    assert (found.ring_batches, found.next_epoch_ahead) == (4, False)


def test_loading__random_samples__leave_random_numbers_as_they_were() -> None:
    def draws() -> list[float]:
        return [float(torch.rand(())), float(np.random.rand()), random.random()]

    loader = poptorch.DataLoader(options(), Noisy(), batch_size=8, shuffle=True)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = draws()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    loader.loading()
    assert draws() == expected


def test_loading__batches_of_the_data_set__have_the_samples_of_their_tensors() -> None:
    whole = poptorch.DataLoader(options(1), TensorDataset(torch.zeros(6, 10, 4)), batch_size=None).loading()
    assert (whole.samples_per_batch, whole.batches_per_epoch, whole.sample_bytes) == (10, 6, 16.0)
    sampler = BatchSampler(SequentialSampler(Noisy()), 6, drop_last=True)
    joined = poptorch.DataLoader(options(2), Noisy(), batch_sampler=sampler).loading()
    assert (joined.samples_per_batch, joined.batches_per_epoch) == (12, 8)


def test_loading__iterated_data__is_measured_unless_it_is_used_up() -> None:
    found = poptorch.DataLoader(options(), Stream(32), batch_size=2).loading()
    assert (found.samples_per_batch, found.batches_per_epoch) == (8, 4)
    with pytest.raises(poptorch.Error, match="the data set can be gone over once only"):
        poptorch.DataLoader(options(), Once(32), batch_size=2).loading()
    with pytest.raises(poptorch.Error, match="the loader does not know how many batches it gives"):
        poptorch.DataLoader(options(), Stream(None), batch_size=2).loading()


def test_loading__nothing_to_measure__says_so() -> None:
    with pytest.raises(poptorch.Error, match="the loader gives no whole batch"):
        poptorch.DataLoader(options(), TensorDataset(torch.zeros(3, 2)), batch_size=8).loading()
    with pytest.raises(poptorch.Error, match="list does not say how many samples its batches have"):
        poptorch.DataLoader(options(1), Noisy(), batch_sampler=[[0, 1], [2, 3]]).loading()
    with pytest.raises(MachineError, match="no host is called 'nowhere'"):
        poptorch.DataLoader(options(), Noisy(), batch_size=8).loading("nowhere")


def test_report__with_data__names_what_limits() -> None:
    opts = options(2)
    model = poptorch.inferenceModel(torch.nn.Linear(5, 2), opts)
    loader = poptorch.DataLoader(opts, Slow(), batch_size=8)
    model.compile(torch.zeros(16, 5))
    limits = model.report(loader).limits
    assert limits is not None
    assert limits.name == "loader"
    assert limits.loader is not None
    assert limits.loader <= 500  # Samples of two milliseconds.
    assert model.report().loading is None
    with pytest.raises(InvalidOptionError, match="a batch has 32 samples, a run takes 16"):
        model.report(poptorch.DataLoader(options(2), Slow(), batch_size=16))


def test_report__loaders_of_other_makers__are_measured_too() -> None:
    opts = options(2)
    model = poptorch.inferenceModel(torch.nn.Linear(5, 2), opts)
    model.compile(torch.zeros(16, 5))
    plain = torch.utils.data.DataLoader(Slow(), batch_size=16)
    found = model.report(plain).loading
    assert found is not None
    assert (found.samples_per_batch, found.batches_per_epoch) == (16, 4)
    fork = poptorch.SharingStrategy.Fork
    with poptorch.AsynchronousDataAccessor(plain, buffer_size=2, sharing_strategy=fork) as accessor:
        behind = model.report(accessor).loading
    assert behind is not None
    assert (behind.ring_batches, behind.samples_per_batch) == (2, 16)
    with pytest.raises(poptorch.Error, match="list is no DataLoader: there is nothing to measure"):
        model.report([torch.zeros(16, 5)])  # type: ignore[arg-type]


def test_loading__rebatched__has_the_samples_of_its_workers() -> None:
    loader = poptorch.DataLoader(
        options(2),
        Noisy(),
        batch_size=8,
        num_workers=1,
        mode=poptorch.DataLoaderMode.AsyncRebatched,
        rebatched_worker_size=5,
        async_options={"sharing_strategy": poptorch.SharingStrategy.Fork},
    )
    with loader:
        found = loader.loading()
    assert (found.samples_per_batch, found.worker_samples, found.batches_per_epoch) == (16, 5, 6)


class Counted(Noisy):
    """Notes how many samples were asked for, and with how many threads."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked, self.threads = seconds, 0, set[int]()

    def __getitem__(self, number: int) -> torch.Tensor:
        self.asked += 1
        self.threads.add(torch.get_num_threads())
        time.sleep(self.seconds)
        return torch.zeros(2)


def test_loading__samples_of_a_tenth_of_a_second__few_are_made_with_the_threads_of_a_worker() -> None:
    data, threads = Counted(0.1), torch.get_num_threads()
    found = poptorch.DataLoader(options(), data, batch_size=8, num_workers=1).loading()
    assert found.sample_seconds >= 0.1
    assert data.asked <= 5
    assert data.threads == {1}
    assert torch.get_num_threads() == threads
