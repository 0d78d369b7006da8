"""Ways to cut rows of scores into blocks: they cover all rows and every key that a row sees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.network.score_blocks import GRAIN, MOST_BLOCKS, MOST_SIZES, RowBlocks, blockings


def by_id(lengths: list[int]) -> np.ndarray:
    ids = np.repeat(np.arange(len(lengths)), lengths)
    return np.equal(ids[:, None], ids)


def check(visible: np.ndarray, way: RowBlocks) -> None:
    assert [b.begin for b in way.blocks[1:]] == [b.end for b in way.blocks[:-1]]
    assert (way.blocks[0].begin, way.blocks[-1].end) == (0, len(visible))
    covered = np.zeros_like(visible)
    for block in way.blocks:
        assert 0 <= block.low < block.high <= visible.shape[1]
        covered[block.begin : block.end, block.low : block.high] = True
    assert not (visible & ~covered).any()
    assert covered.sum() == way.scores < visible.size
    assert sorted(b for same in way.by_size for b in same) == list(way.blocks)
    assert len(way.blocks) <= MOST_BLOCKS
    assert len(way.by_size) <= MOST_SIZES


@given(st.integers(1, 90), st.integers(1, 90), st.randoms(use_true_random=False))
def test_blockings__any_mask__cover_what_is_seen(rows: int, keys: int, random) -> None:  # type: ignore[no-untyped-def]
    low = np.array([random.randrange(keys) for _ in range(rows)])
    high = np.array([random.randrange(keys + 1) for _ in range(rows)])
    key = np.arange(keys)
    visible = (low[:, None] <= key) & (key < high[:, None])
    for way in blockings(visible):
        check(visible, way)


@pytest.mark.parametrize("lengths", [[64, 64], [32, 32, 32, 32], [16] * 8, [100, 20, 8]])
def test_blockings__sequences__are_blocks_of_their_own(lengths: list[int]) -> None:
    visible = by_id(lengths)
    best = blockings(visible)[0]
    check(visible, best)
    whole = [-(-n // GRAIN) * GRAIN for n in lengths]
    assert best.scores <= sum(n * (w + GRAIN) for n, w in zip(lengths, whole, strict=True))
    if len(set(lengths)) == 1:
        assert len(best.by_size) == 1
        assert best.scores == sum(n * n for n in lengths)


def test_blockings__window__has_a_way_with_one_size() -> None:
    place = np.arange(128)
    ways = blockings(abs(place[:, None] - place) <= 8)
    assert any(len(way.by_size) == 1 and len(way.blocks) > 1 for way in ways)


@pytest.mark.parametrize("visible", [np.ones((64, 64), bool), np.ones((8, 8), bool), np.tri(8, dtype=bool)])
def test_blockings__nothing_to_leave_out__are_none(visible: np.ndarray) -> None:
    assert blockings(visible) == []


def test_blockings__rows_that_see_nothing__have_keys_nevertheless() -> None:
    (way,) = {b for b in blockings(np.zeros((32, 64), bool)) if len(b.blocks) == 1}
    assert way.blocks[0].size == (32, GRAIN)
