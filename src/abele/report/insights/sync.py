"""Barriers and launches of a run."""

from __future__ import annotations

import numpy as np

from abele.report.insights.model import Cost, Lever
from abele.report.insights.program_steps import ProgramSteps
from abele.report.text import count_text


def sync_cost(steps: ProgramSteps) -> Cost | None:
    """Barriers and launches of a run; None where there are none on the critical path."""
    cycles = steps.on_path("sync")
    total = float(cycles.sum())
    if total <= 0:
        return None
    at = int(np.argmax(cycles))
    row, op = int(steps.rows[at]), int(steps.op[at])
    superstep = steps.column("superstep")
    same = superstep == superstep[at] if superstep[at] >= 0 else np.arange(len(superstep)) == at
    one = float(cycles[same].sum())
    rounds = float(steps.times[steps.sides["sync"] > 0].sum())
    lever = Lever(
        f"one superstep less in {steps.title_of(op, row)}: merge compute sets that do not need each other",
        gain_cycles=steps.at_most(one, row),
        assumption="what it computes is computed in the superstep before or after it, at no other cost",
        at_most=len(steps.group_rows) > 1,
    )
    return Cost(
        kind="sync",
        title="barriers and launches",
        reason=f"{count_text(rounds)} of them in a run, {count_text(total / max(rounds, 1))} cycles each; most in "
        f"{steps.title_of(op, row)}",
        where=steps.place_of(op),
        op=op,
        step=row,
        cycles=int(total),
        share=total / max(steps.run_cycles, 1),
        levers=(lever, Lever("larger steps: more samples at once", assumption="where memory has room for them")),
        view="timeline",
        select={"op": op, "step": row},
    )
