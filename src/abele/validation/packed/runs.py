"""What packs cost on the machine: BERT-Large on packs of each depth beside padded sequences, compiled.

Padded sequences have a mask of one row, by which tokens see all but padding, and losses that are means over a
micro-batch. Packs have a mask of their own for each pack, made of the numbers of sequences, losses that are means over
sequences, one first token for each sequence, and room for one more masked token for each. Overhead is the cycles of
an update on packs over those on as many rows of padded sequences, less one.
"""

from __future__ import annotations

from dataclasses import replace

from abele.validation.training.bert import Bert
from abele.validation.training.run import Prediction, TrainingRun
from abele.validation.training.runs import RUNS

MASKED = 76
"""Masked tokens of a padded row."""
SYSTEM = "bow-pod16"


def padded_run(run: TrainingRun | None = None, system: str = SYSTEM) -> TrainingRun:
    """BERT-Large on padded sequences, configured as a published run, by default that of MLPerf on four IPUs."""
    base = RUNS[0] if run is None else run
    assert isinstance(base.model, Bert)
    model = replace(base.model, packed=1, masked=MASKED, padding_mask=True)
    return replace(base, name="BERT-Large, padded", system=system, model=model)


def packed_run(padded: TrainingRun, depth: int, factor: float) -> TrainingRun:
    """The same on packs of at most ``depth`` sequences, ``factor`` on average."""
    assert isinstance(padded.model, Bert)
    model = replace(padded.model, packed=depth, masked=MASKED + depth, padding_mask=False, mean_packed=factor)
    return replace(padded, name=f"BERT-Large, packs of {depth}", model=model)


def overhead(packed: Prediction, padded: Prediction) -> float:
    """Share of an update's time that packs take more than as many padded rows."""
    return packed.seconds / padded.seconds - 1
