"""The timeline as text: a lane of letters for each sync group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64
from abele.errors import InvalidOptionError
from abele.report.block_runs import block_runs, run_labels, run_line
from abele.report.table import Table
from abele.report.text import count_text
from abele.terminal import shown_text
from abele.words import visible

if TYPE_CHECKING:
    from abele.report.report import Report

LETTERS = {
    "S": "sync",
    "X": "exchange",
    "H": "host streams",
    "C": "compute",
    "A": "arrange",
    "D": "decide",
    ".": "idle",
    "~": "not recorded",
}
"""Meaning of each letter of a lane."""
_IDLE, _UNKNOWN = ".", "~"
_LEAST = 10
"""Fewest characters of a lane."""
_SPAN_CHARACTERS = 5
"""Mean characters of a span in a picture without room for all."""


def timeline_text(report: Report, width: int, *, program: int = 0, first: int = 0, cycles: int | None = None) -> str:
    """Lanes of letters, one per sync group; each letter is the kind of most of its cycles.

    Below the lane of a group that runs blocks of the program, such as stages of a pipeline, is which of them runs, and
    for which micro-batch.

    Args:
        report: The report.
        width: Characters of a line.
        program: Index of the program.
        first: First cycle shown.
        cycles: Cycles shown; by default the whole run, or its first steps where the report does not hold all.

    Raises:
        InvalidOptionError: The width leaves no room, there is nothing to show, or no such program.
    """
    groups = np.flatnonzero(report.groups["program"] == program)
    if not len(groups):
        raise InvalidOptionError(
            f"the report holds no timeline of program {program}",
            remedy="compile again: files of format version 1 have none, and a program without steps has none",
        )
    names = list(map(visible, report.groups["name"][groups].tolist()))
    room = width - max(map(len, names)) - 2
    if room < _LEAST:
        raise InvalidOptionError(
            f"a timeline of width {width} leaves {max(room, 0)} characters per lane", remedy=f"{_LEAST - room} more"
        )
    total = int(report.cycles(program).total)
    end = horizon(report, program, room) if cycles is None else first + cycles
    if end <= first:
        raise InvalidOptionError(f"no cycles from {first:,} to {end:,} to show")
    edges = np.linspace(first, end, room + 1)
    lanes = [_lane(report, int(g), edges) for g in groups]
    label = max(map(len, names))
    head = f"cycles {first:,} to {end:,} of {total:,}; one character is {count_text((end - first) / room)}"
    legend = "  ".join(f"{k} {v}" for k, v in LETTERS.items() if any(k in lane for lane in lanes))
    runs = [block_runs(report, int(g)) for g in groups]
    word, short = run_labels(run for each in runs for run in each)
    lines = [head]
    for name, lane, each in zip(names, lanes, runs, strict=True):
        lines.append(f"{name:<{label}}  {lane}")
        below = run_line(each, short, first, end, room)
        if below:
            lines.append(f"{'':<{label}}  {visible(below)}")
    lines.append(legend)
    if short:
        lines.append(f"below lanes: {visible(word)}, and which time it runs: its micro-batch")
    return shown_text("\n".join(lines))


def horizon(report: Report, program: int, room: int) -> int:
    """Cycle up to which a picture goes: the end of the run, or of as many spans as have room.

    Args:
        report: The report.
        program: Index of the program.
        room: Characters, or columns, of a lane.
    """
    groups = np.flatnonzero(report.groups["program"] == program)
    spans = report.spans.where("program", program)
    ends = spans["start_cycle"] + spans["cycles"]
    last = [int(ends[spans["group"] == g].max(initial=0)) for g in groups]
    if last == report.groups["end_cycle"][groups].tolist():
        return max(last, default=0)
    shown = max(1, room * len(groups) // _SPAN_CHARACTERS)
    return int(np.sort(ends)[:shown].max(initial=0))


def _lane(report: Report, group: int, edges: Float64) -> str:
    coverage = lane_cycles(report, group, edges)
    words = list(coverage)
    most = np.argmax([coverage[w] for w in words], axis=0)
    return "".join(words[i] for i in most.tolist())


def lane_cycles(report: Report, group: int, edges: Float64) -> dict[str, Float64]:
    """Cycles of each cell that a sync group spends on each of ``LETTERS``; all of a cell are accounted for.

    Args:
        report: The report.
        group: Row in its groups table.
        edges: Cycles between the cells, float64[cells + 1], ascending.
    """
    mine = report.spans.where("group", group).sort("start_cycle")
    letters, start, length = _pieces(report, mine)
    cell = np.diff(edges)
    coverage = {letter: _covered(start, np.where(letters == letter, length, 0), edges) for letter in np.unique(letters)}
    known = float((mine["start_cycle"] + mine["cycles"]).max(initial=0))
    last = float(report.groups["end_cycle"][group])
    coverage[_UNKNOWN] = np.diff(np.clip(edges, known, max(last, known)))
    coverage[_IDLE] = cell - np.sum(list(coverage.values()), axis=0)
    return coverage


def _pieces(report: Report, spans: Table) -> tuple[npt.NDArray[Any], Float64, Float64]:
    """Letter, start and length of the parts of each span, in order."""
    steps = report.steps.select(spans["step"])
    kind = steps["kind"]
    work = np.where(kind == "copy", "A", np.where(kind == "control", "D", "C"))
    count = len(spans)
    letters = np.stack([np.full(count, "S"), np.full(count, "X"), np.full(count, "H"), work], axis=1)
    parts = [steps[f"{name}_cycles"] for name in ("sync", "exchange", "host", "compute")]
    length = np.stack(parts, axis=1).astype(float)
    length *= (spans["cycles"] / np.maximum(steps["cycles"], 1))[:, None]
    start = spans["start_cycle"][:, None] + np.cumsum(length, axis=1) - length
    return letters.reshape(-1), start.reshape(-1), length.reshape(-1)


def _covered(start: Float64, length: Float64, edges: Float64) -> Float64:
    """Cycles of each cell between ``edges`` that pieces cover; pieces are in order and do not overlap."""
    at = np.stack([start, start + length], axis=1).reshape(-1)
    done = np.cumsum(np.stack([np.zeros_like(length), length], axis=1).reshape(-1))
    return np.diff(np.interp(edges, at, done)) if len(at) else np.zeros(len(edges) - 1)
