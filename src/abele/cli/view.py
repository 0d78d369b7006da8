"""``abele view``: reports in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def view(
    files: Annotated[list[Path], typer.Argument(help="Report files, one to eight; beside them traces of the host.")],
    port: Annotated[int, typer.Option("--port", help="Port to listen on; any free one by default.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Show reports in the browser, beside each other where there are several."""
    from abele.viewer import view as show

    viewer = show(files, port=port, browser=browser)
    typer.echo(f"{viewer.address}\nCtrl-C stops the viewer")
    try:
        viewer.wait()
    finally:
        viewer.close()
