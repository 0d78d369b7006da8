"""Text as samples of BERT's pre-training, of any lengths."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.garden.packed_bert import (
    FIRST,
    LONGEST,
    MASK,
    SEPARATOR,
    SPECIAL,
    UNKNOWN,
    Corpus,
    drawn_packs,
    drawn_sequences,
    histogram,
    one_each,
    sequences,
)
from abele.garden.sources import LibraryModule
from abele.packing import SizeHistogram, pack

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FILES = [LibraryModule(name, False, " ".join(LETTERS * 30)) for name in ("one", "two")]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.of(FILES, 64)


def test_corpus__pieces__are_words_digits_signs_and_ends_of_lines() -> None:
    found = Corpus.of([LibraryModule("m", False, "if x_1 == 42:\n\treturn x_1\n")], 100)
    words = [found.words[number] for number in found.pieces]
    assert words == ["if", "x", "_", "1", "=", "=", "4", "2", ":", "\n", "return", "x", "_", "1", "\n"]
    assert found.words[: len(SPECIAL)] == SPECIAL


def test_corpus__small_vocabulary__keeps_the_commonest() -> None:
    found = Corpus.of([LibraryModule("m", False, "a a a b b c")], len(SPECIAL) + 2)
    assert found.words[len(SPECIAL) :] == ("a", "b")
    assert found.pieces[-1] == UNKNOWN
    again = Corpus.of([LibraryModule("n", False, "c a")], 0, found.words)
    assert again.pieces.tolist() == [UNKNOWN, found.pieces[0]]


def test_spans__longer_than_every_file__are_refused(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="stretches of 5000 pieces in files of at most 780"):
        corpus.spans(np.array([5, 5000]), np.random.default_rng(0))


@given(st.lists(st.integers(5, 780), min_size=1, max_size=8), st.integers(0, 1000))
def test_sequences__any_lengths__are_text_of_one_file_cut_in_two(lengths: list[int], seed: int) -> None:
    corpus = Corpus.of(FILES, 64)
    ids, segments, in_order = sequences(corpus, np.array(lengths), np.random.default_rng(seed))
    assert ids.lengths.tolist() == lengths
    for pieces, sides, order in zip(ids, segments, in_order, strict=True):
        assert pieces[0] == FIRST
        assert pieces[-1] == SEPARATOR
        (middle, _) = np.flatnonzero(pieces == SEPARATOR)
        assert np.array_equal(sides, np.arange(len(pieces)) > middle)
        halves = pieces[1:middle], pieces[middle + 1 : -1]
        text = "".join(corpus.words[n] for n in np.concatenate(halves if order else halves[::-1]))
        # The text of both files is the alphabet, again and again: any stretch of one of them is in this.
        assert text in LETTERS * 31


def test_sequences__length_below_five__is_refused(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="sequences of 4 tokens: 5 are the fewest"):
        drawn_sequences(corpus, np.array([9, 4]), 0)


def test_drawn_sequences__masks__are_of_text_and_a_seventh_of_it(corpus: Corpus) -> None:
    samples = drawn_sequences(corpus, np.full(200, 103), 0)
    places, labels = samples.columns["masked_lm_positions"], samples.columns["masked_lm_ids"]
    assert (places.lengths == 15).all()
    assert not np.isin(labels.values, (FIRST, SEPARATOR)).any()
    ids = samples.columns["input_ids"]
    read = ids.values[np.repeat(ids.offsets[:-1], 15) + places.values]
    assert (read == MASK).mean() == pytest.approx(0.8, abs=0.03)
    assert (read == labels.values).mean() == pytest.approx(0.1, abs=0.03)
    again = drawn_sequences(corpus, np.full(200, 103), 0)
    assert np.array_equal(again.columns["input_ids"].values, ids.values)


def test_drawn_packs__of_a_plan__are_its_packs_in_its_shares() -> None:
    plan = pack(SizeHistogram.of(np.repeat([3, 4, 7, 10], [30, 30, 20, 50])), 10, depth=3)
    lengths, packs = drawn_packs(plan, 4000, 0)
    assert sorted(packs.items.tolist()) == list(range(len(lengths)))
    loads = np.add.reduceat(lengths[packs.items], packs.begins[:-1])
    assert loads.max() <= 10
    assert len(lengths) / len(packs) == pytest.approx(plan.factor, rel=0.02)
    for length, count in zip(plan.histogram.lengths, plan.histogram.counts, strict=True):
        assert (lengths == length).mean() == pytest.approx(count / plan.num_items, abs=0.02)
    # Rows of their own mix the packs: numbers of items do not follow those of packs.
    assert abs(np.corrcoef(packs.items, packs.pack_of_slot)[0, 1]) < 0.1


def test_one_each__rows__have_one_sequence() -> None:
    assert one_each(3).depths.tolist() == [1, 1, 1]


def test_histogram__described__adds_up() -> None:
    found = histogram(1_000_000)
    assert len(found) == LONGEST
    assert found.sum() == 1_000_000
    assert found.min() >= 0
    assert found[:4].sum() == 0


@pytest.mark.shared
def test_histogram__described__is_close_to_the_published_one(shared_data: Path) -> None:
    with (shared_data / "data" / "length_histograms.csv").open(newline="") as file:
        published = np.array([int(row["wikipedia_512"]) for row in csv.DictReader(file)], float)
    described = histogram(int(published.sum())).astype(float)
    below = [np.cumsum(counts) / counts.sum() for counts in (published, described)]
    assert np.abs(below[0] - below[1]).max() < 0.0025
    lengths = np.arange(1, LONGEST + 1)
    means = [float(lengths @ counts / counts.sum()) / LONGEST for counts in (published, described)]
    assert means[1] == pytest.approx(means[0], abs=0.0003)
    packed = pack(SizeHistogram.of_kinds(lengths, described.astype(int)), LONGEST, depth=3, method="spfhp")
    # 1.790 is what the published histogram packs to.
    assert packed.factor == pytest.approx(1.790, rel=0.003)
