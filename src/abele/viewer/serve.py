"""``view``: a server on the loopback for some reports, and the browser that opens its page."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from abele.errors import InvalidOptionError, MissingPackageError
from abele.report import Report

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

HOST = "127.0.0.1"
_PATIENCE_SECONDS = 10.0
_GRACE_SECONDS = 2
"""Seconds that running answers get to finish when the viewer is closed."""


@dataclass
class Viewer:
    """A running viewer.

    Attributes:
        address: Address of its page; it holds the token.
    """

    address: str
    _server: uvicorn.Server
    _thread: threading.Thread

    def close(self) -> None:
        """Stop it; pages that are open say so."""
        self._server.should_exit = True
        self._thread.join(_PATIENCE_SECONDS)

    def wait(self) -> None:
        """Wait until it is stopped, by Ctrl-C for instance."""
        while self._thread.is_alive():
            self._thread.join(0.5)


def view(
    reports: Sequence[str | Path | Report] | str | Path | Report, *, port: int = 0, browser: bool = True
) -> Viewer:
    """Show reports in the browser.

    Args:
        reports: One report or several, or their files.
        port: The port to listen on; any free one by default.
        browser: Open the page in the user's browser.

    Returns:
        The viewer, which goes on in a thread of this process until it is closed.

    Raises:
        FileFormatError: A file cannot be read, or is no report.
        InvalidOptionError: No reports, too many, or the port is taken.
        MissingPackageError: The packages of the extra ``view`` are not installed.
    """
    from abele.viewer.open_reports import Shelf

    sources = [reports] if isinstance(reports, str | Path | Report) else list(reports)
    require_packages()
    from abele.viewer.app import viewer_app

    shelf = Shelf(sources)
    return serve(lambda token, found: viewer_app(shelf, token, found), port=port, browser=browser)


def require_packages() -> None:
    """The packages that serving needs are installed.

    Raises:
        MissingPackageError: One is not.
    """
    try:
        import starlette
        import uvicorn
    except ImportError as error:
        raise MissingPackageError(
            f"the viewer needs {error.name}, which is not installed", remedy="pip install 'abele[view]'"
        ) from error
    del starlette, uvicorn


def serve(app: Callable[[str, int], ASGIApp], *, port: int = 0, browser: bool = True) -> Viewer:
    """Serve an application on the loopback, in a thread of this process.

    Args:
        app: Makes it of the token that requests must bring and the port.
        port: The port to listen on; any free one by default.
        browser: Open its page in the user's browser.

    Raises:
        InvalidOptionError: The port is taken.
    """
    import uvicorn

    from abele.viewer.guard import new_token

    with _listening(port) as listener:
        found, token = listener.getsockname()[1], new_token()
        config = uvicorn.Config(
            app(token, found),
            log_level="error",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=60,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="abele viewer", daemon=True)
        thread.start()
    address = f"http://{HOST}:{found}/?token={token}"
    limit = time.monotonic() + _PATIENCE_SECONDS
    while not server.started and thread.is_alive() and time.monotonic() < limit:
        time.sleep(0.005)
    if browser:
        webbrowser.open(address)
    return Viewer(address, server, thread)


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """A socket that listens on the loopback; closed again only where something fails."""
    # Named as TCP, asyncio sends at once; else each answer's body waits 40 ms for its head to be acknowledged.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
        yield listener
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OverflowError) or error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise InvalidOptionError(
                f"port {port} cannot be listened on: {error}", remedy="another --port; 0 takes any that is free"
            ) from error
        raise
    except BaseException:
        listener.close()
        raise
