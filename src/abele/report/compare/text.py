"""A comparison as a page of text."""

from __future__ import annotations

from collections.abc import Iterator

from abele.report.compare.model import HeadlineFigure, ReportComparison
from abele.report.energy import amount_text
from abele.report.text import bytes_text, count_text, percent_text, seconds_text, source_text
from abele.terminal import shown_text
from abele.words import shortened, visible

_LONGEST_LABEL = 28


def comparison_text(found: ReportComparison) -> str:
    """Headline figures, the first change, regressions and gains, and notes."""
    parts = [list(_figures(found)), list(_first_changes(found)), list(change_lines(found)), list(found.notes)]
    return shown_text("\n\n".join("\n".join(map(visible, part)) for part in parts if part))


def value_text(value: float | None, unit: str) -> str:
    """A figure in its unit."""
    if value is None:
        return "-"
    if unit == "bytes":
        return bytes_text(value) if value >= 0 else f"−{bytes_text(-value)}"
    if unit == "seconds":
        return seconds_text(value)
    if unit == "joules":
        return amount_text(value, "J")
    if unit == "proportion":
        return percent_text(value)
    return f"{value:,.0f}" if float(value).is_integer() else count_text(value)


def difference_text(figure: HeadlineFigure, report: int) -> str:
    """A report's difference against the first, with its proportion; nothing where there is none."""
    difference, proportion = figure.differences[report], figure.proportions[report]
    if difference is None or not difference:
        return ""
    sign = "+" if difference > 0 else "−"
    if figure.unit == "proportion":
        return f"{sign}{abs(difference):.1%} points"
    share = f" ({sign}{percent_text(abs(proportion))})" if proportion is not None else ""
    return f"{sign}{value_text(abs(difference), figure.unit)}{share}"


def figure_rows(found: ReportComparison) -> Iterator[tuple[str, ...]]:
    """A row for each headline figure: title, the first report's, and each other's with its difference."""
    for figure in found.figures:
        cells = [figure.title, value_text(figure.values[0], figure.unit)]
        for n in range(1, len(figure.values)):
            cells += [value_text(figure.values[n], figure.unit), difference_text(figure, n)]
        yield tuple(cells)


def headings(found: ReportComparison) -> tuple[str, ...]:
    """Headings of these rows."""
    labels = [shortened(report.label, _LONGEST_LABEL) for report in found.reports]
    cells = ["", labels[0]]
    for label in labels[1:]:
        cells += [label, "difference"]
    return tuple(cells)


def _figures(found: ReportComparison) -> Iterator[str]:
    rows = [headings(found), *figure_rows(found)]
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = zip(row, width, strict=True)
        yield "  ".join([first[0].ljust(first[1]), *(cell.rjust(size) for cell, size in others)]).rstrip()


def _first_changes(found: ReportComparison) -> Iterator[str]:
    for n, change in enumerate(found.first_change[1:], 1):
        label = found.reports[n].label
        if change is None:
            yield f"{label}: no step differs"
        else:
            source = f"  ({source_text(change.where.file, change.where.line)})" if change.where else ""
            yield f"{label}: first differs in {change.title}: {change.what}{source}"


def change_lines(found: ReportComparison) -> Iterator[str]:
    """A line for each regression and gain."""
    several = len(found.reports) > 2
    for change in found.insights:
        source = f"  ({source_text(change.where.file, change.where.line)})" if change.where else ""
        label = f"{found.reports[change.report].label}: " if several else ""
        yield f"{change.kind:<10}  {label}{change.title}: {change.reason}{source}"
