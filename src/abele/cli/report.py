"""``abele report``: print a report file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from abele.cli.output import console, print_json


def report(
    file: Annotated[Path, typer.Argument(help="A report file, as abele demo --report writes it.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the report in FILE."""
    from abele.report import Report
    from abele.report.render import render

    loaded = Report.load(file)
    if json:
        print_json(loaded.to_json())
    else:
        console().print(render(loaded))
