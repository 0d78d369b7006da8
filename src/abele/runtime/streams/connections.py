"""Streams of an engine: the connection of each, and the threads that fetch ahead for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from abele.graph import Stream
from abele.runtime.control.virtual_machine import VirtualMachine
from abele.runtime.streams.connection import Connection
from abele.runtime.streams.prefetch import PrefetchThreads

if TYPE_CHECKING:
    from abele.runtime.engine.options import EngineOptions


class Connections:
    """Connections by stream; they outlive the virtual machine that serves them.

    Args:
        options: Options; they say how far, and by how many threads, data is fetched ahead.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._connections: dict[Stream, Connection] = {}
        self._served: dict[Stream, Connection] = {}
        self._lookahead = (
            options.number("streamCallbacks.maxLookahead") if options.flag("exchange.enablePrefetch") else 0
        )
        num = options["streamCallbacks.numWorkerThreads"]
        if options["streamCallbacks.multiThreadMode"] == "singleThread":
            num = 1
        self._threads = PrefetchThreads(max(1, int(num))) if num != "auto" else None
        self._own_threads: dict[Stream, PrefetchThreads] = {}

    def connect(self, stream: Stream, data: Any, begin: int | None = None, end: int | None = None) -> Connection:
        """Connect a stream, in place of its connection so far.

        Raises:
            StreamConnectionError: The data does not fit.
        """
        connection = Connection(stream, data, begin, end)
        before = self._connections.get(stream)
        if before is not None:
            before.discard()
        self._connections[stream] = connection
        self._served.pop(stream, None)
        if connection.is_staged:
            self._served[stream] = connection
            items = min(stream.buffering_depth - 1, self._lookahead)
            connection.look_ahead(items, self._threads_for(stream))
        return connection

    def _threads_for(self, stream: Stream) -> PrefetchThreads:
        if self._threads is not None:
            return self._threads
        return self._own_threads.setdefault(stream, PrefetchThreads(1))

    def attach(self, machine: VirtualMachine) -> None:
        """Let a machine serve its streams by these connections."""
        for stream, connection in self._connections.items():
            if stream in machine.streams:
                machine.connect(connection)

    def of(self, streams: Iterable[Stream]) -> list[Connection]:
        """The connections of some streams; those without one are left out."""
        return [self._connections[s] for s in streams if s in self._connections]

    def rewind(self, machine: VirtualMachine) -> None:
        """Begin every array at its beginning, and drop prefetched data."""
        for stream, connection in self._connections.items():
            connection.rewind()
            if stream in machine.streams:
                machine.rewind(stream)

    def begin_run(self, streams: Iterable[Stream], machine: VirtualMachine) -> None:
        """A run starts that uses some streams."""
        for connection in self._served_among(streams):
            machine.rewind(connection.stream)
            connection.begin_run()

    def end_run(self, streams: Iterable[Stream]) -> BaseException | None:
        """End a run; gives the first error of data that was fetched ahead and never used."""
        failure: BaseException | None = None
        for connection in self._served_among(streams):
            try:
                failure = failure or connection.end_run()
            except BaseException as error:
                self.abandon()
                failure = failure or connection.end_run() or error
        return failure

    def _served_among(self, streams: Iterable[Stream]) -> Iterable[Connection]:
        """The connections of some streams that Python serves; arrays that hold whole copies take care of themselves."""
        return [self._served[s] for s in streams if s in self._served] if self._served else ()

    def abandon(self) -> None:
        """Wait for no data any more in the run that is under way."""
        for connection in list(self._connections.values()):
            connection.abandon()

    def close(self) -> None:
        """End the threads; a later run starts them again."""
        for threads in (self._threads, *self._own_threads.values()):
            if threads is not None:
                threads.close()
