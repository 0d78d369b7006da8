"""Figures of the run and of a window of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array, Int64
from abele.report import Report
from abele.viewer.answers.registry import question
from abele.viewer.answers.timeline_asked import covered_in, frozen_programs, lanes_asked, short_name
from abele.viewer.answers.timeline_summary import summary_of
from abele.viewer.lanes import COMPLETE, FIRST, PARTS, GroupLanes, first_of_each, lanes_in
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

_MOST_OPS = 500


@question("timeline.summary", frozen=frozen_programs, rank=2)
def summary(opened: Opened, params: Params) -> Answer:
    """Figures of a run: what cycles go to, tile balance, bytes, lanes, and the critical path."""
    program, held = lanes_asked(opened, params)
    return Answer(opened.once(f"timeline summary {program}", lambda: summary_of(opened.report, held, program)))


@question("timeline.window")
def figures(opened: Opened, params: Params) -> Answer:
    """Figures of a window of the run.

    Parameters: ``program``, ``from`` and ``to`` in cycles; ``of``: ``all``, or ``lanes`` alone, which is quick.

    Answer: head ``lanes`` with ``cycles`` by part and ``unknown``; ``utilisation`` (mean part of the window in which a
    tile computes) and ``ops`` with most cycles: their name, row, executions begun or going on, cycles in the window.
    """
    program, held = lanes_asked(opened, params)
    low = params.real("from")
    high = max(params.real("to", float(held.total)), low)
    held = lanes_in(opened, program, low, high)
    edges = np.array([low, high], np.float64)
    report, steps = opened.report, opened.report.steps
    # Parts of the window by lane, from sums that need no executions.
    listed = []
    for lane, name in enumerate(held.names):
        covered = covered_in(opened, held, program, lane, edges)[0]
        listed.append(
            {
                "name": short_name(name),
                "group": int(held.group[lane]),
                "cycles": dict(zip(PARTS, covered[:-1].tolist(), strict=True)),
                "unknown": float(covered[-1]),
                "critical": float(held.critical_covered(lane, edges)[0]),
            }
        )
    if params.choice("of", ("all", "lanes")) == "lanes":
        return Answer({"low": low, "high": high, "lanes": listed})
    # Executions that touch the window, of lanes with tiles; each counts by its part inside.
    owned = [lane for lane in range(len(held)) if held.group[lane] >= 0 or held.made_of not in (COMPLETE, FIRST)]
    at = np.concatenate(
        [np.zeros(0, np.int64), *(np.arange(s.start, s.stop) for s in (held.rows(n, low, high) for n in owned))]
    )
    step = held.step[at]
    inside = np.minimum(held.stop[at], high) - np.maximum(held.start[at], low)
    part = inside / np.maximum(held.cuts[at, -1], 1)
    # Utilisation weighs compute cycles with the tiles of the lane and their balance.
    lane_tiles = np.zeros(len(held))
    for lane in owned:
        group = int(held.group[lane])
        lane_tiles[lane] = report.groups["tiles"][group] if group >= 0 else report.memory.num_tiles
    owner = np.searchsorted(held.first, at, side="right") - 1
    work = part * (held.cuts[at, 3] - held.cuts[at, 2]) * steps["tile_balance"][step] * lane_tiles[owner]
    whole = float(lane_tiles.sum()) * (high - low)
    return Answer(
        {
            "low": low,
            "high": high,
            "lanes": listed,
            "executions": len(at),
            "utilisation": float(work.sum()) / whole if whole else 0.0,
            "ops": _ops_in(report, held, at, step, inside),
        }
    )


def _ops_in(report: Report, held: GroupLanes, at: Int64, step: Array, inside: Array) -> list[dict[str, Any]]:
    """Operations by their cycles in a window; what several groups do at once counts once."""
    once = first_of_each(held.start[at], step)
    op = report.steps["op"][step[once]]
    cycles = np.bincount(op + 1, inside[once], len(report.ops) + 1)
    times = np.bincount(op + 1, minlength=len(report.ops) + 1)
    rows = np.argsort(-cycles, kind="stable")[:_MOST_OPS]
    rows = rows[times[rows] > 0]
    names, kinds, paths = (report.ops[column] for column in ("name", "kind", "path"))
    return [
        {
            "row": row - 1,
            "name": short_name(str(names[row - 1])) if row else "steps of no operation",
            "kind": short_name(str(kinds[row - 1])) if row else "",
            "path": short_name(str(paths[row - 1])) if row else "",
            "cycles": float(cycles[row]),
            "executions": int(times[row]),
        }
        for row in rows.tolist()
    ]
