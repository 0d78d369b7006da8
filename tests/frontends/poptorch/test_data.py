"""The data loader: combined batches and samplers."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler, TensorDataset

from abele import poptorch

DATA = TensorDataset(torch.arange(50.0).reshape(25, 2), torch.arange(25))


def options(iterations: int = 1, accumulation: int = 1) -> poptorch.Options:
    opts = poptorch.Options().deviceIterations(iterations)
    opts.Training.gradientAccumulation(accumulation)
    return opts


def test_loader__batches__hold_all_micro_batches() -> None:
    loader = poptorch.DataLoader(options(2, 3), DATA, batch_size=2)
    assert loader.combinedBatchSize == 12
    assert len(loader) == 2
    assert [x.shape for x, _ in loader] == [(12, 2)] * 2


def test_loader__drop_last_is_off_and_samples_remain__warns() -> None:
    with pytest.warns(UserWarning, match="25 samples do not divide into batches of 12"):
        loader = poptorch.DataLoader(options(2, 3), DATA, batch_size=2, drop_last=False)
    assert [len(x) for x, _ in loader] == [12, 12, 1]


def test_loader__without_batch_size__gives_the_datasets_items() -> None:
    loader = poptorch.DataLoader(options(4), [torch.zeros(4), torch.ones(4)], batch_size=None)
    assert loader.combinedBatchSize is None
    assert len(list(loader)) == 2


def test_loader__shuffle__keeps_every_sample() -> None:
    loader = poptorch.DataLoader(options(), DATA, batch_size=5, shuffle=True)
    labels = torch.cat([y for _, y in loader])
    assert sorted(labels.tolist()) == list(range(25))


def test_loader__batch_sampler__joins_consecutive_batches() -> None:
    sampler = BatchSampler(SequentialSampler(DATA), batch_size=4, drop_last=True)
    loader = poptorch.DataLoader(options(2), DATA, batch_sampler=sampler)
    assert [y.tolist() for _, y in loader] == [list(range(8)), list(range(8, 16)), list(range(16, 24))]


def test_loader__batch_sampler_with_batch_size__is_refused() -> None:
    with pytest.raises(poptorch.Error, match="batch_sampler excludes batch_size and shuffle"):
        poptorch.DataLoader(options(), DATA, batch_size=2, batch_sampler=[[0]])
