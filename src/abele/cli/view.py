"""``abele view``: reports in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from abele.report import Report


def view(
    files: Annotated[
        list[Path], typer.Argument(help="Report files, one to eight; of a folder, the newest report in it.")
    ],
    port: Annotated[int, typer.Option("--port", help="Port to listen on; any free one by default.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the page to this file, which needs no server, and end.")
    ] = None,
    most_mb: Annotated[float, typer.Option("--most-mb", help="With --html: size of the file, in MB.")] = 8.0,
) -> None:
    """Show reports in the browser, beside each other where there are several.

    Ctrl-C stops the viewer, with exit status 130.
    """
    if html is not None:
        from abele.viewer import static_page

        size = static_page(files, html, most_mb * 1e6)
        typer.echo(f"{html}: {size:,} bytes, one file that needs no server")
        return
    serve(files, port=port, browser=browser)


def serve(reports: Sequence[Path | Report], *, port: int = 0, browser: bool = True, quiet: bool = False) -> None:
    """Show reports until Ctrl-C; the address goes to standard error where ``quiet`` keeps the output for data."""
    from abele.viewer import view as show

    viewer = show(reports, port=port, browser=browser)
    typer.echo(f"{viewer.address}\nCtrl-C stops the viewer", err=quiet)
    try:
        viewer.wait()
    finally:
        viewer.close()
