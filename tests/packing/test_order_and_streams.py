"""Packing in order and as a stream, splitting, and shares of ranks."""

from __future__ import annotations

from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOptionError, ItemSizeError, PackingError
from abele.packing import (
    Packs,
    PackStream,
    SplitPacks,
    pack,
    pack_in_order,
    pack_items,
    pack_stream,
    share_packs,
)

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=80)
DEPTHS = st.one_of(st.none(), st.integers(1, 5))


def next_fit(lengths: list[int], capacity: int, depth: int | None) -> list[list[int]]:
    packs: list[list[int]] = [[]]
    for number, length in enumerate(lengths):
        filled = sum(lengths[item] for item in packs[-1])
        if filled + length > capacity or (depth is not None and len(packs[-1]) == depth):
            packs.append([])
        packs[-1].append(number)
    return packs


@given(lengths=LENGTHS, depth=DEPTHS)
def test_pack_in_order__no_window__is_next_fit(lengths: list[int], depth: int | None) -> None:
    packs = pack_in_order(lengths, 20, depth=depth)
    assert [pack.tolist() for pack in packs] == next_fit(lengths, 20, depth)


@given(lengths=LENGTHS, depth=DEPTHS, window=st.integers(1, 30))
def test_pack_in_order__window__moves_items_no_further(lengths: list[int], depth: int | None, window: int) -> None:
    packs = pack_in_order(lengths, 20, depth=depth, window=window)
    assert sorted(packs.items.tolist()) == list(range(len(lengths)))
    assert (np.abs(packs.items - np.arange(len(lengths))) < window).all()
    firsts = [int(pack[0]) for pack in packs]
    assert firsts == sorted(firsts)
    for items in packs:
        assert items.tolist() == sorted(items.tolist())
        assert sum(lengths[item] for item in items) <= 20


def test_pack_in_order__graphs__keeps_both_capacities() -> None:
    sizes = np.random.default_rng(0).integers(1, 10, (500, 2))
    packs = pack_in_order(sizes, (20, 30), depth=6)
    assert np.array_equal(packs.items, np.arange(500))
    assert (np.add.reduceat(sizes, packs.begins[:-1], axis=0) <= [20, 30]).all()


@settings(max_examples=30)
@given(
    chunks=st.lists(st.lists(st.integers(1, 20), max_size=30), max_size=8),
    depth=DEPTHS,
    window=st.integers(1, 25),
    seed=st.one_of(st.none(), st.integers(0, 3)),
)
def test_stream__chunks_of_any_size__packs_each_item_once(
    chunks: list[list[int]], depth: int | None, window: int, seed: int | None
) -> None:
    stream = PackStream(20, depth=depth, window=window, seed=seed)
    made: list[list[int]] = []
    seen = 0
    for chunk in chunks:
        seen += len(chunk)
        made += [items.tolist() for items in stream.push(chunk)]
        # No more than a window waits.
        assert seen - sum(map(len, made)) < window
    made += [items.tolist() for items in stream.finish()]
    lengths = [length for chunk in chunks for length in chunk]
    assert sorted(item for items in made for item in items) == list(range(len(lengths)))
    assert all(sum(lengths[item] for item in items) <= 20 for items in made)
    assert depth is None or all(len(items) <= depth for items in made)
    assert len(stream.finish()) == 0


def test_stream__window_of_2000_at_depth_3__is_within_one_percent_of_all_at_once() -> None:
    lengths = np.random.default_rng(4).integers(5, 100, 6_000)
    stream = PackStream(128, depth=3, window=2_000)
    packs = len(stream.push(lengths)) + len(stream.finish())
    assert packs <= 1.01 * pack(lengths, 128, depth=3).num_packs


def test_pack_stream__endless_samples__yields_packs_as_it_goes() -> None:
    samples = ("x" * (1 + 7 * number % 50) for number in count())
    packs = list(islice(pack_stream(samples, 64, window=100), 40))
    assert all(0 < sum(map(len, samples)) <= 64 for samples in packs)
    assert sum(map(len, packs)) >= 99


@pytest.mark.parametrize("num_samples", [0, 1, 100, 101, 250])
def test_pack_stream__finite_samples__yields_all_of_them(num_samples: int) -> None:
    samples = [list(range(1 + 7 * number % 50)) for number in range(num_samples)]
    packs = list(pack_stream(samples, 64, window=100, seed=1))
    assert sorted(len(sample) for samples in packs for sample in samples) == sorted(map(len, samples))


def test_stream__item_over_the_capacity__takes_nothing() -> None:
    stream = PackStream(10, window=4)
    with pytest.raises(ItemSizeError):
        stream.push([3, 11])
    assert stream.num_items == 0
    assert len(stream.push([3, 4])) == 0


@pytest.mark.parametrize("window", [0, -1, 2.5])
def test_stream__wrong_window__is_named(window: int) -> None:
    with pytest.raises(PackingError, match="a window of items"):
        PackStream(10, window=window)


@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=40))
def test_split__long_items__are_covered_piece_by_piece(lengths: list[int]) -> None:
    packs = pack_items(lengths, 20, too_long="split", seed=0)
    if max(lengths) <= 20:
        assert type(packs) is Packs
        return
    assert isinstance(packs, SplitPacks)
    covered = [np.zeros(length, int) for length in lengths]
    for item, offset, length in zip(packs.items, packs.offsets, packs.lengths, strict=True):
        covered[item][offset : offset + length] += 1
    assert all((marks == 1).all() for marks in covered)
    assert np.add.reduceat(packs.lengths, packs.begins[:-1]).max() <= 20


def test_split__too_many_pieces__is_refused() -> None:
    with pytest.raises(PackingError, match="pieces, 1,073,741,824 are allowed"):
        pack_items([2**39], 1, too_long="split")


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ([3, 4, 4], "there are 1 items of size 3, the plan has 2"),
        ([3, 3, 6], "item 2 has size 6, of which the plan has none"),
        ([[3, 3]], "items have 2 sizes each, the plan is for 1"),
    ],
)
def test_assign__other_items__are_refused(others: list[int], text: str) -> None:
    with pytest.raises(PackingError) as raised:
        pack([3, 4, 3], 10).assign(others)
    assert text in str(raised.value)


def test_assign__long_lengths__are_found_without_a_table() -> None:
    lengths = np.random.default_rng(5).integers(1, 2**39, 200)
    packs = pack(lengths, 2**39).assign(lengths)
    assert np.array_equal(np.sort(packs.items), np.arange(200))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("work", ["tokens", "attention"])
def test_share_packs__any_work__is_balanced_in_each_step(work: str, batch: int) -> None:
    lengths = np.random.default_rng(6).integers(1, 512, 40_000)
    packs = pack_items(lengths, 512, seed=0)
    shares = share_packs(packs, lengths, 8, batch=batch, work=work, leftover="drop", seed=1)  # type: ignore[arg-type]
    assert shares.packs.shape[1:] == (8, batch)
    used = np.concatenate([shares.packs.reshape(-1), shares.left_out])
    assert np.array_equal(np.sort(used), np.arange(len(packs)))
    assert len(shares.of_rank(3)) == len(shares.packs) * batch
    cost = np.add.reduceat(lengths[packs.items].astype(float) ** (2 if work == "attention" else 1), packs.begins[:-1])
    assert np.array_equal(shares.work, cost[shares.packs].sum(axis=2))
    assert shares.imbalance < 0.01
    by_rank = shares.work.sum(axis=0)
    assert by_rank.max() < 1.002 * by_rank.mean()


@given(
    num_packs=st.integers(1, 400),
    ranks=st.integers(1, 9),
    batch=st.integers(1, 3),
    seed=st.one_of(st.none(), st.just(1)),
)
def test_share_packs__repeat__gives_each_pack_to_someone(
    num_packs: int, ranks: int, batch: int, seed: int | None
) -> None:
    packs = Packs(np.arange(num_packs), np.arange(num_packs + 1))
    work = np.random.default_rng(num_packs).random(num_packs)
    shares = share_packs(packs, np.ones(num_packs, int), ranks, batch=batch, work=work, leftover="repeat", seed=seed)
    assert set(shares.packs.reshape(-1).tolist()) == set(range(num_packs))
    assert shares.packs.size - num_packs < ranks * batch


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({}, PackingError, "10 packs make 3 steps of 3, and 1 are left"),
        ({"work": "flops"}, InvalidOptionError, "work is 'tokens'"),
        ({"work": np.ones(3)}, PackingError, "the work of 10 packs"),
        ({"work": np.full(10, np.nan)}, PackingError, "with NaN or infinity"),
        ({"leftover": "keep"}, InvalidOptionError, "leftover is"),
        ({"batch": 0}, PackingError, "a batch of packs is at least 1"),
        ({"batch": 4, "leftover": "drop"}, PackingError, "10 packs make 0 steps of 12"),
    ],
)
def test_share_packs__wrong_argument__is_named(options: dict[str, object], error: type[Exception], text: str) -> None:
    packs = Packs(np.arange(10), np.arange(11))
    with pytest.raises(error) as raised:
        share_packs(packs, np.ones(10, int), 3, **options)  # type: ignore[arg-type]
    assert text in str(raised.value)


def test_share_packs__fewer_sizes_than_items__is_named() -> None:
    with pytest.raises(PackingError, match="packs have item 9, there are 4 sizes"):
        share_packs(Packs(np.arange(10), np.arange(11)), np.ones(4, int), 2)
