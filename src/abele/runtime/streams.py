"""Connections of host streams: memory that is used round and round, iterables and callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import StreamConnectionError
from abele.graph import Stream
from abele.numerics import to_host
from abele.runtime.arena import address_of, aligned_block
from abele.runtime.bytecode import StreamMode


class Connection:
    """What a stream is connected to.

    Attributes:
        stream: The stream.
        mode: How the virtual machine serves it.
        memory: The ring, or the staging area of one copy.
    """

    def __init__(self, stream: Stream, data: Any) -> None:
        self.stream = stream
        self.serve: Callable[[], None] = _nothing
        if isinstance(data, np.ndarray):
            self._connect_array(data)
        elif callable(data):
            self._connect_callback(data)
        elif stream.direction == "in" and isinstance(data, Iterable):
            self._connect_callback(_following(stream, data))
        else:
            wants = "an array, an iterable or a callable" if stream.direction == "in" else "an array or a callable"
            raise StreamConnectionError(
                f"{stream!r} cannot be connected to {type(data).__name__}",
                at=stream.debug.location,
                remedy=f"connect {wants}",
            )

    @property
    def address(self) -> int:
        """Where the ring or the staging area begins."""
        return address_of(self.memory)

    def _connect_array(self, array: npt.NDArray[Any]) -> None:
        stream = self.stream
        _check_array(stream, array)
        if array.nbytes % stream.bytes == 0:
            self.mode, self.memory = StreamMode.RING, array
            return
        flat, position = array.reshape(-1), 0

        def turn() -> npt.NDArray[np.int64]:
            nonlocal position
            places = (position + np.arange(stream.size)) % len(flat)
            position = (position + stream.size) % len(flat)
            return places

        if stream.direction == "in":
            self._connect_callback(lambda: flat[turn()])
        else:
            self._connect_callback(lambda values: flat.__setitem__(turn(), values.reshape(-1)))

    def _connect_callback(self, function: Callable[..., Any]) -> None:
        stream = self.stream
        self.memory = aligned_block(stream.bytes)
        elements = self.memory.view(stream.dtype.np).reshape(stream.shape)
        if stream.direction == "in":
            self.mode = StreamMode.FETCH
            self.serve = lambda: _fill(stream, elements, function())
        else:
            self.mode = StreamMode.DRAIN
            self.serve = lambda: function(to_host(elements.copy()))


def _nothing() -> None:
    """Serve a ring: the virtual machine does it alone."""


def _check_array(stream: Stream, array: npt.NDArray[Any]) -> None:
    problem = None
    if array.dtype != stream.dtype.np:
        problem = (f"its elements are {array.dtype}, not {stream.dtype.np}", f"array.astype({stream.dtype.np.name!r})")
    elif not array.flags.c_contiguous:
        problem = ("its elements do not lie one after the other", "numpy.ascontiguousarray(array)")
    elif array.size < stream.size or array.size == 0:
        problem = (f"it has {array.size} elements, one copy moves {stream.size}", "a larger array")
    elif stream.direction == "out" and not array.flags.writeable:
        problem = ("it is read-only", "array.copy()")
    if problem:
        raise StreamConnectionError(
            f"an array of shape {list(array.shape)} does not fit {stream!r}: {problem[0]}",
            at=stream.debug.location,
            remedy=f"connect {problem[1]}",
        )


def _following(stream: Stream, items: Iterable[Any]) -> Callable[[], Any]:
    """A function that gives the items one by one."""
    source: Iterator[Any] = iter(items)
    taken = 0

    def following() -> Any:
        nonlocal taken
        try:
            item = next(source)
        except StopIteration:
            raise StreamConnectionError(
                f"the iterable connected to {stream!r} ran out after {taken} items",
                at=stream.debug.location,
                remedy="connect one that yields as many items as the program copies",
            ) from None
        taken += 1
        return item

    return following


def _fill(stream: Stream, elements: npt.NDArray[Any], values: Any) -> None:
    array = np.asarray(values)
    if array.size != stream.size:
        raise StreamConnectionError(
            f"{stream!r} was given {array.size} elements (shape {list(array.shape)}), one copy moves {stream.size}",
            at=stream.debug.location,
        )
    if not np.can_cast(array.dtype, stream.dtype.np, "same_kind"):
        raise StreamConnectionError(
            f"{stream!r} was given elements of {array.dtype}, which are no {stream.dtype}", at=stream.debug.location
        )
    elements[...] = array.reshape(stream.shape)
