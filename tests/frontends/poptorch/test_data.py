"""The data loader: combined batches and samplers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from loading_kit import Numbers, Stream
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
    with pytest.warns(
        UserWarning,
        match=r"dataset \(25\) is not divisible .* per step \(12\)",
    ):
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


def lengths(samples: list[Any]) -> torch.Tensor:
    """The largest number of a micro-batch, for each of its samples."""
    return torch.full((len(samples),), float(max(label for _, label in samples)))


def test_loader__own_collate__sees_one_micro_batch_at_a_time() -> None:
    loader = poptorch.DataLoader(options(3), Numbers(12), batch_size=2, collate_fn=lengths)
    assert [batch.tolist() for batch in loader] == [[1, 1, 3, 3, 5, 5], [7, 7, 9, 9, 11, 11]]


def padded(samples: list[Any]) -> torch.Tensor:
    return torch.zeros(len(samples), max(label for _, label in samples))


def test_loader__micro_batches_that_do_not_join__are_collated_at_once() -> None:
    loader = poptorch.DataLoader(options(3), Numbers(6), batch_size=2, collate_fn=padded)
    assert [batch.shape for batch in loader] == [(6, 5)]


def test_loader__with_workers__loads_in_order() -> None:
    loader = poptorch.DataLoader(options(2), Numbers(8), batch_size=2, num_workers=2)
    for _ in range(2):
        assert [y.tolist() for _, y in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader.terminate()


def test_loader__stream_in_workers__loads_each_part() -> None:
    loader = poptorch.DataLoader(options(2), Stream(16), batch_size=2, num_workers=2)
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(16))
    loader.terminate()


# --- several processes ------------------------------------------------------------------------------------------------


def part(process: int, count: int, *, samples: int = 20, seed: int | None = None, **given: Any) -> Any:
    opts = options(2)
    opts.Distributed.configureProcessId(process, count)
    if seed is not None:
        opts.randomSeed(seed)
    return poptorch.DataLoader(opts, Numbers(samples), batch_size=2, **given)


def test_parts__in_order__are_blocks_of_whole_batches() -> None:
    found = [[y.tolist() for _, y in part(process, 2)] for process in range(2)]
    assert found == [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9, 10, 11], [12, 13, 14, 15]]]
    assert len(part(0, 2)) == 2


def test_parts__shuffled__are_of_one_permutation_and_leave_out_others_in_turn() -> None:
    loaders = [part(process, 2, seed=3, shuffle=True) for process in range(2)]
    epochs = [[label for loader in loaders for _, y in loader for label in y.tolist()] for _ in range(2)]
    for epoch in epochs:
        assert len(set(epoch)) == len(epoch) == 16
    assert epochs[0] != epochs[1]


def test_parts__shuffled_without_a_seed__are_refused() -> None:
    with pytest.raises(AssertionError, match="randomSeed"):
        part(0, 2, shuffle=True)


def test_parts__turned_off__are_the_whole() -> None:
    assert len(part(0, 2, auto_distributed_partitioning=False)) == 5


def test_parts__of_a_batch_sampler__are_refused() -> None:
    with pytest.raises(poptorch.Error, match="automatic partitioning"):
        poptorch.DataLoader(two_processes(), Numbers(8), batch_sampler=BatchSampler(range(8), 2, True))


def two_processes() -> poptorch.Options:
    opts = options()
    opts.Distributed.configureProcessId(0, 2)
    return opts
