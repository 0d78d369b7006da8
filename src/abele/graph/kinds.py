"""The classes that a graph makes its objects of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abele.graph.host import HostFunction
    from abele.graph.introspect import VertexIntrospector
    from abele.graph.remote import RemoteBuffer
    from abele.graph.stream import Stream
    from abele.graph.tensor import Tensor
    from abele.machine import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Kinds:
    """The classes that a graph makes its objects of, each with the constructor of the one named here.

    A graph that speaks other names than this room's (:class:`abele.poplar.Graph`) is a subclass with kinds of its own.
    Views keep the class of what they are views of, so whatever is made for such a graph, also by a library that knows
    nothing of those names, has them.

    Attributes:
        tensor: Views of variables.
        stream: Host streams.
        remote_buffer: Rows in streaming memory.
        host_function: Functions on the host.
        introspector: What an estimator that is asked per vertex sees of the vertex.
        target: What such an estimator sees of the machine.
    """

    tensor: type[Tensor]
    stream: type[Stream]
    remote_buffer: type[RemoteBuffer]
    host_function: type[HostFunction]
    introspector: type[VertexIntrospector]
    target: type[Target]
