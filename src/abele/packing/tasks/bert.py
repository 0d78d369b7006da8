"""BERT's pre-training: words that are masked, and whether the second sentence is the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import PackedDataError, TypeMismatchError
from abele.packing.data.derived import FirstPlaces, LossWeights, SequenceIds
from abele.packing.data.fields import Field, per_sequence
from abele.packing.data.ragged import Ragged, offsets_of
from abele.packing.data.samples import Recipe, Samples
from abele.packing.tasks.language import IGNORE, basic_derived

PREDICTIONS = "predictions"
"""The axis of masked words: rows have a capacity of it beside that of tokens."""


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Choice of masked tokens, and their replacements.

    Attributes:
        mask_id: The id of the mask.
        vocabulary: Ids from which random tokens are drawn, ``0 … vocabulary - 1``.
        proportion: Of the tokens of a sequence that may be masked; each sequence has one at least.
        masked, random: Parts of these that become the mask and a random token; the rest stays.
        most: Masked tokens of a sequence at most.
        kept_ids: Ids that are never masked, such as CLS and SEP.

    Source: BERT, arXiv 1810.04805, section 3.1 (15 %, of which 80 %, 10 % and 10 %).
    """

    mask_id: int
    vocabulary: int
    proportion: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    most: int | None = None
    kept_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.proportion <= 1 or self.masked < 0 or self.random < 0 or self.masked + self.random > 1:
            raise PackedDataError(
                f"proportion {self.proportion}, masked {self.masked} and random {self.random} are no parts of a whole"
            )
        if self.most is not None and self.most < 1:
            raise PackedDataError(f"most is at least 1, not {self.most}")


def masked_words(ids: Ragged, masking: Masking, seed: int | tuple[int, ...] = 0) -> dict[str, Ragged]:
    """Token ids with some masked, the places of those, and their ids before.

    Args:
        ids: Token ids of each sequence.
        masking: Choice of masked tokens.
        seed: Of the choice; ``(seed, epoch)`` masks other words in each epoch.

    Returns:
        ``input_ids``; ``masked_lm_positions``, places in their own sequence in rising order; ``masked_lm_ids``.

    Raises:
        PackedDataError: A sequence of which no token may be masked.
        TypeMismatchError: Ids of a type that cannot hold the mask, or all of the vocabulary.
    """
    rng = np.random.default_rng(seed)
    values = ids.own_values
    _check_ids(values, masking)
    allowed = ~np.isin(values, masking.kept_ids)
    lengths = ids.lengths
    owner = ids.sequence_of_value
    counts = np.bincount(owner, allowed, len(ids)).astype(np.int64)
    if (counts == 0).any():
        raise PackedDataError(f"sequence {np.argmax(counts == 0)} has no token that may be masked")
    wanted = np.maximum(1, np.rint(counts * masking.proportion).astype(np.int64))
    if masking.most is not None:
        wanted = np.minimum(wanted, masking.most)
    # Sorted by random keys within each sequence, tokens that may not be masked last: the first so many are taken.
    order = np.lexsort((rng.random(len(values)), ~allowed, owner))
    rank = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    chosen = np.sort(order[rank < np.repeat(wanted, lengths)])
    words = values.copy()
    draw = rng.random(len(chosen))
    words[chosen[draw < masking.masked]] = masking.mask_id
    drawn = chosen[(draw >= masking.masked) & (draw < masking.masked + masking.random)]
    words[drawn] = rng.integers(0, masking.vocabulary, len(drawn))
    offsets = offsets_of(wanted)
    return {
        "input_ids": ids.with_values(words),
        "masked_lm_positions": Ragged(rank[chosen], offsets),
        "masked_lm_ids": Ragged(values[chosen], offsets),
    }


def _check_ids(values: Array, masking: Masking) -> None:
    if values.dtype.kind not in "iu" or max(masking.mask_id, masking.vocabulary - 1) > np.iinfo(values.dtype).max:
        raise TypeMismatchError(
            f"token ids of type {values.dtype} cannot hold the mask {masking.mask_id} and all ids below "
            f"{masking.vocabulary}",
            remedy="ids in a wider integer type",
        )


def bert_pretraining_recipe(*, padding_id: int = 0, next_sentence: bool = True) -> Recipe:
    """Rows of packed BERT.

    Beside ids and positions: ``masked_lm_positions``, places in the row, and ``masked_lm_ids`` [rows, predictions];
    ``masked_lm_weights``, the number of the sequence that each prediction belongs to, 0 for none, by which losses are
    normalised by sequence; ``next_sentence_labels`` and ``cls_places`` [rows, depth].

    Source: deck 004 and arXiv 2107.02027 (`reference/packing.md` §5).
    """
    fields = {
        "input_ids": Field(padding=padding_id),
        "token_type_ids": Field(),
        "masked_lm_positions": Field(axis=PREDICTIONS, points_to="tokens"),
        "masked_lm_ids": Field(axis=PREDICTIONS, padding=IGNORE),
    }
    if next_sentence:
        fields["next_sentence_labels"] = per_sequence(padding=IGNORE)
    derive = {
        **basic_derived(),
        "masked_lm_weights": SequenceIds(PREDICTIONS),
        "loss_weights": LossWeights("masked_lm_ids", IGNORE, PREDICTIONS),
        "cls_places": FirstPlaces(),
    }
    return Recipe(fields, derive)


def bert_pretraining(
    ids: Ragged,
    masking: Masking,
    *,
    token_type_ids: Ragged | None = None,
    next_sentence_labels: npt.ArrayLike | None = None,
    padding_id: int = 0,
    seed: int | tuple[int, ...] = 0,
) -> Samples:
    """Samples of BERT's pre-training.

    Args:
        ids: Token ids of each pair of sentences, CLS first.
        masking: Choice of masked tokens.
        token_type_ids: 0 and 1 for the first and second sentence of each; None for 0 alone.
        next_sentence_labels: A class for each sequence, int[num_samples]; None to leave that task out.
        padding_id: The id of padding.
        seed: Of what is masked; ``(seed, epoch)`` for other words in each epoch.
    """
    types = ids.with_values(np.zeros(len(ids.own_values), np.int64)) if token_type_ids is None else token_type_ids
    words: Mapping[str, Any] = masked_words(ids, masking, seed)
    columns = {"input_ids": words["input_ids"], "token_type_ids": types, **words}
    if next_sentence_labels is not None:
        columns["next_sentence_labels"] = np.asarray(next_sentence_labels)
    return Samples(
        columns, bert_pretraining_recipe(padding_id=padding_id, next_sentence=next_sentence_labels is not None)
    )


def token_labels(positions: Int64, labels: Array, *, capacity: int, ignore: int = IGNORE) -> Array:
    """Masked words as a label for each token, as models without positions of predictions take them.

    Args:
        positions: ``masked_lm_positions`` of a batch, int[rows, predictions].
        labels: ``masked_lm_ids``, ``ignore`` for none; int[rows, predictions].
        capacity: Tokens of a row.
        ignore: The label of all others.

    Returns:
        int[rows, capacity].
    """
    made = np.full((len(labels), capacity), ignore, labels.dtype)
    row, slot = np.nonzero(labels != ignore)
    made[row, positions[row, slot]] = labels[row, slot]
    return made
