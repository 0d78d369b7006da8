"""Constants with their sources, as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from abele.cli.output import console
from abele.machine import MachineConstant, Source

_STYLES = {"S": "green", "D": "cyan", "C": "blue", "M": "blue", "G": "yellow", "U": "magenta"}


def show_constants(title: str, constants: Iterable[MachineConstant], works: Mapping[str, str]) -> None:
    """Print constants with their sources, and the works that these abbreviate."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("constant", "value", "meaning", "", "source"):
        table.add_column(heading, justify="right" if heading == "value" else "left", overflow="fold")
    for item in constants:
        mark = Text(item.source.confidence, style=_STYLES[item.source.confidence])
        table.add_row(item.path, item.text, item.meaning, mark, _source_text(item.source))
    out = console()
    out.print(table)
    out.print()
    for key, work in works.items():
        out.print(f"{key:<8}  {work}", style="dim", soft_wrap=True)


def _source_text(source: Source) -> str:
    return source.text + (f"; calibrated on {', '.join(source.calibrated_on)}" if source.calibrated_on else "")
