"""``abele report --sql``: a query of a report, and its answer as a table, JSON or CSV."""

from __future__ import annotations

import csv
import math
import sys
from typing import TYPE_CHECKING, Any

from abele import terminal
from abele.cli.output import console, print_json
from abele.words import counted, visible

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from abele.report import Report, Table

_WIDEST = 10_000
"""Characters of a line where no terminal folds it."""


def print_answer(report: Report, query: str, *, top: int, as_json: bool, as_csv: bool) -> None:
    """Print the answer to a query.

    Args:
        report: The report.
        query: One statement of SQL.
        top: Rows of the table on a terminal; JSON and CSV have all.
        as_json: A list of objects, one per row.
        as_csv: Comma-separated values with a line of names.

    Raises:
        QueryError: The query cannot be answered.
        MissingPackageError: DuckDB is not installed.
    """
    answer = report.sql(query)
    if as_json:
        print_json([{name: _finite(value) for name, value in row.items()} for row in answer.rows()])
    elif as_csv:
        _print_csv(answer)
    else:
        wide = console() if sys.stdout.isatty() else terminal.console(width=_WIDEST)
        wide.print(_grid(answer, top))
        if len(answer) > top:
            print(f"{counted(len(answer) - top, 'row')} more: --top, --csv or --json", file=sys.stderr)


def _finite(value: Any) -> Any:
    """A value as JSON has it: infinities and NaN are null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_csv(answer: Table) -> None:
    # A file gets what names are; a terminal must not obey them.
    shown = visible if sys.stdout.isatty() else str
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([shown(name) for name in answer.names])
    for row in answer.rows():
        values = [_finite(value) for value in row.values()]
        writer.writerow([shown(value) if isinstance(value, str) else value for value in values])


def _grid(answer: Table, top: int) -> Grid:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, padding=(0, 2, 0, 0))
    first = answer.select(slice(top))
    for name in answer.names:
        is_text = any(isinstance(value, str) for value in first[name].tolist())
        grid.add_column(Text(name), justify="left" if is_text else "right", overflow="fold")
    for row in first.rows():
        grid.add_row(*(Text(_text(value)) for value in row.values()))
    return grid


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
