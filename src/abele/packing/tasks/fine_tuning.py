"""BERT's fine-tuning: spans of answers (SQuAD), and classes or scores of sequences (GLUE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import PackedDataError
from abele.packing.data.derived import FirstPlaces
from abele.packing.data.fields import Field, per_sequence
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Recipe, Samples
from abele.packing.tasks.language import IGNORE, basic_derived


def squad_recipe(*, padding_id: int = 0, nowhere: int | None = None) -> Recipe:
    """Rows of question answering: ``start_positions`` and ``end_positions`` are places in the row, [rows, depth].

    Args:
        padding_id: The id of padding.
        nowhere: The place of answers that were cut off; their labels are ignored. None if all answers are there.
    """
    place = Field(axis=None, points_to="tokens", padding=IGNORE, nowhere=nowhere)
    fields = {
        "input_ids": Field(padding=padding_id),
        "token_type_ids": Field(),
        "start_positions": place,
        "end_positions": place,
    }
    return Recipe(fields, {**basic_derived(), "first_places": FirstPlaces()})


def squad(
    ids: Ragged,
    *,
    token_type_ids: Ragged,
    start_positions: npt.ArrayLike,
    end_positions: npt.ArrayLike,
    padding_id: int = 0,
    nowhere: int | None = None,
) -> Samples:
    """Samples of question answering.

    Args:
        ids: Token ids of each question and its context.
        token_type_ids: 0 and 1 for question and context.
        start_positions, end_positions: First and last token of each answer, counted in its own sequence;
        int[num_samples]. padding_id: The id of padding.
        nowhere: As in :func:`squad_recipe`.

    Raises:
        PlaceError: An answer outside of its sequence.
        PackedDataError: An answer that ends before it begins.
    """
    starts, ends = np.asarray(start_positions), np.asarray(end_positions)
    backwards = np.flatnonzero(ends < starts) if starts.shape == ends.shape else np.empty(0)
    if len(backwards):
        first = backwards[0]
        raise PackedDataError(
            f"the answer of sample {first} ends at {ends[first]}, before it begins at {starts[first]}"
        )
    columns = {"input_ids": ids, "token_type_ids": token_type_ids, "start_positions": starts, "end_positions": ends}
    return Samples(columns, squad_recipe(padding_id=padding_id, nowhere=nowhere))


def classification_recipe(*, padding_id: int = 0, regression: bool = False) -> Recipe:
    """Rows of GLUE: ``labels`` [rows, depth], and ``cls_places``, where each sequence's first token lies.

    Rows of a shape with ``first_at_end`` have these at ``capacity - depth … capacity - 1`` always.

    Args:
        padding_id: The id of padding.
        regression: True for scores, of which those that are not there are 0 (STS-B); False for classes, of which they
            are ignored.
    """
    label = per_sequence(padding=0, dtype=np.float32) if regression else per_sequence(padding=IGNORE)
    fields = {"input_ids": Field(padding=padding_id), "labels": label}
    return Recipe(fields, {**basic_derived(), "cls_places": FirstPlaces()})


def classification(
    ids: Ragged,
    labels: npt.ArrayLike,
    *,
    token_type_ids: Ragged | None = None,
    regression: bool = False,
    padding_id: int = 0,
) -> Samples:
    """Samples of which sequences have a class or a score.

    Args:
        ids: Token ids of each sequence, CLS first.
        labels: Of each sequence, [num_samples].
        token_type_ids: 0 and 1 for the first and second sentence; None to leave them out.
        regression: True for scores.
        padding_id: The id of padding.
    """
    columns: dict[str, Any] = {"input_ids": ids, "labels": np.asarray(labels)}
    if token_type_ids is not None:
        columns["token_type_ids"] = token_type_ids
    return Samples(columns, classification_recipe(padding_id=padding_id, regression=regression))


@dataclass(frozen=True)
class AnswerSpans:
    """The likeliest answer of each sequence of a batch.

    Attributes:
        samples: Numbers of the samples in rising order, int64[num_sequences].
        starts, ends: First and last token, counted in the own sequence; int64[num_sequences].
        scores: Sum of both logits, float64[num_sequences].
    """

    samples: Int64
    starts: Int64
    ends: Int64
    scores: npt.NDArray[np.float64]


def best_spans(start_logits: Array, end_logits: Array, batch: dict[str, Array], *, longest: int = 30) -> AnswerSpans:
    """The span of each sequence with the greatest sum of logits, within the sequence.

    Args:
        start_logits, end_logits: Of a model on a batch, [rows, capacity].
        batch: The batch, with ids, positions and numbers of samples; sequences lie in one stretch of their row.
        longest: Tokens of an answer at most.

    Raises:
        PackedDataError: Logits of another shape, or a longest answer below one token.
    """
    ids, positions, numbers = (np.asarray(batch[name]) for name in ("sequence_ids", "position_ids", "samples"))
    starts, ends = np.asarray(start_logits, np.float64), np.asarray(end_logits, np.float64)
    if starts.shape != ids.shape or ends.shape != ids.shape:
        raise PackedDataError(f"logits of shape {list(starts.shape)} and {list(ends.shape)} for ids {list(ids.shape)}")
    if longest < 1:
        raise PackedDataError(f"an answer has at least one token, not {longest}")
    best, length = np.full(ids.shape, -np.inf), np.zeros(ids.shape, np.int64)
    # For each start the best end: one pass over the rows for each length that an answer may have.
    for more in range(min(longest, ids.shape[1])):
        last = ids.shape[1] - more
        same = (ids[:, :last] == ids[:, more:]) & (ids[:, :last] > 0)
        total = np.where(same, starts[:, :last] + ends[:, more:], -np.inf)
        better = total > best[:, :last]
        best[:, :last] = np.where(better, total, best[:, :last])
        length[:, :last] = np.where(better, more, length[:, :last])
    row, slot = np.nonzero(numbers >= 0)
    own = np.where(ids[row] == slot[:, None] + 1, best[row], -np.inf)
    at = own.argmax(1)
    start = positions[row, at].astype(np.int64)
    order = np.argsort(numbers[row, slot], kind="stable")
    found = AnswerSpans(
        numbers[row, slot].astype(np.int64), start, start + length[row, at], own[np.arange(len(row)), at]
    )
    return AnswerSpans(found.samples[order], found.starts[order], found.ends[order], found.scores[order])
