"""Sync groups that wait for each other, such as stages of a pipeline on IPUs of their own."""

from __future__ import annotations

import numpy as np

from abele.report.insights.model import Cost, Lever
from abele.report.insights.program_steps import ProgramSteps, text_at
from abele.report.text import percent_text
from abele.words import counted, visible

_LARGE_GROUP = 0.5
"""Tiles of a sync group, as part of those of the largest, from which on its waiting is worth telling."""
_WORTH = 0.02
"""Part of a cost below which a lever is not listed."""


def pipeline_cost(steps: ProgramSteps) -> Cost | None:
    """Sync groups that wait for others; None where there is one, or none waits."""
    groups = steps.report.groups.select(steps.group_rows)
    # Small groups, such as IO tiles, are no stages: they are expected to wait.
    tiles = groups["tiles"].astype(np.int64)
    large = tiles >= _LARGE_GROUP * tiles.max(initial=0)
    run, names = steps.run_cycles, groups["name"][large]
    busy = np.minimum(groups["busy_cycles"][large].astype(np.int64), run)
    if len(busy) < 2 or not run:
        return None
    waiting = float(np.clip(run - busy, 0, None).mean())
    if waiting < _WORTH * run:
        return None
    # Two causes of waiting. Stages of unequal work: the busiest sets the pace of all.
    at = int(np.argmax(busy))
    idle = int((busy == 0).sum())
    uneven = float(busy[at]) - float(busy.mean())
    levers = []
    if uneven >= _WORTH * run and idle < len(busy) - 1:
        levers.append(
            Lever(
                "equal stages: move work from the busiest to the others",
                gain_cycles=int(uneven),
                assumption="work divides evenly over them (busiest less mean), the rounds of the pipeline stay as many",
                at_most=True,
            )
        )
    # Filling and draining: even the busiest stage waits then, and more micro-batches share one filling.
    spare = run - int(busy[at])
    blocks = steps.report.steps["block"][steps.rows]
    if spare >= _WORTH * run and float(steps.executions.max(initial=0)) > 1 and any(blocks):
        levers.append(
            Lever(
                "twice as many micro-batches for each update",
                gain_cycles=spare // 2,
                assumption="for as many samples as now: the busiest group waits only while the pipeline fills and "
                "drains, which is once for twice as many",
                at_most=True,
            )
        )
    # Point at the most expensive step of the busiest group.
    row, op = _worst_of(steps, int(steps.group_rows[large][at]))
    what = f"{visible(str(names[at]))} is busy {percent_text(busy[at] / run)} of the run, the mean of {len(busy):,} "
    stage = text_at(steps.report.steps, "block", row) if row >= 0 else ""
    reason = what + f"{percent_text(float(busy.mean()) / run)}: the others wait"
    if stage:
        reason += f" for {visible(stage)}"
    if idle:
        reason += f"; {counted(idle, 'sync group')} do nothing" if idle > 1 else "; one does nothing"
    return Cost(
        kind="pipeline",
        title="sync groups that wait",
        reason=reason,
        where=steps.place_of(op),
        op=op,
        step=row,
        cycles=int(waiting),
        share=waiting / run,
        levers=tuple(sorted(levers, key=lambda lever: -(lever.gain_cycles or 0))),
        view="timeline",
        select={"group": int(steps.group_rows[large][at])},
    )


def _worst_of(steps: ProgramSteps, group: int) -> tuple[int, int]:
    """The most expensive step of a sync group alone, and its operation."""
    relation = steps.report.step_groups
    first = relation["first_group"]
    inside = relation["step"][(first <= group) & (group < first + relation["num_groups"])]
    alone = np.isin(steps.rows, inside)
    cycles = steps.executions * steps.column("cycles") * alone
    if not cycles.any():
        return -1, -1
    at = int(np.argmax(cycles))
    return int(steps.rows[at]), int(steps.op[at])
