"""Orders of packs and batches: every pack once, whatever the ranks, and going on where another stopped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import PackedDataError, PaddingError
from abele.packing.data import (
    PackBatches,
    PackOrder,
    RowShape,
    Samples,
    accuracy_by_sequence,
    additive_mask,
    block_mask,
    pack_rows,
    packed_settings,
    sequence_weights,
    sums_by_sequence,
)
from support.examples import examples
from support.packed_data import random_ragged


@examples(15)
@given(
    packs=st.integers(1, 60),
    batch=st.integers(1, 5),
    ranks=st.integers(1, 4),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_order__ranks_of_an_epoch__share_out_all_packs(
    packs: int, batch: int, ranks: int, shuffle: bool, epoch: int
) -> None:
    orders = [
        PackOrder(num_packs=packs, batch_size=batch, shuffle=shuffle, rank=rank, num_ranks=ranks, drop_last=False)
        for rank in range(ranks)
    ]
    parts = [order.batches(epoch) for order in orders]
    assert {part.shape for part in parts} == {(orders[0].num_batches, batch)}
    taken = np.concatenate(parts, axis=None)
    assert sorted(taken[taken < packs].tolist()) == list(range(packs))
    if packs >= batch * ranks:
        whole = [
            PackOrder(num_packs=packs, batch_size=batch, rank=rank, num_ranks=ranks).batches(epoch)
            for rank in range(ranks)
        ]
        taken = np.concatenate(whole, axis=None)
        assert len(np.unique(taken)) == taken.size == packs // (batch * ranks) * batch * ranks


def test_order__seeds_and_epochs__give_other_orders_and_the_same_again() -> None:
    order = PackOrder(num_packs=50, seed=3)
    assert np.array_equal(order.batches(1), PackOrder(num_packs=50, seed=3).batches(1))
    assert not np.array_equal(order.batches(1), order.batches(2))
    assert not np.array_equal(order.batches(1), PackOrder(num_packs=50, seed=4).batches(1))
    assert PackOrder(num_packs=4, shuffle=False).batches(5).tolist() == [[0], [1], [2], [3]]


def test_order__left_over_packs__are_others_in_each_epoch() -> None:
    order = PackOrder(num_packs=7, batch_size=4)
    assert len(np.unique([order.batches(epoch) for epoch in range(20)])) == 7


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"num_packs": 0}, "num_packs is a whole number of at least 1, not 0"),
        ({"num_packs": 4, "rank": 2, "num_ranks": 2}, "rank 2 of 2 ranks"),
        ({"num_packs": 4, "batch_size": 5}, "4 packs make no step of 5 packs"),
        ({"num_packs": 4, "seed": -1}, "seed is a whole number of at least 0"),
    ],
)
def test_order__that_cannot_be__is_refused(given_: Any, words: str) -> None:
    with pytest.raises(PackedDataError) as caught:
        PackOrder(**given_)
    assert words in str(caught.value)


def rows_of(count: int = 40) -> Any:
    rng = np.random.default_rng(0)
    ids = random_ragged(rng, rng.integers(3, 12, count))
    return pack_rows(Samples({"ids": ids, "label": np.arange(count)}), RowShape(16, 3))


def test_batches__as_keras_asks__have_length_items_and_epochs() -> None:
    rows = rows_of()
    batches = PackBatches(rows, PackOrder(num_packs=len(rows), batch_size=4, drop_last=False), targets=["label"])
    inputs, label = batches[0]
    assert set(inputs) == {"ids", "sequence_ids", "position_ids", "sequence_lengths", "samples"}
    assert label.shape == (4, 3)
    first = [inputs["samples"] for inputs, _ in (batches[i] for i in range(len(batches)))]
    batches.on_epoch_end()
    second = [inputs["samples"] for inputs, _ in (batches[i] for i in range(len(batches)))]
    for epoch in (first, second):
        seen = np.concatenate(epoch, axis=None)
        assert sorted(seen[seen >= 0].tolist()) == list(range(40))
    assert not np.array_equal(first[0], second[0])
    with pytest.raises(IndexError):
        batches[len(batches)]


def test_batches__targets_and_weights__are_a_tuple() -> None:
    rows = rows_of()
    order = PackOrder(num_packs=len(rows), batch_size=2)
    inputs, targets, weights = PackBatches(rows, order, targets=["label", "ids"], weights="sequence_lengths")[0]
    assert set(targets) == {"label", "ids"}
    assert "sequence_lengths" not in inputs
    assert weights.shape == (2, 3)
    assert list(PackBatches(rows, order, inputs=["ids"])[0]) == ["ids"]
    with pytest.raises(PackedDataError, match="rows have no 'labels'; there is 'label'"):
        PackBatches(rows, order, targets=["labels"])
    with pytest.raises(PackedDataError, match="an order of 3 packs"):
        PackBatches(rows, PackOrder(num_packs=3))
    with pytest.raises(PackedDataError, match="weights come with targets"):
        PackBatches(rows, order, weights="label")


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_batches__resumed_in_the_middle__give_what_was_left(stop: int) -> None:
    rows = rows_of()
    order = PackOrder(num_packs=len(rows), batch_size=2)
    whole = PackBatches(rows, order)
    epochs = [[batch["samples"] for batch in whole] for _ in range(2)]
    part = PackBatches(rows, order)
    part.set_epoch(1)
    iteration = iter(part)
    for _ in range(stop):
        next(iteration)
    state = part.state_dict()
    other = PackBatches(rows, order)
    other.load_state_dict(state)
    rest = [batch["samples"] for batch in other]
    np.testing.assert_array_equal(rest, epochs[1][stop:])
    assert other.epoch == 2
    with pytest.raises(PackedDataError, match="the state is of seed 0, and there is 1"):
        PackBatches(rows, PackOrder(num_packs=len(rows), batch_size=2, seed=1)).load_state_dict(state)
    with pytest.raises(PackedDataError, match="'epoch', a whole number"):
        other.load_state_dict({})
    with pytest.raises(PackedDataError, match="999 batches done"):
        other.load_state_dict({**state, "batches_done": 999})


IDS = np.array([[1, 1, 1, 2, 2, 0]])


def test_block_mask__of_the_deck__is_its_matrix_and_a_block_of_padding() -> None:
    expected = np.zeros((6, 6), bool)
    expected[:3, :3] = expected[3:5, 3:5] = expected[5, 5] = True
    np.testing.assert_array_equal(block_mask(IDS)[0], expected)
    causal = block_mask(IDS, positions=[[0, 1, 2, 0, 1, 0]])[0]
    np.testing.assert_array_equal(causal, expected & np.tri(6, dtype=bool))
    assert not block_mask(IDS, padding_sees_padding=False)[0, 5].any()
    with pytest.raises(PackedDataError, match="positions of shape"):
        block_mask(IDS, positions=[[0]])


def test_additive_mask__in_float16__is_the_decks() -> None:
    added = additive_mask(block_mask(IDS))
    assert added.dtype == np.float16
    assert set(np.unique(added)) == {-1000.0, 0.0}
    assert np.isneginf(additive_mask(block_mask(IDS), value=-np.inf)).sum() == 36 - 14
    with pytest.raises(PaddingError, match=r"-1e\+09 becomes -inf"):
        additive_mask(block_mask(IDS), value=-1e9)
    assert additive_mask(block_mask(IDS), value=-1e9, dtype=np.float32).min() == np.float32(-1e9)
    with pytest.raises(PaddingError):
        additive_mask(block_mask(IDS), value=1000)
    with pytest.raises(PackedDataError, match="a mask is boolean"):
        additive_mask(IDS)  # type: ignore[arg-type]


def test_sums_and_weights__by_sequence__are_those_of_a_loop() -> None:
    rng = np.random.default_rng(1)
    ids = np.sort(rng.integers(0, 4, (5, 20)), 1)
    values, counted = rng.random((5, 20)), rng.random((5, 20)) < 0.4
    sums, weights = sums_by_sequence(values, ids, 3), sequence_weights(ids, counted, 3)
    for row in range(5):
        for slot in range(3):
            own = ids[row] == slot + 1
            assert sums[row, slot] == pytest.approx(values[row][own].sum())
            chosen = own & counted[row]
            np.testing.assert_allclose(weights[row][chosen], 1 / max(1, chosen.sum()), rtol=1e-6)
    assert not weights[~counted | (ids == 0)].any()
    with pytest.raises(PackedDataError, match="sequence ids from 0 to 3 in rows of 2"):
        sums_by_sequence(values, ids, 2)
    with pytest.raises(PackedDataError, match="values of shape"):
        sums_by_sequence(values[:2], ids, 3)


def test_accuracy__by_sequence__counts_each_alike() -> None:
    labels = np.array([[5, 6, 7, 8, -100, -100]])
    found = accuracy_by_sequence([[5, 6, 0, 8, 1, 1]], labels, IDS, depth=3)
    np.testing.assert_allclose(found, [[2 / 3, 1, np.nan]])
    assert np.nanmean(found) == pytest.approx(5 / 6)


def test_packed_settings__factor_of_wikipedia__follow_the_deck() -> None:
    kept = packed_settings(2, betas=(0.9, 0.999), accumulation=8)
    assert (kept.accumulation, kept.betas, kept.sequences_per_update_ratio) == (4, (0.9, 0.999), 1)
    powers = packed_settings(1.996, betas=(0.9, 0.999), accumulation=8, keep_batch=False)
    assert powers.accumulation == 8
    np.testing.assert_allclose(powers.betas, (0.9**1.996, 0.999**1.996))
    odd = packed_settings(2, betas=(0.9,), accumulation=1)
    assert odd.accumulation == 1
    assert odd.betas[0] == pytest.approx(0.81)
    for wrong in (
        {"factor": 0.9},
        {"factor": 2, "betas": (1.0,)},
        {"factor": 2, "accumulation": 0},
        {"factor": float("nan")},
    ):
        with pytest.raises(PackedDataError):
            packed_settings(**wrong)  # type: ignore[arg-type]
