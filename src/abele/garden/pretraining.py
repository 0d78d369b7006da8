"""Samples of BERT's pre-training: two stretches of text, tokens masked, and whether the stretches are in order.

A sequence is ``[CLS] first [SEP] second [SEP]``: text of one file, cut in two, in half of the sequences the wrong way
round. Its tokens are masked as BERT's are.

Source: Devlin et al., BERT (2019), section 3.1; order of segments: Lan et al., ALBERT (2020), section 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.garden.sources import LibraryModule
from abele.packing import PackingPlan
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Samples
from abele.packing.packs import Packs
from abele.packing.tasks.bert import Masking, bert_pretraining

# Text as numbers of words: a vocabulary of the commonest pieces of a library's source.

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNKNOWN, FIRST, SEPARATOR, MASK = range(len(SPECIAL))
_PIECE = re.compile(r"[A-Za-z]+|\d|[^\sA-Za-z\d]|\n")
"""Words without digits and underscores, single digits and signs, ends of lines."""


@dataclass(frozen=True)
class Corpus:
    """The pieces of some files, one file after the other.

    Attributes:
        pieces: Numbers of pieces, [num_pieces].
        ends: End of the file of each piece, [num_pieces].
        words: The pieces by number, :data:`SPECIAL` ones first.
    """

    pieces: Int64
    ends: Int64
    words: tuple[str, ...]

    @classmethod
    def of(cls, files: Sequence[LibraryModule], vocabulary: int, words: Sequence[str] = ()) -> Corpus:
        """The pieces of ``files``.

        Args:
            files: The files.
            vocabulary: Pieces that get a number; the commonest ones, the rest being ``[UNK]``.
            words: The pieces by number, as another corpus has them; then none are counted.
        """
        cut = [_PIECE.findall(file.text) for file in files]
        sizes = np.array([len(pieces) for pieces in cut], np.int64)
        found, numbers = np.unique(np.concatenate([np.array(p, dtype=np.str_) for p in cut]), return_inverse=True)
        if words:
            known = {word: number for number, word in enumerate(words)}
            table = np.array([known.get(word, UNKNOWN) for word in found.tolist()], np.int64)
        else:
            kept = np.argsort(-np.bincount(numbers), kind="stable")[: vocabulary - len(SPECIAL)]
            table = np.full(len(found), UNKNOWN, np.int64)
            table[kept] = len(SPECIAL) + np.arange(len(kept))
            words = (*SPECIAL, *found[kept].tolist())
        return cls(table[numbers], np.repeat(np.cumsum(sizes), sizes), tuple(words))

    def spans(self, sizes: Int64, rng: np.random.Generator) -> Int64:
        """Begins of stretches of ``sizes`` pieces, drawn at random, each inside of one file; [num_stretches].

        Raises:
            ValueError: No file is as long as the longest.
        """
        fits = self.ends - np.arange(len(self.ends))
        if sizes.max(initial=0) > fits.max(initial=0):
            raise ValueError(f"stretches of {sizes.max()} pieces in files of at most {fits.max(initial=0)}")
        begins = np.full(len(sizes), -1, np.int64)
        while (left := np.flatnonzero(begins < 0)).size:
            drawn = rng.integers(0, len(fits), len(left))
            begins[left] = np.where(fits[drawn] >= sizes[left], drawn, -1)
        return begins


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
