"""Ends that a Poplar program shares with the host: data streams, remote buffers, host functions, named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from abele import graph as g
from abele.errors import TensorAccessError
from abele.graph.expect import expect
from abele.numerics import ElementType
from abele.options import flag, integer, read_options

STREAM_OPTIONS = {
    "bufferingDepth": integer(1, 1, doc="transfers that the host keeps ready"),
    "splitLimit": integer(None, honoured=False, doc="streams are not split"),
    "optimiseMemory": flag(False, honoured=False, doc="streams take no memory on tiles beside their tensors"),
}
"""Options of a stream. Only the buffering depth changes anything here; the others are about the host's hardware."""


class ReplicatedStreamMode(Enum):
    """Distribution of a stream to several replicas: each gets its own part, or all the same."""

    REPLICATE = "replicate"
    BROADCAST = "broadcast"


class DataStream(g.Stream):
    """A host stream, by Poplar's names."""

    __slots__ = ()

    def handle(self) -> str:
        """The handle by which the engine connects it."""
        return self.name

    def numElements(self) -> int:
        """Elements of one copy."""
        return self.size

    def elementType(self) -> ElementType:
        """Type of an element."""
        return self.dtype

    def replicatedMode(self) -> ReplicatedStreamMode:
        """Distribution of the data to replicas."""
        return ReplicatedStreamMode.REPLICATE if self.replicated else ReplicatedStreamMode.BROADCAST


class RemoteBuffer(g.RemoteBuffer):
    """Rows of elements in streaming memory, by Poplar's names."""

    __slots__ = ()

    def handle(self) -> str:
        """The handle by which the engine reads and writes it."""
        return self.name

    def numElements(self) -> int:
        """Elements of a row."""
        return self.num_elements

    def elementType(self) -> ElementType:
        """Type of an element."""
        return self.dtype

    def getRepeats(self) -> int:
        """Number of rows."""
        return self.repeats

    def isRearrangeOnHost(self) -> bool:
        """True if the host rearranges copied data: never."""
        return False


class HostFunction(g.HostFunction):
    """A function on the host, by Poplar's names."""

    __slots__ = ()

    def handle(self) -> str:
        """The handle by which the engine connects a callable."""
        return self.name


def buffering_depth(handle: str, options: Mapping[str, Any] | None) -> int:
    """The buffering depth that the options of a stream say.

    Raises:
        InvalidOptionError: An unknown option, or no whole number.
    """
    return int(read_options(f"stream {handle!r}", options, STREAM_OPTIONS)["bufferingDepth"])


def expose(graph: g.Graph, handle: str, tensor: g.Tensor, *, writable: bool) -> None:
    """A handle for one way; the same name may serve the other way too, for the same tensor.

    Raises:
        TensorAccessError: The host is to write a tensor that cannot be written.
    """
    expect(tensor, g.Tensor, f"host handle {handle!r} is for a tensor")
    name = graph.origin(handle).full_name
    first: g.HostHandle | None = graph.host_handles.get(name)
    free = first is not None and not (first.writable if writable else first.readable)
    if first is None or not free or not first.tensor.is_same_view(tensor):
        graph.expose(tensor, handle, readable=not writable, writable=writable)
        return
    if writable and not tensor.writable:
        raise TensorAccessError(f"the host cannot write {tensor!r}", at=graph.origin(handle).location or None)
    graph.host_handles[name] = replace(first, readable=True, writable=True)
