"""Cost of packs on the machine: BERT-Large on packs beside padded sequences, compiled.

Padded sequences have a mask of one row, by which tokens see all but padding, and losses that are means over a
micro-batch. Each pack has a mask of its own, made of the numbers of sequences. Its losses are means over sequences, and
it has one first token and room for one more masked token per sequence. Overhead is the cycles of
an update on packs over those on as many rows of padded sequences, less one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from abele.report import Report
from abele.validation.training.bert import BY_SEQUENCE, MADE, Bert
from abele.validation.training.run import TrainingRun
from abele.validation.training.runs import RUNS
from abele.validation.training.transformer import ADDED

MASKED = 76
"""Masked tokens of a padded row."""
SYSTEM = "bow-pod16"


def padded_run(run: TrainingRun | None = None, system: str = SYSTEM, masks: str = "once") -> TrainingRun:
    """BERT-Large on padded sequences, configured as a published run, by default that of MLPerf on four IPUs."""
    base = RUNS[0] if run is None else run
    assert isinstance(base.model, Bert)
    model = replace(base.model, packed=1, masked=MASKED, padding_mask=True, masks=masks)
    return replace(base, name=f"BERT-Large, padded, masks {masks}", system=system, model=model)


def packed_run(padded: TrainingRun, depth: int, factor: float, masks: str | None = None) -> TrainingRun:
    """The same on packs of at most ``depth`` sequences, ``factor`` on average; masks as there unless told."""
    assert isinstance(padded.model, Bert)
    masks = masks or padded.model.masks
    model = replace(
        padded.model,
        packed=depth,
        masked=MASKED + depth,
        padding_mask=False,
        mean_packed=factor,
        masks=masks,
    )
    return replace(padded, name=f"BERT-Large, packs of {depth}, masks {masks}", model=model)


@dataclass(frozen=True)
class UpdateCost:
    """Cost of an update, and the parts that masks and losses by sequence take.

    Attributes:
        cycles: From begin to end.
        seconds: The same.
        made: Cycles of making masks, over all IPUs of a replica; so are those below.
        added: Cycles of adding masks in passes of their own.
        by_sequence: Cycles of the means over sequences, and of their gradients.
        others: Cycles of all other steps but streams.
    """

    cycles: float
    seconds: float
    made: float
    added: float
    by_sequence: float
    others: float

    @classmethod
    def of(cls, report: Report) -> UpdateCost:
        """Cost of an update, read from a report."""
        steps = report.steps
        own = (np.asarray(steps["program"]) == 0) & np.array([kind != "stream" for kind in steps["kind"]], bool)
        cycles = np.asarray(steps["cycles"], np.float64) * np.asarray(steps["executions"])
        names = [f"{path}/{name}" for path, name in zip(report.ops["path"], report.ops["name"], strict=True)]

        def spent(says: Callable[[str], bool]) -> float:
            chosen = np.array([*map(says, names), False])
            return float(cycles[own & chosen[np.asarray(steps["op"])]].sum())

        made = spent(lambda name: name.startswith(f"{MADE}/"))
        added = spent(lambda name: f"/{ADDED}/" in name)
        by_sequence = spent(lambda name: name.startswith(f"{BY_SEQUENCE}/"))
        total = report.step_cycles.total
        others = float(cycles[own].sum()) - made - added - by_sequence
        return cls(
            cycles=total,
            seconds=report.seconds(total),
            made=made,
            added=added,
            by_sequence=by_sequence,
            others=others,
        )

    @property
    def parts(self) -> tuple[float, float, float]:
        """Cycles of masks and losses by sequence in passes of their own: making masks, adding them, and losses."""
        return self.made, self.added, self.by_sequence


def update_cost(run: TrainingRun) -> UpdateCost:
    """Compile a run; what an update takes."""
    return UpdateCost.of(run.report())


def overhead(packed: UpdateCost, padded: UpdateCost) -> float:
    """Share of an update's time that packs take more than as many padded rows."""
    return packed.cycles / padded.cycles - 1
