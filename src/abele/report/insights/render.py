"""Insights for terminals, in colour."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from abele.report.insights.model import Cost, Insights
from abele.report.insights.text import head_lines, lever_text, memory_lines, roof_lines
from abele.report.text import bytes_text, count_text, percent_text, source_text
from abele.words import visible


def render_insights(found: Insights) -> RenderableType:
    """Limit of the program, the costs with their levers, memory of the fullest tile, and rooflines."""
    parts: list[RenderableType] = [_head(found)]
    for number, cost in enumerate(found.costs, 1):
        parts += [Text(""), *_cost(number, cost)]
    if found.memory_costs:
        parts += [Text(""), Text(f"on tile {found.memory.tile:,}, the fullest", style="bold")]
        parts += [Text(visible(line)) for line in memory_lines(found)]
    if found.roofline.ops:
        first, *rest = roof_lines(found.roofline)
        parts += [Text(""), Text(first, style="bold"), *(Text(visible(line)) for line in rest)]
    parts += [Text(""), *(Text(visible(note), style="dim") for note in found.notes)]
    return Group(*parts)


def _head(found: Insights) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for label, text in head_lines(found):
        grid.add_row(Text(visible(label)), Text(visible(text)))
    return grid


def _cost(number: int, cost: Cost) -> list[RenderableType]:
    figures = bytes_text(cost.bytes) if cost.kind == "memory" else f"{count_text(cost.cycles)} cycles"
    title = Text(f"{number}. {visible(cost.title)}", style="bold")
    title.append(f": {figures}, {percent_text(cost.share)}", style="dark_orange")
    if cost.where:
        title.append(f"  {source_text(cost.where.file, cost.where.line)}", style="dim")
    levers = [Text(visible(f"   - {lever_text(lever)}"), style="green") for lever in cost.levers]
    return [title, Text(visible(f"   {cost.reason}")), *levers]
