"""Work of steps on selected tiles, and the codelets of their vertices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from abele.arrays import Array, Int64
from abele.report import Report
from abele.viewer.answers.holdings import MOST_ROWS, Overlap, chosen, rows_page, summed_by
from abele.viewer.answers.live_curve import peak_steps
from abele.viewer.answers.recent import recent
from abele.viewer.answers.registry import question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer


def _frozen_steps(opened: Opened) -> Iterator[Mapping[str, str]]:
    del opened
    yield {"sort": "-compute_here", "count": str(MOST_ROWS)}


@question("memory.steps", frozen=_frozen_steps, rank=6)
def steps(opened: Opened, params: Params) -> Answer:
    """Steps that do something on selected tiles: compute sets, and exchanges.

    Parameters: ``tiles``, ``filter``, ``sort``, ``first``, ``count``; ``of`` ``compute``, ``exchange`` or ``all``.

    Answer: as ``table``, with ``on`` (how many of the tiles), ``compute_here`` (cycles of the slowest of them),
    ``sent_here`` and ``received_here`` (bytes of all of them, one execution), and ``exchange_code`` bytes on all tiles.
    """
    report = opened.report
    text = params.text("tiles")
    phase = report.steps["phase"]
    held = recent(opened, "steps on tiles", text, lambda: _phases(report, chosen(opened, text)))
    known = phase >= 0
    last = len(held["on"]) - 1
    extra = {name: np.where(known, values[np.clip(phase, 0, last)], 0) for name, values in held.items()}
    extra["exchange_code"] = _exchange_code(report)
    kind = params.choice("of", ("all", "compute", "exchange"))
    kept = extra["on"] > 0
    if kind == "compute":
        kept &= extra["compute_here"] > 0
    elif kind == "exchange":
        kept &= (extra["sent_here"] > 0) | (extra["received_here"] > 0)
    return rows_page(opened, "steps", params, extra, kept)


def _exchange_code(report: Report) -> Int64:
    """Bytes of exchange instructions of each step's superstep over all tiles, int64[steps]; 0 where that is unknown."""
    held, superstep = report.supersteps["exchange_code_bytes"], report.steps["superstep"]
    known = (superstep >= 0) & (superstep < len(held))
    found = np.zeros(len(superstep), np.int64)
    found[known] = held[superstep[known]]
    return found


def _phases(report: Report, tiles: Int64) -> dict[str, Int64]:
    """Work of each phase on some tiles, int64[phases] by name; one row at least."""
    table = report.phase_tiles
    owner = table["phase"]
    most = max(int(report.steps["phase"].max(initial=0)), int(owner.max(initial=0))) + 1
    covered = Overlap(tiles, report.memory.num_tiles).of(table)
    slowest = np.zeros(most, np.int64)
    here = covered > 0
    np.maximum.at(slowest, owner[here], table["compute_cycles"][here])
    return {
        "on": summed_by(owner, covered, most),
        "compute_here": slowest,
        "sent_here": summed_by(owner, table["sent_bytes"] * covered, most),
        "received_here": summed_by(owner, table["received_bytes"] * covered, most),
    }


def _frozen_codelets(opened: Opened) -> Iterator[Mapping[str, str]]:
    yield {"sort": "-code_bytes", "count": str(MOST_ROWS)}
    yield from ({"step": str(step), "sort": "-code_bytes", "count": str(MOST_ROWS)} for step in peak_steps(opened))


@question("memory.codelets", frozen=_frozen_codelets, rank=6)
def codelets(opened: Opened, params: Params) -> Answer:
    """Codelets of the vertices in steps for which selected tiles compute.

    Parameters: ``tiles``, ``filter``, ``sort``, ``first``, ``count``; ``step`` for the vertices of that step alone.

    Answer: as ``table``, with ``supersteps`` (how many of these run it), ``vertices``, ``state_bytes`` and ``cycles``
    of its vertices there, on all tiles.
    """
    report = opened.report
    table, step = report.vertices, params.number("step", -1, low=-1)
    ran = np.zeros(len(report.supersteps), dtype=bool)
    if 0 <= step < len(report.steps):
        here = np.array([step])
    else:
        text = params.text("tiles")
        held = recent(opened, "steps on tiles", text, lambda: _phases(report, chosen(opened, text)))
        phase = report.steps["phase"]
        here = np.flatnonzero((phase >= 0) & (held["compute_here"][np.maximum(phase, 0)] > 0))
    superstep = report.steps["superstep"][here]
    ran[superstep[(superstep >= 0) & (superstep < len(ran))]] = True
    rows = np.flatnonzero(ran[table["superstep"]])
    owner, count = table["codelet"][rows], len(report.codelets)
    extra: dict[str, Array] = {
        "supersteps": np.bincount(owner, minlength=count).astype(np.int64),
        "vertices": summed_by(owner, table["num_vertices"][rows], count),
        "state_bytes": summed_by(owner, table["state_bytes"][rows], count),
        "cycles": summed_by(owner, table["cycles"][rows], count),
    }
    return rows_page(opened, "codelets", params, extra, extra["supersteps"] > 0)
