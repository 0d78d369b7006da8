"""Poplar's names for a graph's ends towards the host: streams, remote buffers, host functions, handles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from abele.errors import TensorAccessError
from abele.graph.expect import expect
from abele.graph.host import HostFunction, HostHandle
from abele.graph.options import check_options, number_option
from abele.graph.remote import RemoteBuffer
from abele.graph.stream import ReplicatedStreamMode, Stream
from abele.graph.tensor import Tensor

if TYPE_CHECKING:
    from abele.graph.graph import Graph

STREAM_OPTIONS = ("bufferingDepth", "splitLimit", "optimiseMemory")
"""Options of a stream. Only the buffering depth changes anything here; the others are about the host's hardware."""


class HostNames:
    """Mix-in of :class:`Graph`."""

    def addHostToDeviceFIFO(  # type: ignore[misc]
        self: Graph,
        handle: str,
        elementType: Any,
        numElements: int,
        replicatedMode: ReplicatedStreamMode | Mapping[str, Any] = ReplicatedStreamMode.REPLICATE,
        options: Mapping[str, Any] | None = None,
    ) -> Stream:
        """A stream from the host: Poplar's name for :meth:`Graph.host_stream_in`."""
        if isinstance(replicatedMode, Mapping):
            return self.addHostToDeviceFIFO(handle, elementType, numElements, options=replicatedMode)
        return self.host_stream_in(
            handle,
            elementType,
            numElements,
            replicated=replicatedMode is ReplicatedStreamMode.REPLICATE,
            buffering_depth=_depth(handle, options),
        )

    def addDeviceToHostFIFO(  # type: ignore[misc]
        self: Graph, handle: str, elementType: Any, numElements: int, options: Mapping[str, Any] | None = None
    ) -> Stream:
        """A stream to the host: Poplar's name for :meth:`Graph.host_stream_out`."""
        return self.host_stream_out(handle, elementType, numElements, buffering_depth=_depth(handle, options))

    def addRemoteBuffer(  # type: ignore[misc]
        self: Graph,
        handle: str,
        elementType: Any,
        numElements: int,
        repeats: int = 1,
        rearrangeOnHost: bool = False,
        optimiseMemory: bool = False,
    ) -> RemoteBuffer:
        """Rows in streaming memory: Poplar's name for :meth:`Graph.remote_buffer`; the two flags change nothing."""
        return self.remote_buffer(handle, elementType, numElements, repeats)

    def addHostFunction(  # type: ignore[misc]
        self: Graph,
        handle: str,
        inputs: Iterable[tuple[Any, int]] = (),
        outputs: Iterable[tuple[Any, int]] = (),
    ) -> HostFunction:
        """A function on the host, by type and number of elements of what it takes and gives."""
        return self.host_function(handle, inputs, outputs)

    def createHostWrite(self: Graph, handle: str, t: Tensor, rearrangeOnHost: bool = False) -> None:  # type: ignore[misc]
        """Let the host write a tensor by ``engine.writeTensor(handle, …)``."""
        _expose(self, handle, t, writable=True)

    def createHostRead(self: Graph, handle: str, t: Tensor, rearrangeOnHost: bool = False) -> None:  # type: ignore[misc]
        """Let the host read a tensor by ``engine.readTensor(handle, …)``."""
        _expose(self, handle, t, writable=False)


def _depth(handle: str, options: Mapping[str, Any] | None) -> int:
    return number_option(check_options(options, STREAM_OPTIONS, f"stream {handle!r}"), "bufferingDepth", 1)


def _expose(graph: Graph, handle: str, tensor: Tensor, *, writable: bool) -> None:
    """A handle for one way; the same name may serve the other way too, for the same tensor."""
    expect(tensor, Tensor, f"host handle {handle!r} is for a tensor")
    name = graph.origin(handle).full_name
    first: HostHandle | None = graph.host_handles.get(name)
    free = first is not None and not (first.writable if writable else first.readable)
    if first is None or not free or not first.tensor.is_same_view(tensor):
        graph.expose(tensor, handle, readable=not writable, writable=writable)
        return
    if writable and not tensor.writable:
        raise TensorAccessError(f"the host cannot write {tensor!r}", at=graph.origin(handle).location or None)
    graph.host_handles[name] = replace(first, readable=True, writable=True)
