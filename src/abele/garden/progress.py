"""Progress bars of the demos."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Advance(Protocol):
    """Moves a bar on by one and shows a figure beside it."""

    def __call__(self, figure: str = "") -> None:
        """Advance by one."""


@contextmanager
def progress_bar(console: Console, title: str, total: int) -> Iterator[Advance]:
    """A bar of ``total`` steps under ``title``; it stays on the screen when done."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figure]}"),
    )
    with Progress(*columns, console=console, transient=False) as progress:
        task = progress.add_task(title, total=total, figure="")

        def advance(figure: str = "") -> None:
            progress.update(task, advance=1, figure=figure)

        yield advance
