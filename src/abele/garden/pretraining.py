"""Samples of BERT's pre-training: two stretches of text, tokens masked, and whether the stretches are in order.

A sequence is ``[CLS] first [SEP] second [SEP]``: text of one file, cut in two, in half of the sequences the wrong way
round. Of its tokens 15 % are to be guessed: 80 % of those are masked, 10 % are other words, 10 % are left as they are.

Source: Devlin et al., BERT (2019), section 3.1; order of segments: Lan et al., ALBERT (2020), section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.garden.pieces import FIRST, MASK, SEPARATOR, SPECIAL, UNKNOWN, Corpus

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

MASKED_SHARE = 0.15
SHORTEST = 5
"""Tokens of the shortest sequence: one of each stretch, and three that are special."""
_MASK, _OTHER = 0.8, 0.1


def masked_tokens(lengths: I64) -> I64:
    """Tokens to be guessed of sequences of such lengths: 15 % of them, one at least."""
    return np.maximum(1, np.rint(MASKED_SHARE * lengths)).astype(np.int64)


@dataclass(frozen=True)
class PretrainingSequences:
    """Sequences one after the other, as a model reads them, with what it is to guess.

    Attributes:
        tokens: Numbers of pieces, [num_tokens].
        segments: 0 up to the first ``[SEP]``, then 1, [num_tokens].
        begins: Where sequences begin, and where the last one ends, [num_sequences + 1].
        places: Which tokens are to be guessed, ascending, [num_masked].
        labels: What they were, [num_masked].
        in_order: 1 where the stretches stand as in the text, [num_sequences].
    """

    tokens: I64
    segments: I64
    begins: I64
    places: I64
    labels: I64
    in_order: I64

    @property
    def lengths(self) -> I64:
        """Tokens of each sequence."""
        return np.diff(self.begins)

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.in_order)

    @classmethod
    def draw(cls, corpus: Corpus, lengths: I64, seed: int) -> PretrainingSequences:
        """Sequences of ``lengths`` tokens, of text drawn at random.

        Raises:
            ValueError: A length is below :data:`SHORTEST`.
        """
        if lengths.min(initial=SHORTEST) < SHORTEST:
            raise ValueError(f"sequences of {lengths.min()} tokens: {SHORTEST} are the fewest")
        rng = np.random.default_rng(seed)
        content = lengths - 3
        starts = corpus.spans(content, rng)
        cut = 1 + (rng.random(len(lengths)) * (content - 1)).astype(np.int64)
        in_order = rng.integers(0, 2, len(lengths))
        begins = np.concatenate([[0], np.cumsum(lengths)])
        whose = np.repeat(np.arange(len(lengths)), lengths)
        place = np.arange(begins[-1]) - begins[whose]
        # Stretches that change places are the text, turned round by the first one.
        turn, first = np.where(in_order, 0, cut), np.where(in_order, cut, content - cut)
        in_second = place > first[whose] + 1
        number = place - 1 - in_second
        tokens = corpus.pieces[starts[whose] + (number + turn[whose]) % content[whose]]
        tokens[place == 0] = FIRST
        tokens[(place == first[whose] + 1) | (place == lengths[whose] - 1)] = SEPARATOR
        places = _chosen(tokens, whose, masked_tokens(lengths), begins, rng)
        labels = tokens[places]
        fate, others = rng.random(len(places)), rng.integers(len(SPECIAL), len(corpus.words), len(places))
        tokens[places] = np.where(fate < _MASK, MASK, np.where(fate < _MASK + _OTHER, others, labels))
        return cls(tokens, in_second.astype(np.int64), begins, places, labels, in_order)


def _chosen(tokens: I64, whose: I64, counts: I64, begins: I64, rng: np.random.Generator) -> I64:
    """Places of so many tokens of each sequence, drawn at random, ascending: no special ones, known ones first."""
    rank = rng.random(len(tokens)) + (tokens == UNKNOWN) + 2 * ((tokens == FIRST) | (tokens == SEPARATOR))
    order = np.lexsort((rank, whose))
    number = np.arange(len(tokens)) - begins[whose]
    taken = (number < counts[whose]) & (rank[order] < 2)
    found: I64 = np.sort(order[taken])
    return found
