"""Lending: an engine's memory, streams and state handed to a debugger, and taken back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from abele.errors import EngineError
from abele.runtime.image import Host, Image, ImageOptions

if TYPE_CHECKING:
    from abele.compiler import Executable
    from abele.graph import Graph, Stream
    from abele.runtime.debugger.debugger import Debugger
    from abele.runtime.host.functions import HostFunctions
    from abele.runtime.host.remote_memory import RemoteMemory
    from abele.runtime.streams.connections import Connections


class Debuggable:
    """Mix-in of :class:`abele.Engine`."""

    if TYPE_CHECKING:
        graph: Graph
        executable: Executable
        _connections: Connections
        _functions: HostFunctions
        _remote: RemoteMemory
        _running: threading.Lock
        _streams: list[list[Stream]]

        def _index(self, program: int | str) -> int: ...
        def _image_options(self) -> ImageOptions: ...
        def _host(self) -> Host: ...
        def _prepared(self) -> Image: ...
        def _check_connected(self, index: int, image: Image) -> None: ...

    def debug(self, program: int | str = 0, **options: Any) -> Debugger:
        """A debugger at the beginning of a program, on memory that holds what the engine's does.

        Args:
            program: Its position, or its name.
            **options: ``history_bytes``, the memory for taking steps back.

        Raises:
            EngineError: No such program, or a run is under way.
            StreamConnectionError: A stream that the program uses is connected to nothing.
        """
        from abele.runtime.debugger.debugger import Debugger

        return Debugger(self, program, **options)  # type: ignore[arg-type]

    def debug_surroundings(self, program: int | str) -> tuple[int, ImageOptions, Host]:
        """Position of a program, how its vertices run, and what it meets on the host."""
        return self._index(program), self._image_options(), self._host()

    @property
    def remote_memory(self) -> RemoteMemory:
        """The remote buffers' contents."""
        return self._remote

    def lend(self, image: Image, index: int) -> None:
        """Give another image the contents of this engine's memory, and its streams.

        Raises:
            EngineError: A run is under way, or the memory is lent already.
            StreamConnectionError: A stream that the program uses is connected to nothing.
        """
        own = self._prepared()
        self._check_connected(index, own)
        self._functions.check_connected(self.executable.programs[index])
        if not self._running.acquire(blocking=False):
            raise EngineError(
                "the engine is running or being debugged already", remedy="finish that first, or make a second engine"
            )
        self._hand_over(own, image)
        self._connections.begin_run(self._streams[index], image.machine)

    def take_back(self, image: Image, index: int) -> None:
        """Take back what :meth:`lend` gave."""
        try:
            late = self._connections.end_run(self._streams[index])
            self._hand_over(image, self._prepared())
        finally:
            self._running.release()
        if late is not None:
            raise late

    def _hand_over(self, source: Image, target: Image) -> None:
        """Give ``target`` the memory, vertex state and stream places of ``source``."""
        for variable in self.graph.variables:
            if variable.size and variable not in self._prepared().fused:
                target.arena.images(variable)[...] = source.arena.images(variable)
        groups = {(g.compute_set, g.position): g for g in source.supersteps.placed}
        for group in target.supersteps.placed:
            known = groups.get((group.compute_set, group.position))
            if known is not None:
                for (new, _), (old, _) in zip(group.tables.state, known.tables.state, strict=True):
                    new[...] = old
        places = source.machine.places()
        self._connections.attach(target.machine)
        for stream, words in target.machine.places().items():
            if stream in places:
                for word in words:
                    word[...] = places[stream][0]
