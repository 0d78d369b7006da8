"""The ends of a graph towards the host: streams, remote buffers, host functions and named handles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

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
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor
from abele.numerics import ElementType, as_element_type
from abele.words import counted

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


def checked_stream(stream: Stream) -> Stream:
    """The stream, if the host can serve it.

    Raises:
        InvalidOptionError: Its buffering depth is not positive.
        StreamMemoryError: Its host buffer would be too large.
    """
    at, depth = stream.debug.location, stream.buffering_depth
    if depth < 1:
        raise InvalidOptionError(
            f"stream {stream.debug.name!r}: a buffering depth of {depth}", at=at, remedy="1 or more"
        )
    if stream.bytes * depth > MAX_STREAM_BYTES:
        raise StreamMemoryError(
            f"{stream!r} needs a host buffer of {stream.bytes * depth:,} B, the largest has {MAX_STREAM_BYTES:,} B",
            at=at,
            remedy="move the data in several copies, or through a remote buffer",
        )
    return stream


def buffer_sizes(name: str, num_elements: Any, repeats: Any, debug: DebugRecord) -> tuple[int, int]:
    """Elements of a row, and rows, of a remote buffer.

    Raises:
        RemoteBufferError: A size is not positive.
        TypeMismatchError: A size is no whole number.
    """
    elements = whole_number(num_elements, f"remote buffer {name!r} has a number of elements")
    rows = whole_number(repeats, f"remote buffer {name!r} has a number of rows")
    if elements < 1 or rows < 1:
        raise RemoteBufferError(
            f"remote buffer {name!r} would have {counted(rows, 'row')} of {counted(elements, 'element')}",
            at=debug.location,
            remedy="both must be positive",
        )
    return elements, rows


def arguments(items: Parameters) -> tuple[Argument, ...]:
    """Types and shapes that a host function takes, or gives."""
    return tuple(Argument(as_element_type(t), stream_dims(shape)) for t, shape in items)


def checked_handle(handle: HostHandle) -> HostHandle:
    """The handle, if the host may read or write as it declares.

    Raises:
        TensorAccessError: The host could write a constant or an aliasing view.
    """
    tensor: Tensor = handle.tensor
    if handle.writable and not tensor.writable:
        why = "is constant" if tensor.contains_constant else "shows an element more than once"
        raise TensorAccessError(
            f"the host cannot write {tensor!r}, which {why}",
            at=handle.debug.location,
            remedy="expose(…, writable=False)",
        )
    return handle


def stream_dims(shape: Any) -> tuple[int, ...]:
    """Dimensions of data that is moved between host and device."""
    return dimensions(shape, "a stream or argument")


def added(items: dict[str, Item], item: Item, what: str, error: type[AbeleError] = TensorError) -> Item:
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
