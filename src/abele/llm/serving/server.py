"""A server that listens, and stops with grace: what runs may finish, what comes is refused."""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import uvicorn

from abele.errors import InvalidOptionError
from abele.llm.serving.app import serving_app
from abele.llm.serving.limits import ServingLimits
from abele.llm.serving.served import ServedModel
from abele.llm.serving.worker import GenerationWorker

_LOG = logging.getLogger("abele.serving")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_BACKLOG = 1024
_SEND_BYTES = 1 << 18
"""Bytes that the kernel holds for a reader. Left to itself it takes megabytes, thousands of tokens nobody reads."""
_FLUSH_SECONDS = 3
"""Seconds for written answers to leave."""


def serve(
    model: ServedModel,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    origins: Sequence[str] = (),
    limits: ServingLimits | None = None,
    started: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a model until SIGTERM or Ctrl-C.

    Args:
        model: The model.
        host: Address to listen on; the loopback by default, which no other machine reaches.
        port: Port to listen on; 0 for any that is free.
        key: Key that clients must bring.
        origins: Origins of other sites whose pages may ask.
        limits: Limits of clients and of the server.
        started: Called with the address when it listens.

    Raises:
        InvalidOptionError: The address cannot be listened on, or the key is empty.
        KeyboardInterrupt: Ctrl-C stopped it.
    """
    limits = ServingLimits() if limits is None else limits
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise InvalidOptionError("the key must be printable ASCII without spaces around it", at="key")
    worker = GenerationWorker(model.engine, limits)
    with _listening(host, port, limits) as listener:
        app = serving_app(model, worker, key=key, loopback=host in _LOOPBACK, origins=origins)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_FLUSH_SECONDS,
        )
        server = GracefulServer(config, worker)
        found = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        started(f"http://{shown}:{found}/")
        server.run(sockets=[listener])
    if server.interrupted:
        raise KeyboardInterrupt


class GracefulServer(uvicorn.Server):
    """A server that lets running requests finish when it is told to stop.

    The first signal refuses new requests and waits, the second gives up what runs.

    Args:
        config: The server's settings.
        worker: The worker whose requests may finish.
    """

    def __init__(self, config: uvicorn.Config, worker: GenerationWorker) -> None:
        super().__init__(config)
        self.interrupted = False
        self._worker = worker
        self._deadline: float | None = None
        self._gave_up = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        del frame
        self.interrupted = self.interrupted or sig == signal.SIGINT
        # No more than this: a handler may run while this thread holds the worker's lock.
        grace = 0.0 if self._worker.is_stopping else self._worker.limits.grace_seconds
        self._worker.stop_accepting()
        self._deadline = time.monotonic() + grace

    async def on_tick(self, counter: int) -> bool:
        """Look whether it is time to end, ten times per second."""
        if self._deadline is not None and not self.should_exit:
            if self._worker.num_open == 0:
                self.should_exit = True
            elif time.monotonic() > self._deadline:
                if self._gave_up:
                    self.should_exit = True
                self._worker.give_up_all()
                self._gave_up = True
        return await super().on_tick(counter)


@contextlib.contextmanager
def _listening(host: str, port: int, limits: ServingLimits) -> Iterator[socket.socket]:
    """A socket that listens."""
    if not 0 <= port < 1 << 16:
        # The system would take it modulo 65,536.
        raise InvalidOptionError(f"port {port} is none: they go from 0 to 65535", remedy="0 takes any that is free")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InvalidOptionError(f"{host} port {port} is no address: {error}", remedy="--host 127.0.0.1") from error
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                # A reader that is gone or takes nothing loses its connection, even where the server has let go of it.
                milliseconds = int(1000 * limits.stall_seconds)
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OverflowError) or error.errno in (errno.EADDRINUSE, errno.EACCES)
            remedy = "another --port; 0 takes any that is free" if taken else "--host 127.0.0.1"
            raise InvalidOptionError(f"{host} port {port} cannot be listened on: {error}", remedy=remedy) from error
        yield listener
