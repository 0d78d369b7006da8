"""Comparison for terminals, in colour: worse in red, better in green."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from abele.report.compare.model import ComparedColumn, ComparedTable, HeadlineFigure, ReportComparison
from abele.report.compare.text import difference_text, headings, value_text
from abele.report.text import source_text
from abele.words import visible

_ROWS = 10
_COLOURS = {"regression": "red", "gain": "green"}


def render_comparison(found: ReportComparison, rows: int = _ROWS) -> RenderableType:
    """Headline figures, the first change, regressions and gains, and the operations that changed most.

    Args:
        found: The comparison.
        rows: Operations and steps that are listed.
    """
    parts: list[RenderableType] = [_figures(found), _first(found)]
    if found.insights:
        parts.append(_changes(found))
    for name in ("ops", "steps", "variables", "memory"):
        changed = [row for row in found.tables[name].rows if row.status != "same"]
        if changed:
            parts.append(_table(name, found, found.tables[name], rows))
    parts += [Text(visible(note), style="yellow") for note in found.notes]
    return Group(*parts)


def colour(difference: float | None, better: str) -> str:
    """Colour of a difference: red for worse, green for better, none where neither can be said."""
    if not difference or not better:
        return ""
    return "green" if (difference < 0) == (better == "less") else "red"


def _grid(title: str) -> Grid:
    return Grid(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))


def _figures(found: ReportComparison) -> RenderableType:
    grid = _grid("compared")
    for n, heading in enumerate(headings(found)):
        grid.add_column(Text(heading), justify="right" if n else "left")
    for figure in found.figures:
        cells = [Text(figure.title), Text(value_text(figure.values[0], figure.unit))]
        for n in range(1, len(figure.values)):
            cells.append(Text(value_text(figure.values[n], figure.unit)))
            cells.append(Text(difference_text(figure, n), style=colour(figure.differences[n], figure.better)))
        grid.add_row(*cells)
    return grid


def _first(found: ReportComparison) -> RenderableType:
    grid = _grid("what changed first")
    grid.add_column()
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold", style="dim")
    for report, change in zip(found.reports[1:], found.first_change[1:], strict=True):
        if change is None:
            grid.add_row(Text(report.label), Text("no step differs"), Text(""))
        else:
            source = source_text(change.where.file, change.where.line) if change.where else ""
            grid.add_row(Text(report.label), Text(visible(f"{change.title}: {change.what}")), Text(visible(source)))
    return grid


def _changes(found: ReportComparison) -> RenderableType:
    grid = _grid("regressions and gains")
    grid.add_column()
    if len(found.reports) > 2:
        grid.add_column()
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold", style="dim")
    for change in found.insights:
        cells = [Text(change.kind, style=_COLOURS[change.kind])]
        if len(found.reports) > 2:
            cells.append(Text(found.reports[change.report].label))
        source = source_text(change.where.file, change.where.line) if change.where else ""
        grid.add_row(*cells, Text(visible(f"{change.title}: {change.reason}")), Text(visible(source)))
    return grid


def _table(name: str, found: ReportComparison, table: ComparedTable, rows: int) -> RenderableType:
    column = table.columns[0]
    grid = _grid(f"{name}, {column.name.replace('_', ' ')}")
    for n, heading in enumerate(headings(found)[1:]):
        grid.add_column(Text(heading if n else found.reports[0].label), justify="right")
    grid.add_column("")
    grid.add_column("", overflow="fold")
    listed = [row for row in table.rows if row.status != "same"][:rows]
    for row in listed:
        values = row.values[column.name]
        figure = _figure(column, values)
        cells = [Text(value_text(values[0], column.unit))]
        for n in range(1, len(values)):
            cells.append(Text(value_text(values[n], column.unit)))
            cells.append(Text(difference_text(figure, n), style=colour(figure.differences[n], column.better)))
        title = "/".join(str(word) for key, word in row.key.items() if word and key not in ("kind", "type"))
        grid.add_row(*cells, Text(row.status), Text(title))
    return grid


def _figure(column: ComparedColumn, values: tuple[float | None, ...]) -> HeadlineFigure:
    return HeadlineFigure(column.name, column.name, column.unit, column.better, values)
