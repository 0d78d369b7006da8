"""The summary of a report for terminals, in colour."""

from __future__ import annotations

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text

from abele.report.report import Report
from abele.report.summary import facts, group_lines, op_lines
from abele.report.text import bytes_text, category_text, count_text, percent_text
from abele.words import visible

_COLOURS = {"compute": "green", "exchange": "dark_orange", "sync": "magenta", "host": "cyan"}
_BAR_WIDTH = 40


def render(report: Report) -> RenderableType:
    """Summary, cycle split, fullest tile and most expensive operations as rich renderables."""
    groups = [_groups(report)] if group_lines(report) else []
    return Group(_facts(report), _cycles(report), *groups, _memory(report), _ops(report))


def _facts(report: Report) -> RenderableType:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for label, text in facts(report):
        if label not in ("spent on", "which holds"):
            grid.add_row(Text(label), Text(text))
    return Panel(
        grid, title=Text(visible(str(report.meta.get("name", "report")))), title_align="left", border_style="blue"
    )


def _cycles(report: Report) -> RenderableType:
    step = report.step_cycles
    grid = _bars(visible(f"cycles of one {report.meta.get('step_name', 'step')}"))
    for part, share in step.shares().items():
        cycles = count_text(getattr(step, part))
        bar = Bar(1.0, 0.0, share, width=_BAR_WIDTH, color=_COLOURS[part])
        grid.add_row(category_text(part), cycles, percent_text(share), bar)
    return grid


def _groups(report: Report) -> RenderableType:
    grid = Grid(title="sync groups", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in ("busy", "cycles", "idle", "tiles"):
        grid.add_column(name, justify="right")
    grid.add_column("mostly")
    grid.add_column("sync group", overflow="fold")
    for group in group_lines(report):
        grid.add_row(group.busy, group.cycles, group.idle, group.tiles, group.mostly, Text(group.name))
    return grid


def _memory(report: Report) -> RenderableType:
    memory = report.memory
    tile = memory.fullest_tile
    total = max(int(memory.by_tile[tile]), 1)
    grid = _bars(f"bytes of the fullest tile, {tile}")
    for name, held in sorted(memory.of_tile(tile).items(), key=lambda item: -item[1]):
        if held:
            bar = Bar(1.0, 0.0, held / total, width=_BAR_WIDTH, color="blue")
            grid.add_row(Text(visible(category_text(name))), bytes_text(held), percent_text(held / total), bar)
    return grid


def _bars(title: str) -> Grid:
    grid = Grid(
        title=Text(title), title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2, 0, 0)
    )
    grid.add_column()
    grid.add_column(justify="right")
    grid.add_column(justify="right")
    grid.add_column()
    return grid


def _ops(report: Report) -> RenderableType:
    grid = Grid(
        title="most expensive operations", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
    )
    grid.add_column("share", justify="right")
    grid.add_column("cycles", justify="right")
    grid.add_column("mostly")
    grid.add_column("operation", overflow="fold")
    grid.add_column("source", overflow="fold", style="dim")
    for op in op_lines(report):
        grid.add_row(op.share, op.cycles, op.mostly, Text(op.name), Text(op.source))
    return grid
