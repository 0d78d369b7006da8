"""Small windows of streams: packs filled by prices, and how often prices are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.packing import PackStream, SizeHistogram, pack, stream
from abele.packing.histogram_fit import num_packs
from abele.packing.knapsack import Knapsack
from support.examples import examples

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=60)
DEPTHS = st.one_of(st.none(), st.integers(1, 5))


@given(lengths=LENGTHS, depth=DEPTHS, seed=st.integers(0, 2**32))
@examples(15)
def test_priced_fit__any_prices__holds_each_item_once_within_limits(
    lengths: list[int], depth: int | None, seed: int
) -> None:
    histogram = SizeHistogram.of(lengths)
    knapsack = Knapsack.of(histogram, 20, depth)
    prices = np.random.default_rng(seed).random(len(histogram.counts))
    groups = stream.priced_fit(knapsack, histogram.counts, prices)
    held = np.zeros(len(histogram.counts), np.int64)
    for group in groups:
        assert sum(times for _, times in group.runs) == group.depth <= knapsack.depth
        assert sum(int(histogram.lengths[kind]) * times for kind, times in group.runs) <= 20
        for kind, times in group.runs:
            held[kind] += times * group.count
    assert np.array_equal(held, histogram.counts)


@given(windows=st.lists(LENGTHS, min_size=1, max_size=6), depth=DEPTHS)
@examples(10)
def test_price_book__any_windows__proves_no_more_than_they_need(windows: list[list[int]], depth: int | None) -> None:
    book = stream.PriceBook(20, depth)
    for lengths in windows:
        histogram = SizeHistogram.of(lengths)
        groups, bound = book.pack(histogram)
        assert bound <= pack(histogram, 20, depth=depth).num_packs
        assert bound <= num_packs(groups)
        assert sum(group.depth * group.count for group in groups) == len(lengths)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Items of each programme that is solved for prices."""
    sizes: list[int] = []

    def counted(knapsack: Any, counts: Any, *given: Any, **named: Any) -> Any:
        sizes.append(int(counts.sum()))
        return plain(knapsack, counts, *given, **named)

    plain = stream.generate
    monkeypatch.setattr(stream, "generate", counted)
    return sizes


def test_stream__small_windows_with_a_depth__are_near_all_at_once_with_few_programmes(solved: list[int]) -> None:
    lengths = np.random.default_rng(4).integers(5, 100, 8_000)
    stream = PackStream(128, depth=3, window=500)
    packs = len(stream.push(lengths)) + len(stream.finish())
    assert packs <= 1.01 * pack(lengths, 128, depth=3).num_packs
    # Sixteen windows and more: prices at the first, at four times as many items and at sixteen times.
    assert 1 <= len(solved) <= 4


def test_stream__whose_lengths_change__is_priced_anew(solved: list[int]) -> None:
    generator = np.random.default_rng(5)
    halves = generator.integers(5, 30, 2_000), generator.integers(40, 100, 2_000)
    stream = PackStream(128, depth=4, window=500)
    packs = sum(len(stream.push(half)) for half in halves) + len(stream.finish())
    apart = sum(pack(half, 128, depth=4).num_packs for half in halves)
    assert packs <= 1.02 * apart
    assert len(solved) >= 2


def test_stream__small_windows_without_a_depth__go_by_best_fit(solved: list[int]) -> None:
    lengths = np.random.default_rng(6).integers(5, 60, 4_000)
    stream = PackStream(512, window=1_000)
    packs = len(stream.push(lengths)) + len(stream.finish())
    assert packs <= 1.01 * pack(lengths, 512).num_packs
    assert solved == []
