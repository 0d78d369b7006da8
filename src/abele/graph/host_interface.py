"""The ends of a graph towards the host: streams, remote buffers, host functions and named handles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from abele.errors import (
    AbeleError,
    ControlProgramError,
    InvalidOptionError,
    RemoteBufferError,
    StreamMemoryError,
    TensorAccessError,
    TensorError,
    TypeMismatchError,
)
from abele.graph.debug import DebugRecord, here
from abele.graph.expect import dimensions, whole_number
from abele.graph.program import Program
from abele.graph.tensor import Tensor
from abele.numerics import ElementType, as_element_type
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.graph import Graph
    from abele.graph.remote import RemoteBuffer
    from abele.graph.stream import Stream

# Ends that a program shares with the host besides streams and remote buffers: host functions, named handles.


@dataclass(frozen=True, slots=True)
class Argument:
    """Type and shape of an argument or a result of a host function.

    Attributes:
        dtype: Element type.
        shape: Dimensions.
    """

    dtype: ElementType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False, slots=True)
class HostFunction:
    """A function on the host that the program calls and waits for; the engine connects it by name.

    Attributes:
        name: Handle by which the engine connects a callable.
        inputs: Types and shapes of its arguments.
        outputs: Types and shapes of its results.
        debug: Source line at which the user made it.
    """

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    debug: DebugRecord


@dataclass(frozen=True, eq=False, slots=True)
class HostHandle:
    """A name by which the host reads or writes a tensor while no program runs.

    Attributes:
        name: The handle.
        tensor: Tensor that it stands for.
        readable: True if the host may read it.
        writable: True if the host may write it.
        debug: Source line at which the user made it.
    """

    name: str
    tensor: Tensor
    readable: bool
    writable: bool
    debug: DebugRecord


class HostCall(Program):
    """Ask the host to run a function: its inputs go to the host, the program waits, its outputs come back.

    Raises:
        ControlProgramError: The number or sizes of the tensors differ from the function's.
        TypeMismatchError: Their types do.
    """

    def __init__(self, function: HostFunction, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        self.function = function
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.debug = here(function.name)
        for kind, want, got in (("inputs", function.inputs, self.inputs), ("outputs", function.outputs, self.outputs)):
            self._check(kind, want, got)

    def _check(self, kind: str, want: tuple[Argument, ...], got: tuple[Tensor, ...]) -> None:
        name, at = self.function.name, self.debug.location
        if len(want) != len(got):
            raise ControlProgramError(f"host function {name!r} has {len(want)} {kind}, {len(got)} were given", at=at)
        for number, (argument, tensor) in enumerate(zip(want, got, strict=True)):
            if tensor.dtype != argument.dtype:
                raise TypeMismatchError(
                    f"{kind}[{number}] of host function {name!r} is {argument.dtype}, {tensor!r} was given", at=at
                )
            if tensor.size != argument.size:
                raise ControlProgramError(
                    f"{kind}[{number}] of host function {name!r} has {argument.size} elements, {tensor!r} was given",
                    at=at,
                )

    def reads(self) -> tuple[Tensor, ...]:
        """The inputs."""
        return self.inputs

    def writes(self) -> tuple[Tensor, ...]:
        """The outputs."""
        return self.outputs

    def __repr__(self) -> str:
        return f"HostCall({self.function.name!r})"


MAX_STREAM_BYTES = 128 * 2**20
"""Largest host buffer of one stream. Source: Poplar's documentation of stream buffers, 128 MiB."""

Parameters = Iterable[tuple[Any, int | Sequence[int]]]
"""Types and shapes of the arguments or results of a host function."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def debug(self) -> DebugRecord: ...


Item = TypeVar("Item", bound=_Named)


def host_stream_in(
    graph: Graph,
    name: str,
    dtype: Any,
    shape: int | Sequence[int],
    *,
    replicated: bool = True,
    buffering_depth: int = 1,
) -> Stream:
    """A stream from the host; each copy moves ``shape`` elements.

    Args:
        graph: The graph that it is of.
        name: Handle by which the engine connects it.
        dtype: Element type.
        shape: Elements of one copy.
        replicated: Each replica takes data of its own; otherwise all take the same.
        buffering_depth: Copies whose data the host may fetch ahead, plus one; 1 fetches when the program asks.

    Raises:
        TensorError: The name is taken.
        InvalidOptionError: The buffering depth is not positive.
        StreamMemoryError: The host buffer would be too large.
    """
    return _stream(graph, name, dtype, shape, "in", replicated=replicated, buffering_depth=buffering_depth)


def host_stream_out(
    graph: Graph,
    name: str,
    dtype: Any,
    shape: int | Sequence[int],
    *,
    replicated: bool = True,
    buffering_depth: int = 1,
) -> Stream:
    """A stream to the host; each copy moves ``shape`` elements. Arguments as for :meth:`Graph.host_stream_in`."""
    return _stream(graph, name, dtype, shape, "out", replicated=replicated, buffering_depth=buffering_depth)


def _stream(
    graph: Graph, name: str, dtype: Any, shape: Any, direction: str, *, replicated: bool, buffering_depth: int
) -> Stream:
    debug = graph.origin(name)
    stream = graph.kinds.stream(
        name=debug.full_name,
        dtype=as_element_type(dtype),
        shape=_stream_dims(shape),
        direction=direction,
        debug=debug,
        replicated=replicated,
        buffering_depth=buffering_depth,
    )
    if buffering_depth < 1:
        raise InvalidOptionError(
            f"stream {debug.name!r}: a buffering depth of {buffering_depth}", at=debug.location, remedy="1 or more"
        )
    needed = stream.bytes * buffering_depth
    if needed > MAX_STREAM_BYTES:
        raise StreamMemoryError(
            f"{stream!r} needs a host buffer of {needed:,} B, the largest has {MAX_STREAM_BYTES:,} B",
            at=debug.location,
            remedy="move the data in several copies, or through a remote buffer",
        )
    return _added(graph.streams, stream, "stream")


def remote_buffer(graph: Graph, name: str, dtype: Any, num_elements: int, repeats: int = 1) -> RemoteBuffer:
    """A buffer in streaming memory: ``repeats`` rows of ``num_elements``.

    Raises:
        RemoteBufferError: The name is taken, or a size is not positive.
        TypeMismatchError: A size is no whole number.
    """
    debug = graph.origin(name)
    elements = whole_number(num_elements, f"remote buffer {name!r} has a number of elements")
    rows = whole_number(repeats, f"remote buffer {name!r} has a number of rows")
    if elements < 1 or rows < 1:
        raise RemoteBufferError(
            f"remote buffer {name!r} would have {counted(rows, 'row')} of {counted(elements, 'element')}",
            at=debug.location,
            remedy="both must be positive",
        )
    made = graph.kinds.remote_buffer(debug.full_name, as_element_type(dtype), elements, rows, debug)
    return _added(graph.remote_buffers, made, "remote buffer", RemoteBufferError)


def host_function(graph: Graph, name: str, inputs: Parameters = (), outputs: Parameters = ()) -> HostFunction:
    """Function on the host, by the types and shapes of its arguments and results; ``HostCall`` calls it.

    Raises:
        TensorAccessError: The name is taken.
    """
    debug = graph.origin(name)
    made = graph.kinds.host_function(debug.full_name, _arguments(inputs), _arguments(outputs), debug)
    return _added(graph.host_functions, made, "host function", TensorAccessError)


def _arguments(items: Parameters) -> tuple[Argument, ...]:
    """Types and shapes that a host function takes, or gives."""
    return tuple(Argument(as_element_type(t), _stream_dims(shape)) for t, shape in items)


def expose(graph: Graph, tensor: Tensor, name: str, *, readable: bool = True, writable: bool = True) -> HostHandle:
    """Let the host read and write a tensor under a name of its own, while no program runs.

    Raises:
        TensorAccessError: The name is taken, or the host could write a constant or an aliasing view.
    """
    debug = graph.origin(name)
    if writable and not tensor.writable:
        why = "is constant" if tensor.contains_constant else "shows an element more than once"
        raise TensorAccessError(
            f"the host cannot write {tensor!r}, which {why}",
            at=debug.location,
            remedy="expose(…, writable=False)",
        )
    handle = HostHandle(debug.full_name, tensor, readable, writable, debug)
    return _added(graph.host_handles, handle, "host handle", TensorAccessError)


def _stream_dims(shape: Any) -> tuple[int, ...]:
    return dimensions(shape, "a stream or argument")


def _added(items: dict[str, Item], item: Item, what: str, error: type[AbeleError] = TensorError) -> Item:
    """The item, which is in ``items`` from now on.

    Raises:
        AbeleError: The name is taken: an ``error``.
    """
    first = items.get(item.name)
    if first is not None:
        raise error(
            f"a {what} {item.name!r} exists already",
            at=item.debug.location,
            because=f"the first was made at {first.debug.location}" if first.debug.file else None,
        )
    items[item.name] = item
    return item
