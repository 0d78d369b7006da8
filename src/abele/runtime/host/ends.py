"""What the host shares with an engine's programs besides tensors and streams: remote buffers and host functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from abele.graph import Graph, HostFunction, RemoteBuffer
from abele.runtime.host.functions import HostFunctions
from abele.runtime.host.remote_memory import RemoteMemory


class HostEnds:
    """Mix-in of :class:`Engine`."""

    def __init__(self, graph: Graph) -> None:
        self._remote = RemoteMemory(graph)
        self._functions = HostFunctions(graph)

    def write_remote(
        self, buffer: str | RemoteBuffer, row: int | None, values: npt.ArrayLike, replica: int = 0
    ) -> None:
        """Set a row of a remote buffer.

        Args:
            buffer: The buffer or its name.
            row: Number of the row; None for all rows.
            values: As many elements as a row has (or all rows have), or one number.
            replica: Whose buffer.

        Raises:
            RemoteBufferError: No such buffer, row or replica.
            TensorError: Another number of elements.
            TypeMismatchError: The values do not fit the element type.
        """
        self._remote.write(buffer, row, values, replica)

    def read_remote(self, buffer: str | RemoteBuffer, row: int | None = None, replica: int = 0) -> npt.NDArray[Any]:
        """A copy of a row of a remote buffer, of shape [elements], or of all rows, [rows, elements].

        Raises:
            RemoteBufferError: No such buffer, row or replica.
        """
        return self._remote.read(buffer, row, replica)

    def connect_function(self, handle: str | HostFunction, function: Callable[..., Any]) -> None:
        """Connect a host function.

        Args:
            handle: The function or its name.
            function: Called with an array for each input; gives an array for each output (alone, or as a tuple), or
                None where there is none. It is called for one replica after the other; one that has a parameter
                ``replica`` is told which. What it raises ends the run and comes out of :meth:`Engine.run`.

        Raises:
            EngineError: No such host function.
            StreamConnectionError: It cannot be called.
        """
        self._functions.connect(handle, function)
