"""Facts of a report: target, graph, meta and the sizes of its tables, for the frame of the page and the summary."""

from __future__ import annotations

from typing import Any

from abele.errors import FileFormatError
from abele.report import Report
from abele.report.programs import num_programs, program_name
from abele.report.schema import TABLES
from abele.viewer.answers.registry import once, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

MOST_PROGRAMS = 1_000
"""Programs that can be chosen on the page."""


@question("facts", frozen=once, rank=0)
def facts(opened: Opened, params: Params) -> Answer:
    """Figures and names that are few."""
    report = opened.report
    head: dict[str, Any] = {
        "title": opened.title,
        "target": report.target,
        "graph": report.graph,
        "meta": {name: value for name, value in report.meta.items() if name != "tracepoints"},
        "rows": {name: len(getattr(report, name)) for name in TABLES if hasattr(report, name)},
        "programs": _programs(report),
        "cycles": opened.cycles,
        "clock_hz": report.target.get("clock_hz"),
        "num_tiles": report.memory.num_tiles,
        "available_bytes": report.memory.available_bytes,
        "fits": report.memory.fits,
        "fullest_tile": report.memory.fullest_tile,
    }
    return Answer(head)


def _programs(report: Report) -> list[str]:
    """Names of the programs that can be chosen; where the column of steps is damaged, of those that are named."""
    try:
        known = num_programs(report)
    except FileFormatError:
        known = len(report.meta.get("programs") or ())
    return [program_name(report, program) for program in range(min(known, MOST_PROGRAMS))]
