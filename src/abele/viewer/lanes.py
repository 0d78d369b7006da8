"""Lanes of a timeline: what each sync group, and each way to the host, does when; sums before any instant.

A span is one execution of a step on a lane: sync, exchange, streams and work follow each other in it, in the
proportions of its step. Sums over the spans before each of them make what any stretch of time goes to a difference of
two numbers, so that a picture costs the same at any zoom.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int32, Int64
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.text_column import Text
from abele.viewer.executions import Looped, TooManySpansError, executions_of, looped, no_executions
from abele.viewer.open_reports import Opened

PARTS = ("compute", "arrange", "exchange", "replicas", "sync", "host", "memory")
"""Parts of a run's cycles: vertices, copies on tiles, exchanges between tiles and between replicas, barriers, host
streams, streaming memory.
"""
SLOTS = 4
"""Parts of a span, in their order: sync, exchange, streams, work."""
MOST_CYCLES = 1 << 53
"""Cycles of a run at most: more are no whole numbers on the page."""
COMPLETE, FIRST, STEPS = "complete", "first", "steps"
"""Contents of lanes: all executions; the first ones; steps alone, one after the other."""


_KEPT_WINDOWS = 12


@dataclass(frozen=True, eq=False)
class GroupLanes:
    """The lanes of one program.

    Attributes:
        names: Their names.
        group: int64[lanes], row of the groups table; -1 for lanes of streams and of steps.
        first: int64[lanes + 1], first span of each lane; spans of a lane are in order of time and do not overlap.
        start: int64[spans], cycle at which each starts.
        cuts: int64[spans, SLOTS], cycles from its start to the end of each of its slots; the last is its length.
        step: int32[spans], row of the steps table.
        part: uint8[steps, SLOTS], index into ``PARTS`` of the slots of each step.
        known: int64[lanes], cycle up to which the report holds spans.
        end: int64[lanes], cycle at which each is done.
        total: Cycles of the run.
        made_of: One of ``COMPLETE``, ``FIRST`` and ``STEPS``.
        critical: float64[steps], part of the cycles of each step that is on the critical path.
        held: Cycle up to which spans are at hand.
    """

    names: tuple[str, ...]
    group: Int64
    first: Int64
    start: Int64
    cuts: Int64
    step: Int32
    part: npt.NDArray[np.uint8]
    known: Int64
    end: Int64
    total: int
    made_of: str
    critical: Float64
    held: int

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def stop(self) -> Int64:
        """int64[spans], cycle at which each ends."""
        return self.start + self.cuts[:, -1]

    @cached_property
    def sums(self) -> Int64:
        """Cycles of each part in all spans before, int64[parts, spans + 1]."""
        sums = np.zeros((len(PARTS), len(self.start) + 1), np.int64)
        part = self.part[self.step]
        for slot in range(SLOTS):
            length = self.cuts[:, slot] - (self.cuts[:, slot - 1] if slot else 0)
            for number in np.unique(self.part[:, slot]).tolist():
                # A part is that of one slot, so that its sums are of it alone.
                np.cumsum(np.where(part[:, slot] == number, length, 0), out=sums[number, 1:])
        return sums

    @cached_property
    def critical_sums(self) -> Float64:
        """Cycles on the critical path in all spans before, float64[spans + 1]."""
        return np.concatenate([[0.0], np.cumsum(self.cuts[:, -1] * self.critical[self.step])])

    def rows(self, lane: int, low: float, high: float) -> slice:
        """The spans of a lane that lie at least partly between two cycles."""
        first, last = int(self.first[lane]), int(self.first[lane + 1])
        begin = first + int(np.searchsorted(self.start[first:last], low, side="right")) - 1
        if begin < first or self.start[begin] + self.cuts[begin, -1] <= low:
            begin += 1
        return slice(begin, max(begin, first + int(np.searchsorted(self.start[first:last], high, side="left"))))

    def before(self, lane: int, at: Float64) -> Float64:
        """Cycles of each part on a lane before some instants, float64[instants, parts]."""
        first, last = int(self.first[lane]), int(self.first[lane + 1])
        if first == last:
            return np.zeros((len(at), len(PARTS)))
        span = first + np.searchsorted(self.start[first:last], at, side="right") - 1
        begun = span >= first
        span = np.maximum(span, first)
        sums = (self.sums[:, span] - self.sums[:, first : first + 1]).T.astype(np.float64)
        passed = np.where(begun, at - self.start[span], 0.0)[:, None]
        starts = np.concatenate([np.zeros((len(span), 1)), self.cuts[span, :-1]], axis=1)
        inside = np.clip(passed - starts, 0.0, self.cuts[span] - starts)
        part = self.part[self.step[span]]
        rows = np.arange(len(at))
        for slot in range(SLOTS):
            sums[rows, part[:, slot]] += inside[:, slot]
        return sums

    def covered(self, lane: int, edges: Float64) -> Float64:
        """Cycles between neighbouring edges that each part takes on a lane, float64[cells, parts]."""
        return np.asarray(np.diff(self.before(lane, edges), axis=0), np.float64)

    def critical_covered(self, lane: int, edges: Float64) -> Float64:
        """Cycles between neighbouring edges that are on the critical path, float64[cells]."""
        first, last = int(self.first[lane]), int(self.first[lane + 1])
        if first == last:
            return np.zeros(len(edges) - 1)
        span = np.maximum(first + np.searchsorted(self.start[first:last], edges, side="right") - 1, first)
        passed = np.clip(edges - self.start[span], 0, self.cuts[span, -1])
        return np.diff(self.critical_sums[span] + passed * self.critical[self.step[span]])

    def unknown(self, lane: int, edges: Float64) -> Float64:
        """Cycles between neighbouring edges of which the report does not say what the lane does, float64[cells]."""
        return np.diff(np.clip(edges, self.known[lane], max(self.end[lane], self.known[lane])))


def lanes_of(opened: Opened, program: int) -> GroupLanes:
    """The lanes of a program; worked out once."""
    return opened.once(f"lanes {program}", lambda: make_lanes(opened.report, program))


def lanes_in(opened: Opened, program: int, low: float, high: float) -> GroupLanes:
    """The lanes of a program as far as a window needs them: its own executions where the whole run has too many."""
    whole = lanes_of(opened, program)
    if whole.made_of != FIRST or high <= whole.held or not len(opened.report.run_spans):
        return whole
    kept: OrderedDict[tuple[int, float, float], GroupLanes] = opened.once("lanes of windows", OrderedDict)
    key = (program, low, high)
    with opened.lock:
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
    try:
        found = make_lanes(opened.report, program, (int(low), int(np.ceil(high))))
    except TooManySpansError:
        return whole
    with opened.lock:
        kept[key] = found
        while len(kept) > _KEPT_WINDOWS:
            kept.popitem(last=False)
    return found


def make_lanes(report: Report, program: int, window: tuple[int, int] | None = None) -> GroupLanes:
    """The lanes of a program: its sync groups, then the streams of the host and of streaming memory.

    Args:
        report: The report.
        program: Index of the program.
        window: The cycles that are of interest; by default the run, or its beginning where that is too much.

    Raises:
        TooManySpansError: The window has more executions than are unfolded.
        InvalidOptionError: The figures of the report are no cycles.
    """
    # Without executions there is nothing to place in time: steps stand one after the other.
    groups = np.flatnonzero(report.groups["program"] == program)
    found = executions_of(report, program, window)
    if not len(groups) or not len(found.step):
        if window is not None and len(groups):
            found = no_executions(found.untold, found.end, found.total)
        else:
            return _of_steps(report, program)
    # Cut each group's executions into parts; groups are stretches of the sorted rows.
    order = _in_order(found.group, found.start)
    group, step = found.group[order], found.step[order].astype(np.int32)
    start, cycles = found.start[order], found.cycles[order]
    if not float(cycles.sum(dtype=np.float64)) < MOST_CYCLES or not 0 <= found.total < MOST_CYCLES:
        raise _too_long(program)
    limits = [np.searchsorted(group, [g, g + 1]).tolist() for g in groups.tolist()]
    parts = [
        (int(g), *_cut(start, cycles, step, slice(a, b))) for g, (a, b) in zip(groups.tolist(), limits, strict=True)
    ]
    names = [str(report.groups["name"][g]) for g in groups]
    # A lane is known up to where its executions were unfolded, and ends where the report says.
    reached = [int((s + c).max(initial=0)) for _, s, c, _ in parts]
    ends = [max(int(report.groups["end_cycle"][g]), r) for g, r in zip(groups, reached, strict=True)]
    known = [min(k, e) for k, e in zip(found.known(groups, reached, ends), ends, strict=True)]
    made_of = COMPLETE if known == ends else FIRST
    # Streams are lanes of their own, known as far as the groups are.
    for name, rows in _streams(report, program, start, step):
        begin, length, which = _cut(start, cycles, step, rows)
        parts.append((-1, begin, length, which))
        names.append(name)
        known.append(max(ends, default=0) if made_of == COMPLETE else max(known, default=0))
        ends.append(max(ends, default=0))
    total = max(int(report.cycles(program).total), max(ends, default=0), 1)
    if total >= MOST_CYCLES:
        raise _too_long(program)
    return _lanes(report, program, names, parts, known=known, ends=ends, total=total, made_of=made_of, held=found.end)


def _in_order(group: Int64, start: Int64) -> Int64 | slice:
    """The order by group, then by start; a slice of all where it is that already."""
    same = group[1:] == group[:-1]
    if ((group[1:] > group[:-1]) | (same & (start[1:] >= start[:-1]))).all():
        return slice(None)
    return np.lexsort((start, group))


def _of_steps(report: Report, program: int) -> GroupLanes:
    """One lane on which the steps follow each other, each as long as all its executions."""
    steps = report.steps
    mine = np.flatnonzero((steps["program"] == program) & (steps["executions"] > 0)).astype(np.int32)
    cycles = (steps["executions"][mine] * steps["cycles"][mine]).astype(np.int64)
    if not np.dot(steps["executions"][mine].astype(np.float64), steps["cycles"][mine]) < MOST_CYCLES:
        raise _too_long(program)
    start = np.cumsum(cycles) - cycles
    end = int(cycles.sum())
    return _lanes(
        report,
        program,
        ["all tiles"],
        [(-1, start, cycles, mine)],
        known=[end],
        ends=[end],
        total=max(end, 1),
        made_of=STEPS,
        held=max(end, 1),
    )


def _lanes(
    report: Report,
    program: int,
    names: list[str],
    parts: list[tuple[int, Int64, Int64, Int32]],
    known: list[int],
    ends: list[int],
    total: int,
    made_of: str,
    held: int,
) -> GroupLanes:
    lengths = np.array([len(part[1]) for part in parts], np.int64)
    start, cycles = (np.concatenate([part[n] for part in parts]).astype(np.int64) for n in (1, 2))
    step = np.concatenate([part[3] for part in parts]).astype(np.int32)
    return GroupLanes(
        names=tuple(names),
        group=np.array([part[0] for part in parts], np.int64),
        first=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        start=start,
        cuts=_slots(report, step, cycles),
        step=step,
        part=parts_of_steps(report),
        known=np.array(known, np.int64),
        end=np.array(ends, np.int64),
        total=total,
        made_of=made_of,
        critical=_critical(report, program),
        held=held,
    )


def _too_long(program: int) -> InvalidOptionError:
    return InvalidOptionError(
        f"the steps of program {program} add up to more than {MOST_CYCLES:,} cycles",
        because="no run takes so long: the file does not say what it should",
    )


def parts_of_steps(report: Report) -> npt.NDArray[np.uint8]:
    """Index into ``PARTS`` of the slots of each step, uint8[steps, SLOTS]."""
    steps = report.steps
    part = np.empty((len(steps), SLOTS), np.uint8)
    part[:, 0] = PARTS.index("sync")
    part[:, 1] = np.where(_is(steps.columns["partner"], "replicas"), PARTS.index("replicas"), PARTS.index("exchange"))
    memory = _is(steps.columns["partner"], "streaming memory")
    part[:, 2] = np.where(memory, PARTS.index("memory"), PARTS.index("host"))
    part[:, 3] = np.where(_is(steps.columns["kind"], "copy"), PARTS.index("arrange"), PARTS.index("compute"))
    return part


def _cut(start: Int64, cycles: Int64, step: Int32, rows: Int64 | slice) -> tuple[Int64, Int64, Int32]:
    """Start, length and step of spans of one lane, in order; where a file says that they overlap, the first stays."""
    begin = start[rows].copy()
    end = begin + np.maximum(cycles[rows], 0)
    reached = np.maximum.accumulate(end) if len(end) else end
    begin[1:] = np.maximum(begin[1:], reached[:-1])
    return begin, np.maximum(end - begin, 0), step[rows]


def _streams(report: Report, program: int, start: Int64, step: Int32) -> list[tuple[str, Int64]]:
    """The host and streaming memory, where a program streams, and the spans that exchange something with them.

    The groups that meet in a stream have a span each, of which one stands here.
    """
    steps = report.steps
    streams = (steps["host_cycles"] > 0) & (steps["program"] == program) & (steps["executions"] > 0)
    memory = _is(steps.columns["partner"], "streaming memory")
    found = []
    for name, wanted in (("host streams", streams & ~memory), ("streaming memory", streams & memory)):
        if not wanted.any():
            continue
        rows = np.flatnonzero(wanted[step])
        found.append((name, rows[first_of_each(start[rows], step[rows])]))
    return found


def first_of_each(start: Int64, step: npt.NDArray[np.integer[Any]]) -> Int64:
    """Places of spans that differ in start or step, one of each, in order of their starts."""
    order = np.lexsort((step, start))
    ordered, steps = start[order], step[order]
    differs = (ordered[1:] != ordered[:-1]) | (steps[1:] != steps[:-1])
    return np.asarray(order[np.append(True, differs)] if len(order) else order, np.int64)


def _slots(report: Report, step: Int32, cycles: Int64) -> Int64:
    """Ends of the slots of spans, int64[spans, SLOTS]: whole cycles, in the proportions of their steps."""
    steps = report.steps
    named = ("sync_cycles", "exchange_cycles", "host_cycles", "compute_cycles")
    ends = np.cumsum(np.stack([steps[name] for name in named], axis=1).astype(np.int64), axis=1)
    whole = np.maximum(ends[:, -1], 1)
    found = ends[step]
    scaled = cycles != found[:, -1]
    if scaled.any():
        share = cycles[scaled] / whole[step[scaled]]
        found[scaled] = np.rint(found[scaled] * share[:, None]).astype(np.int64)
        found[:, -1] = cycles
        np.minimum(found, cycles[:, None], out=found)
    return found


def _critical(report: Report, program: int) -> Float64:
    """Part of the cycles of each step that is on the critical path, float64[steps]."""
    steps, rows = report.steps, report.critical
    mine = rows["program"] == program
    on_path = np.bincount(rows["step"][mine], rows["cycles"][mine], len(steps)) if len(steps) else np.zeros(0)
    whole = np.maximum(steps["cycles"] * steps["executions"], 1)
    return np.asarray(np.clip(on_path / whole, 0, 1), np.float64)


def _is(column: object, word: str) -> npt.NDArray[np.bool_]:
    """Rows of a text column that hold a word."""
    assert isinstance(column, Text)
    code = column.words.index(word) if word in column.words else -1
    return np.asarray(column.codes == code, np.bool_)


def stepped_shares(covered: Float64, widths: Float64) -> npt.NDArray[np.uint8]:
    """Parts of cells as 255ths, uint8[cells, parts]: their sum is that of the cell, rounded once.

    Args:
        covered: Cycles of each part, float64[cells, parts].
        widths: Cycles of each cell, float64[cells].
    """
    ends = np.cumsum(covered, axis=1) / np.maximum(widths, 1e-12)[:, None]
    rounded = np.rint(np.clip(ends, 0, 1) * 255)
    return np.diff(rounded, axis=1, prepend=0).astype(np.uint8)


def loops_of(opened: Opened, lanes: GroupLanes, program: int, lane: int) -> Looped:
    """The executions of a lane in their loops; worked out once."""
    group = int(lanes.group[lane])
    return opened.once(f"loops {program} {group}", lambda: looped(opened.report, program, group))


def looped_covered(opened: Opened, lanes: GroupLanes, program: int, lane: int, edges: Float64) -> Float64:
    """Cycles that each part takes between neighbouring edges, float64[cells, parts], of a run too long to unfold.

    How many executions of a span of the run are done before an instant follows from the loops around it, and how far
    the one that goes on has come; so that the sums are exact whatever the number of trips.
    """
    spans = loops_of(opened, lanes, program, lane)
    cuts = _slots(opened.report, spans.step.astype(np.int32), spans.cycles.astype(np.int64)).astype(np.float64)
    starts = np.concatenate([np.zeros((len(cuts), 1)), cuts[:, :-1]], axis=1)
    part = lanes.part[spans.step]
    before = np.zeros((len(edges), len(PARTS)))
    for n, at in enumerate(edges.tolist()):
        done, inside = spans.before(at)
        slots = done[:, None] * (cuts - starts) + np.clip(inside[:, None] - starts, 0, cuts - starts)
        before[n] = np.bincount(part.reshape(-1), slots.reshape(-1), len(PARTS))
    return np.diff(before, axis=0)
