"""Single executions on the timeline: the one at a cycle, those found by name, and all of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.text_column import Text
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.answers.timeline_asked import lanes_asked
from abele.viewer.lanes import lanes_in, lanes_of
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from abele.words import counted, shortened

_MOST_FOUND = 20_000
_FROZEN_STEPS = 400
_BUCKETS = 256
"""Buckets of tiles, for each of which the largest value of a tile is told."""


@question("timeline.at")
def at_cycle(opened: Opened, params: Params) -> Answer:
    """The execution on a lane at a cycle.

    Parameters: ``program``, ``lane``, ``at``.

    Answer: head ``step`` (-1 where the lane waits), ``start``, ``cycles``, ``number`` (which of its executions it is)
    and ``of`` (how many the report holds).
    """
    program, held = lanes_asked(opened, params)
    lane, at = params.number("lane", high=len(held) - 1), params.real("at")
    held = lanes_in(opened, program, max(at - 1, 0), at + 1)
    rows = held.rows(lane, at, at + 0.5)
    if rows.stop <= rows.start:
        return Answer({"step": -1})
    row, first = rows.start, int(held.first[lane])
    step = int(held.step[row])
    same = np.count_nonzero(held.step[first : row + 1] == step)
    after = np.count_nonzero(held.step[row + 1 : held.first[lane + 1]] == step)
    return Answer(
        {
            "step": step,
            "start": int(held.start[row]),
            "cycles": int(held.cuts[row, -1]),
            "number": same,
            "of": same + after,
        }
    )


@question("timeline.find")
def find(opened: Opened, params: Params) -> Answer:
    """Executions of the steps whose names, blocks or operations hold some words, in order of time.

    Parameters: ``program``, ``text``.

    Answer: head ``steps`` (how many), ``total`` executions; arrays ``lane``, ``start``, ``cycles``, ``step``.
    """
    _, held = lanes_asked(opened, params)
    words = params.text("text").casefold().split()
    wanted = np.full(len(opened.report.steps), bool(words))
    for word in words:
        wanted &= _named(opened.report, word)
    group_lanes = int((held.group >= 0).sum()) or len(held)
    last = int(held.first[group_lanes])
    at = np.flatnonzero(wanted[held.step[:last]])
    total = len(at)
    order = at[np.argsort(held.start[at], kind="stable")][:_MOST_FOUND]
    return Answer(
        {"total": total, "steps": int(np.count_nonzero(wanted)), "names": {}},
        {
            "lane": (np.searchsorted(held.first, order, side="right") - 1).astype(np.int32),
            "start": held.start[order],
            "cycles": held.cuts[order, -1],
            "step": held.step[order],
        },
    )


def _named(report: Report, word: str) -> npt.NDArray[np.bool_]:
    """Steps that have a word in their name, block or operation."""

    def holds(column: Array | Text) -> npt.NDArray[np.bool_]:
        assert isinstance(column, Text)
        hits = np.array([word in w.casefold() for w in column.words], dtype=bool)
        return np.asarray(hits[column.codes] if len(hits) else np.zeros(len(column), dtype=bool), np.bool_)

    found = holds(report.steps.columns["name"]) | holds(report.steps.columns["block"])
    if len(report.ops):
        op = report.steps["op"]
        found = found | (holds(report.ops.columns["name"])[np.maximum(op, 0)] & (op >= 0))
    return found


def _frozen_steps(opened: Opened) -> Frozen:
    for step in range(min(len(opened.report.steps), _FROZEN_STEPS)):
        yield {"step": str(step)}


@question("timeline.step", frozen=_frozen_steps, rank=6)
def step(opened: Opened, params: Params) -> Answer:
    """All that the report says of a step.

    Parameters: ``step``, its row; ``program``.

    Answer: head with its columns, those of its operation under ``operation``, ``groups``, and executions that the
    report holds; arrays ``compute``, ``exchange`` float32[256]: the most that a tile does, by bucket of tiles.
    """
    report = opened.report
    row = params.number("step", high=2**31)
    if row >= len(report.steps):
        raise InvalidOptionError(f"no step {row}", remedy=f"the report has {counted(len(report.steps), 'step')}")
    picked = report.steps.select(np.array([row]))
    head: dict[str, Any] = {name: picked[name][0] for name in picked.names}
    head["name"] = shortened(str(head["name"]), 1_000)
    op = int(head["op"])
    operation = report.ops.select(np.array([op])) if 0 <= op < len(report.ops) else None
    head["operation"] = {n: operation[n][0] for n in operation.names} if operation is not None else None
    head["groups"] = report.groups_of(row)[:64]
    head["row"] = row
    lanes = lanes_of(opened, int(head["program"]))
    head["critical"] = float(lanes.critical[row])
    head["held"] = int(np.count_nonzero(lanes.step[: lanes.first[int((lanes.group >= 0).sum()) or len(lanes)]] == row))
    compute = report.step_by_tile("compute_cycles", row)
    moved = np.maximum(report.step_by_tile("sent_bytes", row), report.step_by_tile("received_bytes", row))
    head["slowest_tile"] = int(compute.argmax()) if len(compute) and compute.any() else -1
    head["busiest_tile"] = int(moved.argmax()) if len(moved) and moved.any() else -1
    head["num_tiles"] = len(compute)
    return Answer(head, {"compute": _bucketed(compute), "exchange": _bucketed(moved)})


def _bucketed(values: Int64) -> npt.NDArray[np.float32]:
    """The largest of each bucket of neighbouring tiles."""
    if not len(values):
        return np.zeros(0, np.float32)
    edges = np.unique(np.linspace(0, len(values), min(_BUCKETS, len(values)) + 1).astype(np.int64))
    return np.maximum.reduceat(values, edges[:-1]).astype(np.float32)
