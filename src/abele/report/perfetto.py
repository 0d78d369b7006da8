"""The modelled timeline of a report as a Perfetto trace: a track for each sync group, and memory over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.report.report import Report
from abele.report.schema import STEP_KINDS
from abele.report.text_column import Text
from abele.trace.perfetto import PerfettoWriter, perfetto_file

UNITS = ("seconds", "cycles")
_MEMORY = {
    "live_bytes": "not always-live bytes of all tiles",
    "max_tile_bytes": "not always-live bytes of the fullest tile",
}


def write_perfetto(report: Report, path: str | Path, *, unit: str = "seconds") -> None:
    """Write the first executions of a report's steps, which its spans are, as a Perfetto trace.

    Each program is a group of tracks, one per sync group. A slice has the step's name and kind, its row in the steps
    table, its cycles by part, and the bytes it exchanges. Below are the bytes of variables that live then.

    Args:
        report: The report.
        path: The file; packed if it ends in ``.gz``.
        unit: ``seconds``: at the machine's clock. ``cycles``: a nanosecond of the trace is a cycle, so that nothing is
            rounded.

    Raises:
        InvalidOptionError: There is no such unit.
        FileFormatError: The file cannot be written.
    """
    if unit not in UNITS:
        raise InvalidOptionError(f"time in {unit!r}", remedy="one of " + ", ".join(UNITS))
    scale = 1e9 / float(report.target["clock_hz"]) if unit == "seconds" else None
    with perfetto_file(path) as writer:
        programs = _programs(writer, report)
        _spans(writer, report, programs, scale)
        _memory(writer, report, programs, scale)


def _programs(writer: PerfettoWriter, report: Report) -> dict[int, int]:
    """A track for each program that has spans, by its number."""
    names = report.meta.get("programs") or []
    tracks = {}
    for rank, program in enumerate(np.unique(report.spans["program"]).tolist()):
        known = isinstance(names, list) and 0 <= program < len(names)
        tracks[program] = writer.process(rank + 1, f"program {names[program] if known else program}")
    return tracks


def _nanoseconds(cycles: Int64, scale: float | None) -> Int64:
    return cycles if scale is None else np.rint(cycles * scale).astype(np.int64)


def _spans(writer: PerfettoWriter, report: Report, programs: dict[int, int], scale: float | None) -> None:
    spans, steps, groups = report.spans, report.steps, report.groups
    lanes, lane = np.unique(np.stack([spans["program"], spans["group"]], axis=1), axis=0, return_inverse=True)
    names = groups["name"]
    tracks = np.array(
        [
            writer.track(str(names[group]), programs[program], rank)
            for rank, (program, group) in enumerate(lanes.tolist())
        ],
        np.int64,
    )
    step, start = spans["step"], spans["start_cycle"]
    begin = _nanoseconds(start, scale)
    end = _nanoseconds(start + spans["cycles"], scale)
    rows = np.arange(len(step))
    order = np.lexsort((rows, begin, lane.reshape(-1)))
    parts = ("compute_cycles", "exchange_cycles", "sync_cycles", "host_cycles", "exchanged_bytes")
    told: dict[str, Any] = {"step": step, "cycles": spans["cycles"]}
    told |= {name: steps[name][step] for name in parts}
    writer.slices(
        tracks[lane.reshape(-1)][order] if len(tracks) else np.zeros(0, np.int64),
        _codes(steps.columns["name"], writer.names)[step][order],
        _codes(steps.columns["kind"], writer.categories)[step][order],
        begin[order],
        (end - begin)[order],
        numbers={name: np.asarray(column, np.int64)[order] for name, column in told.items()},
    )


def _codes(column: Any, numbers: Any) -> Int64:
    """Numbers of the texts of a column, int64[n]."""
    assert isinstance(column, Text)
    known = numbers(column.words or STEP_KINDS[:1])
    found: Int64 = known[column.codes] if len(column.codes) else np.zeros(0, np.int64)
    return found


def _memory(writer: PerfettoWriter, report: Report, programs: dict[int, int], scale: float | None) -> None:
    """Counters of the bytes that live while steps run, where they change."""
    spans, liveness = report.spans, report.liveness
    if not len(liveness):
        return
    row_of = np.full(len(report.steps), -1, np.int64)
    row_of[liveness["step"]] = np.arange(len(liveness))
    for program, parent in programs.items():
        mine = np.flatnonzero(spans["program"] == program)
        mine = mine[np.argsort(spans["start_cycle"][mine], kind="stable")]
        mine = mine[row_of[spans["step"][mine]] >= 0]
        time = _nanoseconds(spans["start_cycle"][mine], scale)
        for rank, (column, name) in enumerate(_MEMORY.items()):
            values = liveness[column][row_of[spans["step"][mine]]]
            # The last of several at one moment stands; the same as before says nothing.
            last = np.append(time[1:] != time[:-1], True) if len(time) else np.zeros(0, np.bool_)
            kept = np.flatnonzero(last)
            kept = kept[np.append(True, values[kept][1:] != values[kept][:-1])] if len(kept) else kept
            track = writer.counter(name, "bytes", parent, 1_000_000 + rank)
            writer.counters(np.full(len(kept), track, np.int64), time[kept], values[kept].astype(np.float64))
