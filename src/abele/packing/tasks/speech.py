"""Speech: frames of several utterances in a row, and the labels that CTC aligns with each."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.errors import PackedDataError
from abele.packing.data.derived import Derived, FirstPlaces, PositionIds, SampleNumbers, SequenceIds, SequenceLengths
from abele.packing.data.fields import Field
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Recipe, Samples

FRAMES, LABELS = "frames", "labels"
"""Axes of speech: rows have a capacity of each."""


def speech_recipe(*, step: int = 1) -> Recipe:
    """Rows for CTC: ``features`` [rows, frames, …] and ``targets`` [rows, labels], one utterance after the other.

    ``input_lengths`` and ``label_lengths`` [rows, depth] are 0 for utterances that are not there; ``input_begins`` and
    ``label_begins`` say where each utterance begins; ``sequence_ids`` and ``position_ids`` are of frames,
    ``output_ids`` and ``output_positions`` of what the model gives.

    Args:
        step: Frames that the model makes one of; begins, lengths and ``output_ids`` are those of what it gives.
    """
    fields = {"features": Field(axis=FRAMES), "targets": Field(axis=LABELS)}
    derive: dict[str, Derived] = {
        "sequence_ids": SequenceIds(FRAMES),
        "position_ids": PositionIds(FRAMES),
        "output_ids": SequenceIds(FRAMES, step),
        "output_positions": PositionIds(FRAMES, step=step),
        "input_lengths": SequenceLengths(FRAMES, step),
        "input_begins": FirstPlaces(FRAMES, step),
        "label_lengths": SequenceLengths(LABELS),
        "label_begins": FirstPlaces(LABELS),
        "samples": SampleNumbers(),
    }
    return Recipe(fields, derive)


def speech(features: Ragged | Any, targets: Ragged | Any, *, step: int = 1, blank: int | None = 0) -> Samples:
    """Samples of speech with transcriptions.

    Args:
        features: Frames of each utterance, [num_frames, num_features].
        targets: Labels of each, int[num_labels].
        step: Frames that the model makes one of.
        blank: The label of CTC's blank, which no target may have; None not to look.

    Raises:
        PackedDataError: An utterance with fewer outputs than its labels need, of which CTC's loss is infinite; a target
            that is the blank.
    """
    frames = features if isinstance(features, Ragged) else Ragged.of(features)
    labels = targets if isinstance(targets, Ragged) else Ragged.of(targets)
    samples = Samples({"features": frames, "targets": labels}, speech_recipe(step=step))
    _check_alignable(frames, labels, step, blank)
    return samples


def _check_alignable(frames: Ragged, labels: Ragged, step: int, blank: int | None) -> None:
    values, owner = labels.own_values, labels.sequence_of_value
    if blank is not None and (values == blank).any():
        sample = owner[np.argmax(values == blank)]
        raise PackedDataError(
            f"a target of sample {sample} is the blank, {blank}", remedy="blank= with CTC's blank label"
        )
    # Between equal neighbours lies a blank.
    again = (values[1:] == values[:-1]) & (owner[1:] == owner[:-1])
    needed = labels.lengths + np.bincount(owner[1:][again], minlength=len(labels))
    outputs = -(-frames.lengths // step)
    short = np.flatnonzero(outputs < needed)
    if len(short):
        sample = short[0]
        raise PackedDataError(
            f"sample {sample} has {outputs[sample]} outputs of {frames.lengths[sample]} frames, and its labels need "
            f"{needed[sample]}",
            because=f"{len(short):,} of {len(labels):,} samples are too short; CTC's loss of them is infinite",
            remedy="leave them out, or a model that makes more outputs",
        )
