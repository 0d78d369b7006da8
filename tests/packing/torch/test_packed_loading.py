"""Loaders of packs: PyTorch's own and PopTorch's, with workers, ranks and epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch.utils.data import DataLoader, Dataset

from abele import poptorch
from abele.errors import ItemSizeError, PackedDataError, PackMembersError
from abele.packing.data import Field, PackedRows, PackOrder, Recipe, RowShape, Samples, pack_rows, per_sequence
from abele.packing.torch import (
    LazyPackedDataset,
    PackBatchSampler,
    PackedDataset,
    PackedLoader,
    PackedStream,
    PackSampler,
)
from support.packed_data import packs_of, random_ragged

COUNT = 60
SHAPE = RowShape(16, 3)
RECIPE = Recipe({"ids": Field(), "label": per_sequence(padding=-100)})


def rows_of() -> PackedRows:
    rng = np.random.default_rng(0)
    ids = random_ragged(rng, rng.integers(3, 12, COUNT))
    return pack_rows(Samples({"ids": ids, "label": np.arange(COUNT)}, RECIPE), SHAPE)


class Loaded(Dataset[Any]):
    """Samples that are made one by one."""

    def __init__(self, rows: PackedRows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> dict[str, Any]:
        columns = self.rows.samples.columns
        return {"ids": columns["ids"][number], "label": int(columns["label"][number]), "text": "left out"}


def seen(batches: Any) -> list[int]:
    numbers = torch.cat([batch["samples"].flatten() for batch in batches])
    return sorted(numbers[numbers >= 0].tolist())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("lazy", [False, True])
def test_loader__map_style__gives_every_sample_once_in_equal_shapes(workers: int, lazy: bool) -> None:
    rows = rows_of()
    data = LazyPackedDataset(Loaded(rows), rows.packs, SHAPE, RECIPE) if lazy else PackedDataset(rows)
    order = PackOrder(num_packs=len(rows), batch_size=4, drop_last=False)
    batches = list(PackedLoader(data, order, num_workers=workers))
    assert seen(batches) == list(range(COUNT))
    assert {tuple(batch["ids"].shape) for batch in batches} == {(4, 16)}
    for batch, packs in zip(batches, order.batches(0), strict=True):
        for name, array in rows.take(packs).items():
            np.testing.assert_array_equal(batch[name], array)
            assert batch[name].numpy().dtype == array.dtype


def test_loader__plain_pytorch__shuffles_rows_as_it_does() -> None:
    rows = rows_of()
    batches = list(DataLoader(PackedDataset(rows), batch_size=5, shuffle=True))
    assert seen(batches) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 4])
def test_loader__resumed__gives_what_was_left_though_workers_were_ahead(workers: int, stop: int) -> None:
    data = PackedDataset(rows_of())
    order = PackOrder(num_packs=len(data), batch_size=3)
    whole = [[batch["samples"] for batch in PackedLoader(data, order)]]
    loader = PackedLoader(data, order, num_workers=workers)
    iteration = iter(loader)
    for _ in range(stop):
        next(iteration)
    state = loader.state_dict()
    assert state["batches_done"] == stop
    other = PackedLoader(data, order, num_workers=workers)
    other.load_state_dict(state)
    rest = [batch["samples"] for batch in other]
    assert torch.equal(torch.stack(rest), torch.stack(whole[0][stop:]))
    following = [batch["samples"] for batch in other]
    assert len(following) == len(whole[0])
    assert not torch.equal(following[0], whole[0][0])
    del iteration


def test_sampler__epochs__go_on_by_themselves_or_as_they_are_told() -> None:
    order = PackOrder(num_packs=12, batch_size=2)
    sampler = PackSampler(order)
    assert len(sampler) == 12
    first, second = list(sampler), list(sampler)
    assert first == order.batches(0).ravel().tolist()
    assert second == order.batches(1).ravel().tolist()
    sampler.set_epoch(0)
    assert list(sampler) == first
    batches = PackBatchSampler(order)
    batches.load_state_dict(sampler.state_dict(batches_done=4))
    assert list(batches) == order.batches(0)[4:].tolist()
    with pytest.raises(PackedDataError):
        batches.load_state_dict({"epoch": 0, "batches_done": 1})


def test_loader__ranks__share_out_the_samples() -> None:
    data = PackedDataset(rows_of())
    parts = [
        seen(PackedLoader(data, PackOrder(num_packs=len(data), rank=rank, num_ranks=3, drop_last=False)))
        for rank in range(3)
    ]
    assert sorted(number for part in parts for number in part) == list(range(COUNT))
    with pytest.raises(PackedDataError, match="an order of 3 packs"):
        PackedLoader(data, PackOrder(num_packs=3))


MODES = [poptorch.DataLoaderMode.Sync, pytest.param(poptorch.DataLoaderMode.Async, marks=pytest.mark.slow)]


@pytest.mark.parametrize("mode", MODES)
def test_poptorch_loader__packs__are_batches_of_a_whole_call(mode: Any) -> None:
    rows = rows_of()
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(3)
    order = PackOrder(num_packs=len(rows), batch_size=6, drop_last=False)
    sampler = PackSampler(order)
    with poptorch.DataLoader(options, PackedDataset(rows), batch_size=1, sampler=sampler, mode=mode) as loader:
        batches = [{name: tensor.clone() for name, tensor in batch.items()} for batch in loader]
    assert seen(batches) == list(range(COUNT))
    assert {tuple(batch["ids"].shape) for batch in batches} == {(6, 16)}
    np.testing.assert_array_equal(batches[1]["ids"], rows.take(order.batches(0)[1])["ids"])


def test_poptorch_loader__shuffling_itself__takes_rows() -> None:
    options = poptorch.Options().deviceIterations(2)
    batches = list(poptorch.DataLoader(options, PackedDataset(rows_of()), batch_size=2, shuffle=True, num_workers=1))
    assert {tuple(batch["ids"].shape) for batch in batches} == {(4, 16)}


def test_lazy_data__empty_rows_alone__know_their_fields() -> None:
    rows = rows_of()
    data = LazyPackedDataset(Loaded(rows), rows.packs, SHAPE, RECIPE)
    row = data[len(data)]
    assert not row["ids"].any()
    assert row["label"].tolist() == [-100] * 3
    with pytest.raises(IndexError):
        data[len(data) + 1]


def test_lazy_data__that_cannot_be__is_refused() -> None:
    rows = rows_of()
    with pytest.raises(PackMembersError, match="packs hold samples up to 99"):
        LazyPackedDataset(Loaded(rows), packs_of([[99]]), SHAPE, RECIPE)
    with pytest.raises(PackMembersError, match="up to 4 sequences, and rows have a depth of 3"):
        LazyPackedDataset(Loaded(rows), packs_of([[0, 1, 2, 3]]), SHAPE, RECIPE)
    with pytest.raises(PackedDataError, match="need a recipe with fields"):
        LazyPackedDataset(Loaded(rows), rows.packs, SHAPE, Recipe())
    lacks = LazyPackedDataset(Loaded(rows), rows.packs, SHAPE, Recipe({"ids": Field(), "mask": Field()}))
    with pytest.raises(PackedDataError, match="a loaded sample has no 'mask'"):
        lacks[0]
    long = LazyPackedDataset(Loaded(rows), packs_of([[0, 1, 2]]), RowShape(12, 3), RECIPE)
    with pytest.raises(PackMembersError, match="a row has room for 12"):
        long[0]


class Documents:
    """Samples that can be gone through again and again."""

    def __init__(self, rows: PackedRows) -> None:
        self.data = Loaded(rows)

    def __iter__(self) -> Any:
        return (self.data[number] for number in range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
def test_stream__workers_and_ranks__share_out_the_samples(workers: int) -> None:
    rows = rows_of()
    found = []
    for rank in range(2):
        stream = PackedStream(Documents(rows), SHAPE, RECIPE, window=20, rank=rank, num_ranks=2)
        batches = list(DataLoader(stream, batch_size=3, num_workers=workers))
        for batch in batches:
            there = batch["samples"] >= 0
            assert torch.equal(batch["label"][there], batch["samples"][there])
        found += seen(batches)
    assert sorted(found) == list(range(COUNT))


def test_stream__function_of_the_epoch__is_told_which() -> None:
    rows, epochs = rows_of(), []

    def samples(epoch: int) -> Any:
        epochs.append(epoch)
        return iter(Documents(rows))

    stream = PackedStream(samples, SHAPE, RECIPE, seed=1, window=1000)
    orders = []
    for epoch in (0, 5, 0):
        stream.set_epoch(epoch)
        orders.append(torch.stack([row["samples"] for row in stream]))
    assert epochs == [0, 5, 0]
    assert torch.equal(orders[0], orders[2])
    assert not torch.equal(orders[0], orders[1])


def test_stream__that_cannot_be__is_refused() -> None:
    rows = rows_of()
    with pytest.raises(PackedDataError, match="which can be gone through once"):
        PackedStream(iter(Documents(rows)), SHAPE, RECIPE)
    with pytest.raises(PackedDataError, match="rank 2 of 2"):
        PackedStream(Documents(rows), SHAPE, RECIPE, rank=2, num_ranks=2)
    with pytest.raises(PackedDataError, match="capacity for frames, of which no field"):
        PackedStream(Documents(rows), RowShape({"frames": 3}, 1), RECIPE)
    with pytest.raises(PackedDataError, match="sample 0 of the stream has no 'words'"):
        list(PackedStream(Documents(rows), SHAPE, Recipe({"words": Field()})))
    with pytest.raises(ItemSizeError):
        list(PackedStream(Documents(rows), RowShape(4, 3), RECIPE))
