"""Samples of BERT's pre-training: two stretches of text, tokens masked, and whether the stretches are in order.

A sequence is ``[CLS] first [SEP] second [SEP]``: text of one file, cut in two, in half of the sequences the wrong way
round. Its tokens are masked as BERT's are.

Source: Devlin et al., BERT (2019), section 3.1; order of segments: Lan et al., ALBERT (2020), section 3.1.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.garden.pieces import FIRST, MASK, PAD, SEPARATOR, Corpus
from abele.packing import PackingPlan
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Samples
from abele.packing.packs import Packs
from abele.packing.tasks.bert import Masking, bert_pretraining

SHORTEST = 5
"""Tokens of the shortest sequence: one of each stretch, and three that are special."""


def drawn_packs(plan: PackingPlan, count: int, seed: int) -> tuple[Int64, Packs]:
    """Packs drawn at random from those of a plan, and the lengths of their items: a sample of a large set.

    The items of the packs are numbered at random, so that rows of their own, in the order of numbers, mix all packs.

    Returns:
        Lengths of the items, [num_items], and the ``count`` packs of them.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(plan.counts), count, p=plan.counts / plan.num_packs)
    depths = plan.strategies.depths[chosen]
    begins = np.concatenate([[0], np.cumsum(depths)])
    slot = np.arange(begins[-1]) - np.repeat(begins[:-1], depths)
    kinds = plan.strategies.items[np.repeat(plan.strategies.begins[chosen], depths) + slot]
    number = rng.permutation(len(kinds))
    lengths = np.empty(len(kinds), np.int64)
    lengths[number] = plan.histogram.lengths[kinds]
    return lengths, Packs(number, begins)


def one_each(count: int) -> Packs:
    """A row of its own for each sequence."""
    return Packs(np.arange(count), np.arange(count + 1))


def drawn_sequences(corpus: Corpus, lengths: Int64, seed: int) -> Samples:
    """Sequences of ``lengths`` tokens, of text drawn at random, with what BERT is to guess.

    Raises:
        ValueError: A length is below :data:`SHORTEST`, or beyond the longest file.
    """
    ids, segments, in_order = sequences(corpus, lengths, np.random.default_rng(seed))
    masking = Masking(mask_id=MASK, vocabulary=len(corpus.words), kept_ids=(FIRST, SEPARATOR))
    return bert_pretraining(
        ids, masking, token_type_ids=segments, next_sentence_labels=in_order, padding_id=PAD, seed=(seed, 1)
    )


def sequences(corpus: Corpus, lengths: Int64, rng: np.random.Generator) -> tuple[Ragged, Ragged, Int64]:
    """Pieces and segments of sequences, and 1 where their stretches stand as in the text."""
    if lengths.min(initial=SHORTEST) < SHORTEST:
        raise ValueError(f"sequences of {lengths.min()} tokens: {SHORTEST} are the fewest")
    content = lengths - 3
    starts = corpus.spans(content, rng)
    cut = 1 + (rng.random(len(lengths)) * (content - 1)).astype(np.int64)
    in_order = rng.integers(0, 2, len(lengths))
    whose = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(whose)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    # Stretches that change places are the text, turned round by the first one.
    turn, first = np.where(in_order, 0, cut), np.where(in_order, cut, content - cut)
    in_second = place > first[whose] + 1
    number = place - 1 - in_second
    pieces = corpus.pieces[starts[whose] + (number + turn[whose]) % content[whose]]
    pieces[place == 0] = FIRST
    pieces[(place == first[whose] + 1) | (place == lengths[whose] - 1)] = SEPARATOR
    return Ragged.of_lengths(pieces, lengths), Ragged.of_lengths(in_second.astype(np.int64), lengths), in_order
