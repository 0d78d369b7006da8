"""The ends of a graph towards the host: streams, remote buffers, host functions and named handles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from abele.errors import InvalidOptionError, RemoteBufferError, StreamMemoryError, TensorAccessError, TensorError
from abele.graph.debug import DebugInfo
from abele.graph.expect import dimensions, whole_number
from abele.graph.host import Argument, HostFunction, HostHandle
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor
from abele.numerics import as_element_type
from abele.words import counted

MAX_STREAM_BYTES = 128 * 2**20
"""Largest host buffer of one stream. Source: Poplar's documentation of stream buffers, 128 MiB."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def debug(self) -> DebugInfo: ...


Item = TypeVar("Item", bound=_Named)


class HostEnds:
    """Mix-in of :class:`Graph`.

    Attributes:
        streams: Host streams by name.
        remote_buffers: Remote buffers by name.
        host_functions: Host functions by name.
        host_handles: Named tensors by name.
    """

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.remote_buffers: dict[str, RemoteBuffer] = {}
        self.host_functions: dict[str, HostFunction] = {}
        self.host_handles: dict[str, HostHandle] = {}

    def origin(self, name: str) -> DebugInfo:
        """Debug information for something made now under ``name``."""
        raise NotImplementedError

    def host_stream_in(
        self,
        name: str,
        dtype: Any,
        shape: int | Sequence[int],
        *,
        replicated: bool = True,
        buffering_depth: int = 1,
    ) -> Stream:
        """A stream from the host; each copy moves ``shape`` elements.

        Args:
            name: Handle by which the engine connects it.
            dtype: Element type.
            shape: Elements of one copy.
            replicated: Each replica takes data of its own; otherwise all take the same.
            buffering_depth: Copies whose data the host may fetch ahead, plus one; 1 fetches when the program asks.
        """
        return self._stream(name, dtype, shape, "in", replicated, buffering_depth)

    def host_stream_out(
        self, name: str, dtype: Any, shape: int | Sequence[int], *, replicated: bool = True, buffering_depth: int = 1
    ) -> Stream:
        """A stream to the host; each copy moves ``shape`` elements. Arguments as for :meth:`host_stream_in`."""
        return self._stream(name, dtype, shape, "out", replicated, buffering_depth)

    def _stream(
        self, name: str, dtype: Any, shape: Any, direction: str, replicated: bool, buffering_depth: int
    ) -> Stream:
        debug = self.origin(name)
        if buffering_depth < 1:
            raise InvalidOptionError(
                f"stream {name!r}: a buffering depth of {buffering_depth}", at=debug.location, remedy="1 or more"
            )
        stream = Stream(
            debug.full_name, as_element_type(dtype), _dims(shape), direction, debug, replicated, buffering_depth
        )
        if stream.bytes * buffering_depth > MAX_STREAM_BYTES:
            raise StreamMemoryError(
                f"{stream!r} needs a host buffer of {stream.bytes * buffering_depth:,} B, "
                f"the largest has {MAX_STREAM_BYTES:,} B",
                at=debug.location,
                remedy="move the data in several copies, or through a remote buffer",
            )
        return self._added(self.streams, stream, "stream", TensorError)

    def remote_buffer(self, name: str, dtype: Any, num_elements: int, repeats: int = 1) -> RemoteBuffer:
        """A buffer in streaming memory: ``repeats`` rows of ``num_elements``.

        Raises:
            RemoteBufferError: The name is taken, or a size is not positive.
        """
        debug = self.origin(name)
        num_elements = whole_number(num_elements, f"remote buffer {name!r} has a number of elements")
        repeats = whole_number(repeats, f"remote buffer {name!r} has a number of rows")
        if num_elements < 1 or repeats < 1:
            raise RemoteBufferError(
                f"remote buffer {name!r} would have {counted(repeats, 'row')} of {counted(num_elements, 'element')}",
                at=debug.location,
                remedy="both must be positive",
            )
        buffer = RemoteBuffer(debug.full_name, as_element_type(dtype), int(num_elements), int(repeats), debug)
        return self._added(self.remote_buffers, buffer, "remote buffer", RemoteBufferError)

    def host_function(
        self,
        name: str,
        inputs: Iterable[tuple[Any, int | Sequence[int]]] = (),
        outputs: Iterable[tuple[Any, int | Sequence[int]]] = (),
    ) -> HostFunction:
        """A function on the host, by the type and shape of what it takes and gives; ``HostCall`` calls it."""
        takes, gives = (
            tuple(Argument(as_element_type(t), _dims(shape)) for t, shape in items) for items in (inputs, outputs)
        )
        function = HostFunction(self.origin(name).full_name, takes, gives, self.origin(name))
        return self._added(self.host_functions, function, "host function", TensorAccessError)

    def expose(self, tensor: Tensor, name: str, *, readable: bool = True, writable: bool = True) -> HostHandle:
        """Let the host read and write a tensor under a name of its own, while no program runs.

        Raises:
            TensorAccessError: The name is taken, or the host could write a constant or an aliasing view.
        """
        debug = self.origin(name)
        if writable and not tensor.writable:
            why = "is constant" if tensor.contains_constant else "shows an element more than once"
            raise TensorAccessError(
                f"the host cannot write {tensor!r}, which {why}", at=debug.location, remedy="expose(…, writable=False)"
            )
        handle = HostHandle(debug.full_name, tensor, readable, writable, debug)
        return self._added(self.host_handles, handle, "host handle", TensorAccessError)

    @staticmethod
    def _added(items: dict[str, Item], item: Item, what: str, error: Any) -> Item:
        first = items.get(item.name)
        if first is not None:
            raise error(
                f"a {what} {item.name!r} exists already",
                at=item.debug.location,
                because=f"the first was made at {first.debug.location}" if first.debug.file else None,
            )
        items[item.name] = item
        return item


def _dims(shape: Any) -> tuple[int, ...]:
    return dimensions(shape, "a stream or argument")
