"""The bar that shows how far compiling is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars

from abele import terminal

Progress = Callable[[str, float], None]

STAGES = ("capture", "lower to libraries", "lower", "supersteps", "memory")
"""Stages of compiling in order; those of the compiler keep its names."""


@contextmanager
def compilation_progress(shown: bool, title: str = "Graph compilation") -> Iterator[Progress]:
    """A function that moves the bar: called with a stage and the part of it that is done.

    The bar goes to the standard error, and only where that is a terminal.
    """
    console = terminal.console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda stage, fraction: None
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.percentage:>3.0f} %"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=len(STAGES))

        def report(stage: str, fraction: float) -> None:
            done = STAGES.index(stage) if stage in STAGES else bar.tasks[0].completed
            bar.update(task, description=f"{title}: {stage}", completed=done + fraction)

        yield report
        bar.update(task, description=title, completed=len(STAGES))
