"""Timeline of sync groups: the lanes of a program, and their spans in a map tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.report import Report
from abele.viewer.answers.registry import question
from abele.viewer.answers.timeline_asked import (
    covered_in,
    frozen_programs,
    frozen_tiles,
    is_beyond_held,
    lanes_asked,
    short_name,
    step_names,
    window_asked,
    words_of,
)
from abele.viewer.bars import COLUMNS, edges_of, window
from abele.viewer.flames import blocks_of
from abele.viewer.lanes import COMPLETE, FIRST, PARTS, GroupLanes, stepped_shares
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.tile_lanes import ROWS, owners_of
from abele.viewer.wire import Answer
from abele.words import counted

MOST_SPANS = 4_000
"""Spans that a map tile holds one by one."""


@question("timeline.outline", frozen=frozen_programs, rank=1)
def outline(opened: Opened, params: Params) -> Answer:
    """The lanes of a program.

    Parameters: ``program``.

    Answer: head ``total`` cycles, ``parts``, ``lanes`` with ``name``, ``tiles``, ``end``, ``known``, ``spans`` and
    names of ``blocks``; ``note``, where the lanes do not show all executions; ``has_critical``, ``has_tiles``.
    """
    program, lanes = lanes_asked(opened, params)
    report = opened.report
    listed = []
    for lane, name in enumerate(lanes.names):
        group = int(lanes.group[lane])
        listed.append(
            {
                "name": short_name(name),
                "tiles": int(report.groups["tiles"][group]) if group >= 0 else 0,
                "group": group,
                "end": int(lanes.end[lane]),
                "known": int(lanes.end[lane] if is_beyond_held(opened, lanes, lanes.total) else lanes.known[lane]),
                "spans": int(lanes.first[lane + 1] - lanes.first[lane]),
                "blocks": list(dict.fromkeys(_block_names(opened, program, lanes, lane)))[:40],
            }
        )
    return Answer(
        {
            "total": lanes.total,
            "parts": list(PARTS),
            "lanes": listed,
            "made_of": lanes.made_of,
            "note": _note(report, lanes),
            "has_critical": bool(lanes.critical.any()),
            "has_tiles": bool(len(report.phase_tiles)) and bool((lanes.group >= 0).any()),
            "num_tiles": report.memory.num_tiles,
            "whole_height": max((max(report.memory.num_tiles, 1) - 1) // ROWS, 0).bit_length(),
            "inferred": owners_of(opened, program).inferred,
            "workers": min(int(report.target.get("num_workers", 0) or 0), 64),
            "tells_workers": bool(len(report.vertices)),
        }
    )


def _note(report: Report, lanes: GroupLanes) -> str:
    if lanes.made_of == COMPLETE:
        return ""
    if lanes.made_of == FIRST:
        if len(report.run_spans):
            return (
                f"The run has more executions than are unfolded at once. Up to cycle {lanes.held:,} all are at hand; "
                "beyond, bars are exact sums, and single executions where the window is short enough."
            )
        held = counted(len(lanes.step), "execution")
        known = int(lanes.known.max(initial=0))
        return (
            f"The report holds the first {held} of steps only: up to cycle {known:,} of {lanes.total:,}. "
            "What lies beyond is hatched."
        )
    return "The report does not say when steps run: each is drawn as long as all its executions, one after the other."


def _block_names(opened: Opened, program: int, held: GroupLanes, lane: int) -> list[str]:
    blocks = blocks_of(opened, program, held, lane)
    return [short_name(word) for word in words_of(opened.report, "block", np.unique(blocks.bars.row))]


@question("timeline.lanes", frozen=frozen_tiles, rank=2)
def lanes(opened: Opened, params: Params) -> Answer:
    """Work of the lanes in a map tile: level n cuts the run in 2^n tiles of 512 columns.

    Parameters: ``program``, ``level``, ``index``.

    Answer: head ``mode``. ``spans``: arrays ``lane``, ``start``, ``cycles``, ``step``, ``cuts`` (cycles to the end of
    each of four slots), ``part`` (of each slot) and ``critical`` (part of it on the critical path), with the ``names``
    of steps. ``shares``: ``shares`` uint8[lanes, 512, parts and unknown] in 255ths, ``critical`` uint8[lanes, 512].
    """
    program, held, level, index = window_asked(opened, params)
    low, high = window(index, level, 0.0, float(held.total))
    rows = [held.rows(lane, low, high) for lane in range(len(held))]
    head: dict[str, Any] = {"low": low, "high": high}
    if sum(r.stop - r.start for r in rows) <= MOST_SPANS and not is_beyond_held(opened, held, high):
        at = np.concatenate([np.arange(r.start, r.stop) for r in rows])
        step = held.step[at]
        head |= {"mode": "spans", "names": step_names(opened.report, step)}
        return Answer(
            head,
            {
                "lane": np.repeat(np.arange(len(rows)), [r.stop - r.start for r in rows]).astype(np.int32),
                "start": held.start[at],
                "cycles": held.cuts[at, -1],
                "step": step,
                "cuts": held.cuts[at].astype(np.float32),
                "part": held.part[step],
                "critical": held.critical[step].astype(np.float32),
            },
        )
    edges = edges_of(index, level, 0.0, float(held.total))
    widths = np.diff(edges)
    shares = np.empty((len(held), COLUMNS, len(PARTS) + 1), np.uint8)
    critical = np.empty((len(held), COLUMNS), np.uint8)
    for lane in range(len(held)):
        covered = covered_in(opened, held, program, lane, edges)
        shares[lane] = stepped_shares(covered, widths)
        critical[lane] = np.rint(np.clip(held.critical_covered(lane, edges) / widths, 0, 1) * 255)
    return Answer(head | {"mode": "shares"}, {"shares": shares, "critical": critical})
