"""What a report is of: target, graph, meta and the sizes of its tables, for the frame of the page and the summary."""

from __future__ import annotations

from typing import Any

from abele.report.schema import TABLES
from abele.viewer.answers.registry import once, question
from abele.viewer.opened import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer


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
        "programs": list(report.meta.get("programs", ())),
        "cycles": opened.cycles,
        "clock_hz": report.target.get("clock_hz"),
        "num_tiles": report.memory.num_tiles,
        "available_bytes": report.memory.available_bytes,
        "fits": report.memory.fits,
        "fullest_tile": report.memory.fullest_tile,
    }
    return Answer(head)
