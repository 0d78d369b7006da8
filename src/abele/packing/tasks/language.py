"""Language models: labels of the next token, in which no sequence sees another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import PackedDataError
from abele.packing.data.derived import (
    Derived,
    FirstPlaces,
    LossWeights,
    PositionIds,
    SampleNumbers,
    SequenceIds,
    SequenceLengths,
)
from abele.packing.data.fields import Field
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Recipe, Samples

IGNORE = -100
"""The label that counts for none. Source: ``torch.nn.CrossEntropyLoss``'s default."""


def basic_derived() -> dict[str, Derived]:
    """Arrays that all tasks on tokens derive: ids, positions, lengths and sample numbers."""
    return {
        "position_ids": PositionIds(),
        "sequence_ids": SequenceIds(),
        "sequence_lengths": SequenceLengths(),
        "samples": SampleNumbers(),
    }


def language_model_recipe(*, padding_id: int = 0, reserved_padding: bool = False) -> Recipe:
    """Rows for next-token training: ``input_ids``, ``labels`` and ``loss_weights``."""
    fields = {
        "input_ids": Field(padding=padding_id, reserved_padding=reserved_padding),
        "labels": Field(padding=IGNORE),
    }
    return Recipe(fields, {**basic_derived(), "first_places": FirstPlaces(), "loss_weights": LossWeights()})


def language_model(
    documents: Ragged | Any, *, padding_id: int = 0, model_shifts: bool = False, longest: int | None = None
) -> Samples:
    """Samples for next-token training.

    Args:
        documents: Token ids of each document.
        padding_id: The id of padding.
        model_shifts: True for models that shift labels themselves (Hugging Face's do): labels are then the tokens, and
            those that would be predicted from another sequence are ignored.
        longest: Documents are cut into pieces of at most this; None to leave them whole. The last token of a piece
            keeps its label, the first of the next piece, unless the model shifts.

    Raises:
        SampleLengthError: No documents, or an empty one.
    """
    ids = _ragged(documents)
    recipe = language_model_recipe(padding_id=padding_id)
    if model_shifts:
        # Such a model predicts the first token of a piece from whatever lies before it in the row.
        pieces = ids if longest is None else ids.split(longest)[0]
        return Samples({"input_ids": pieces, "labels": own_token_labels(pieces)}, recipe)
    samples = Samples({"input_ids": ids, "labels": next_token_labels(ids)}, recipe)
    return samples if longest is None else samples.split(longest)[0]


def next_token_labels(ids: Ragged | Array, *, ignore: int = IGNORE) -> Ragged:
    """The token after each token of the same sequence; ``ignore`` for the last."""
    given = _ragged(ids)
    labels = _signed(np.roll(given.own_values, -1), ignore)
    ends = given.offsets[1:] - given.offsets[0] - 1
    labels[ends[given.lengths > 0]] = ignore
    return given.with_values(labels)


def own_token_labels(ids: Ragged | Array, *, ignore: int = IGNORE) -> Ragged:
    """The tokens themselves, ``ignore`` for the first of each sequence: for models that shift labels by one."""
    given = _ragged(ids)
    labels = _signed(given.own_values.copy(), ignore)
    begins = given.offsets[:-1] - given.offsets[0]
    labels[begins[given.lengths > 0]] = ignore
    return given.with_values(labels)


def shifted_labels(labels: npt.ArrayLike, sequence_ids: npt.ArrayLike, *, ignore: int = IGNORE) -> Array:
    """Labels of the next token for rows that are packed already, such as the rows of another program.

    Args:
        labels: A label for each token, int[…, length].
        sequence_ids: The sequence of each token, 0 for padding, int[…, length].
        ignore: Label of the last token of a sequence, and of padding.

    Returns:
        The same shape: the label at the next place, where that belongs to the same sequence.

    Raises:
        PackedDataError: Shapes that differ.
    """
    given, ids = np.asarray(labels), np.asarray(sequence_ids)
    if given.shape != ids.shape or given.ndim == 0:
        raise PackedDataError(f"labels of shape {list(given.shape)} for ids of shape {list(ids.shape)}")
    made = np.full_like(_signed(given, ignore), ignore)
    goes_on = (ids[..., 1:] == ids[..., :-1]) & (ids[..., 1:] > 0)
    made[..., :-1] = np.where(goes_on, given[..., 1:], ignore)
    return made


def with_field(recipe: Recipe, name: str, described: Field) -> Recipe:
    """A recipe with one field more, or another for one that it has."""
    return replace(recipe, fields={**recipe.fields, name: described})


def _ragged(ids: Ragged | Any) -> Ragged:
    return ids if isinstance(ids, Ragged) else Ragged.of(ids)


def _signed(values: Array, ignore: int) -> Array:
    """Values in a type with negative numbers, if the ignored label is negative."""
    if ignore < 0 and (values.dtype.kind == "u" or not np.can_cast(np.min_scalar_type(ignore), values.dtype)):
        return values.astype(np.int64)
    return values
