"""Remote buffers: streaming memory on the host, once per replica."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import RemoteBufferError, TensorError, nearest
from abele.graph import Graph, RemoteBuffer
from abele.numerics import to_device, to_host
from abele.runtime.host.access import check_kind
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.ranks.group import ReplicaShare
from abele.words import counted


class RemoteMemory:
    """Contents of the remote buffers of a graph; zero until something writes them, and kept from load to load.

    Args:
        graph: Its graph.
        share: The replicas that this process executes; all when left out.

    Attributes:
        share: These replicas.
    """

    def __init__(self, graph: Graph, share: ReplicaShare | None = None) -> None:
        self._graph = graph
        self.share = share or ReplicaShare.of(graph.replicas, None)
        self._rows: dict[RemoteBuffer, list[npt.NDArray[Any]]] = {}

    def rows(self, buffer: RemoteBuffer, replica: int = 0) -> npt.NDArray[Any]:
        """The memory itself in one of the process's replicas, [rows, elements]; given by the system at first use."""
        if buffer not in self._rows:
            blocks = [aligned_block(buffer.bytes) for _ in range(self.share.count)]
            shape = (buffer.repeats, buffer.num_elements)
            self._rows[buffer] = [b.view(buffer.dtype.np).reshape(shape) for b in blocks]
        return self._rows[buffer][replica]

    def addresses(self, buffer: RemoteBuffer) -> list[int]:
        """First byte of the buffer in each replica."""
        return [address_of(self.rows(buffer, r)) for r in range(self.share.count)]

    def find(self, handle: str | RemoteBuffer) -> RemoteBuffer:
        """Buffer of a handle.

        Raises:
            RemoteBufferError: The graph has no such buffer.
        """
        name = handle.name if isinstance(handle, RemoteBuffer) else handle
        found = self._graph.remote_buffers.get(name)
        if found is None or (isinstance(handle, RemoteBuffer) and found is not handle):
            close = nearest(name, list(self._graph.remote_buffers))
            raise RemoteBufferError(
                f"the graph has no remote buffer {name!r}", remedy=f"did you mean {close!r}?" if close else None
            )
        return found

    def write(self, handle: str | RemoteBuffer, row: int | None, values: npt.ArrayLike, replica: int = 0) -> None:
        """Set one row, or all of them; see :meth:`abele.Engine.write_remote`."""
        buffer = self.find(handle)
        self._check(buffer, row, replica)
        memory = self.rows(buffer, self.share.check(replica, f"remote buffer {buffer.name!r}"))
        place = memory if row is None else memory[row]
        given = np.asarray(values)
        if given.size != place.size and given.shape != ():
            what = f"row {row}" if row is not None else "all rows"
            raise TensorError(
                f"{what} of {buffer!r} have {place.size} elements, {given.size} were given (shape {list(given.shape)})",
                at=buffer.debug.location,
            )
        check_kind(given, buffer.dtype, buffer)
        place[...] = to_device(given if given.shape == () else given.reshape(place.shape), buffer.dtype)

    def read(self, handle: str | RemoteBuffer, row: int | None, replica: int = 0) -> npt.NDArray[Any]:
        """A copy of one row, or of all; see :meth:`abele.Engine.read_remote`."""
        buffer = self.find(handle)
        self._check(buffer, row, replica)
        memory = self.rows(buffer, self.share.check(replica, f"remote buffer {buffer.name!r}"))
        return to_host((memory if row is None else memory[row]).copy(), buffer.dtype)

    def _check(self, buffer: RemoteBuffer, row: int | None, replica: int) -> None:
        if row is not None and not 0 <= row < buffer.repeats:
            raise RemoteBufferError(
                f"row {row} of remote buffer {buffer.name!r}, which has {counted(buffer.repeats, 'row')} "
                f"(0 to {buffer.repeats - 1})",
                at=buffer.debug.location,
            )
        if not 0 <= replica < self._graph.replicas:
            raise RemoteBufferError(
                f"remote buffer {buffer.name!r} of replica {replica}: there are {self._graph.replicas} replicas",
                at=buffer.debug.location,
            )
