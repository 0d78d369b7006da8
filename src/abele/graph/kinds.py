"""The classes that a graph makes its objects of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abele.graph.host_interface import HostFunction
    from abele.graph.introspect import VertexIntrospector
    from abele.graph.remote import RemoteBuffer
    from abele.graph.stream import Stream
    from abele.graph.tensor import Tensor
    from abele.machine import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Kinds:
    """The classes that a graph makes its objects of, each with the constructor of the one named here.

    A graph that speaks other names than this room's (:class:`abele.poplar.Graph`) is a subclass with kinds of its own.
    Views keep the class of the tensor that they are views of. So objects made for such a graph have those names, even
    if a library made them that knows nothing of them.

    Attributes:
        tensor: Views of variables.
        stream: Host streams.
        remote_buffer: Rows in streaming memory.
        host_function: Functions on the host.
        introspector: View of the vertex for an estimator that is asked per vertex.
        target: View of the machine for such an estimator.
    """

    tensor: type[Tensor]
    stream: type[Stream]
    remote_buffer: type[RemoteBuffer]
    host_function: type[HostFunction]
    introspector: type[VertexIntrospector]
    target: type[Target]
