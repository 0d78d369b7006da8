"""Views of a report: one line, and a card for notebooks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abele import card
from abele.report.text import CYCLE_COLOURS, category_text, count_text, percent_text, seconds_text
from abele.words import counted, shortened, visible

if TYPE_CHECKING:
    from abele.report.report import Report
    from abele.report.table import Table

_LONGEST_NAME = 60
_COSTS = 3
"""Costs that the card of a report lists."""
_ROWS = 20
"""Rows that the card of a table lists."""
_LINES_SHOWN_OTHERWISE = ("spent on",)


def report_line(report: Report) -> str:
    """Name, system, cycles, fullest tile and runs of a report."""
    name = report.meta.get("name")
    named = f"{shortened(str(name), _LONGEST_NAME)!r}, " if name else ""
    cycles = report.total_cycles
    seconds = seconds_text(report.seconds(cycles)).replace("µ", "u")  # A terminal may know no more than ASCII.
    runs = f", {counted(len(report.runs), 'run')}" if len(report.runs) else ", not run"
    return visible(
        f"Report({named}{report.target['name']}: {count_text(cycles)} cycles = {seconds}, "
        f"{memory_line(report.memory.by_tile, report.memory.available_bytes)}{runs})"
    )


def view_hint(path: Path) -> str:
    """Line that says how to look at a written report."""
    return f"report written: abele view {visible(shlex.quote(str(path)))}"


def memory_line(held: npt.NDArray[np.int64], available: int) -> str:
    """True if the tiles have room, and how full the fullest is.

    Args:
        held: Bytes on each tile, int64[tiles].
        available: Bytes that a tile has.
    """
    if not len(held):
        return "no tiles"
    tile = int(held.argmax())
    share = f"tile {tile} holds {held[tile]:,} of {available:,} B ({percent_text(int(held[tile]) / max(available, 1))})"
    full = int((held > available).sum())
    return f"does not fit on {counted(full, 'tile')}: {share}" if full else f"fits: {share}"


def report_card(report: Report) -> str:
    """A report as HTML: the lines of its summary, the split of its cycles, and its most expensive operations."""
    from abele.report.summary import facts, op_lines

    shown = [(label, text) for label, text in facts(report) if label not in _LINES_SHOWN_OTHERWISE]
    parts = [(category_text(name), share, CYCLE_COLOURS[name]) for name, share in report.step_cycles.shares().items()]
    ops = [(op.share, op.cycles, op.mostly, op.name, op.source) for op in op_lines(report)]
    headings = ("share", "cycles", "mostly", "operation", "source")
    listed = card.table(headings, ops, right=(0, 1)) if ops else ""
    return card.card(str(report.meta.get("name", "Report")), shown, card.shares(parts), listed, _costs(report))


def _costs(report: Report) -> str:
    """Main costs, and the first lever of each, as HTML."""
    from abele.report.insights.text import lever_text

    costs = report.insights().costs[:_COSTS]
    rows = [(percent_text(c.share), c.title, c.reason, lever_text(c.levers[0]) if c.levers else "") for c in costs]
    return card.table(("share", "what costs", "why", "what would help"), rows, right=(0,)) if rows else ""


def table_card(table: Table) -> str:
    """A table as HTML: its first rows."""
    few = table.select(slice(_ROWS))
    numbers = [i for i, name in enumerate(few.names) if few[name].dtype.kind in "iuf"]
    rows = [[_cell(value) for value in row.values()] for row in few.rows()]
    if len(table) > _ROWS:
        rows.append([f"… and {len(table) - _ROWS:,} more", *[""] * (len(few.names) - 1)])
    title = f"Table of {counted(len(table), 'row')}"
    return card.card(title, (), card.table(few.names, rows, right=numbers) if few.names else "")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
