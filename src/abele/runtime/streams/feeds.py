"""Feeds: sources for the buffers of input streams, and sinks for those of output streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import StreamConnectionError
from abele.graph import Stream
from abele.numerics import to_host
from abele.runtime.streams.stream_callback import Buffer, StreamCallback


class Feed:
    """Serves the copies of one stream.

    Attributes:
        ahead: True if :meth:`prefetch` may be called.
        keeps: True if data that was prefetched and not used is good for the next run; else it is invalidated.
        completes: True if :meth:`complete` does anything.
    """

    ahead = False
    keeps = False
    completes = False

    def prefetch(self, buffer: Buffer) -> bool:
        """Fill the buffer of a copy to come, if there is data."""
        return False

    def fetch(self, buffer: Buffer) -> None:
        """Fill the buffer of this copy, or take its contents."""
        raise NotImplementedError

    def complete(self) -> None:
        """The buffer of the oldest copy was used."""

    def invalidate(self) -> None:
        """Drop prefetched data."""

    def rewind(self) -> None:
        """The engine was loaded anew."""


class ArrayFeed(Feed):
    """An array that holds no whole number of copies: one copy may use its end and its beginning."""

    def __init__(self, stream: Stream, array: npt.NDArray[Any]) -> None:
        self._flat = array.reshape(-1)
        self._places = np.arange(stream.size, dtype=np.int64)
        self._position = 0
        self._is_input = stream.direction == "in"

    def fetch(self, buffer: Buffer) -> None:
        """Read the next elements, or write them."""
        places = (self._position + self._places) % len(self._flat)
        self._position = int(self._position + len(places)) % len(self._flat)
        if self._is_input:
            buffer[...] = self._flat[places].reshape(buffer.shape)
        else:
            self._flat[places] = buffer.reshape(-1)

    def rewind(self) -> None:
        """Go back to the first element."""
        self._position = 0


class FunctionFeed(Feed):
    """A function that gives an array per copy, or takes one."""

    def __init__(self, stream: Stream, function: Callable[..., Any]) -> None:
        self._stream = stream
        self._function = function

    def fetch(self, buffer: Buffer) -> None:
        """Call the function."""
        if self._stream.direction == "out":
            values = to_host(buffer.copy(), self._stream.dtype)
            with noted(self._stream):
                self._function(values)
            return
        with noted(self._stream):
            values = self._function()
        fill(self._stream, buffer, values)


class IterableFeed(Feed):
    """Items of an iterable, one per copy; the iterable may run ahead, and nothing that it yields is lost."""

    ahead = True
    keeps = True

    def __init__(self, stream: Stream, items: Iterable[Any]) -> None:
        self._stream = stream
        self._source: Iterator[Any] = iter(items)
        self._taken = 0

    def prefetch(self, buffer: Buffer) -> bool:
        """Take an item if there is one more."""
        return self._take(buffer)

    def fetch(self, buffer: Buffer) -> None:
        """Take an item.

        Raises:
            StreamConnectionError: There is none left, or it does not fit.
        """
        if not self._take(buffer):
            raise StreamConnectionError(
                f"the iterable connected to {self._stream!r} ran out after {self._taken} items",
                at=self._stream.debug.location,
                remedy="connect one that yields as many items as the program copies",
            )

    def _take(self, buffer: Buffer) -> bool:
        with noted(self._stream):
            try:
                item = next(self._source)
            except StopIteration:
                return False
        self._taken += 1
        fill(self._stream, buffer, item)
        return True


class CallbackFeed(Feed):
    """A callback object."""

    completes = True

    def __init__(self, stream: Stream, callback: Any) -> None:
        self._stream = stream
        self._fetch = callback.fetch
        self._prefetch = getattr(callback, "prefetch", None)
        self._complete = getattr(callback, "complete", None)
        self._invalidate = _overridden(callback, "invalidate_prefetched", "invalidatePrefetched")
        self.ahead = stream.direction == "in" and self._prefetch is not None

    def prefetch(self, buffer: Buffer) -> bool:
        """Call ``prefetch``."""
        assert self._prefetch is not None
        with noted(self._stream):
            return bool(self._prefetch(buffer))

    def fetch(self, buffer: Buffer) -> None:
        """Call ``fetch``."""
        with noted(self._stream):
            self._fetch(buffer)

    def complete(self) -> None:
        """Call ``complete``."""
        if self._complete is not None:
            with noted(self._stream):
                self._complete()

    def invalidate(self) -> None:
        """Call ``invalidate_prefetched``."""
        if self._invalidate is not None:
            with noted(self._stream):
                self._invalidate()


def _overridden(callback: Any, *names: str) -> Callable[[], Any] | None:
    """The first of some methods that an object has of its own, not from :class:`StreamCallback`."""
    for name in names:
        method: Callable[[], Any] | None = getattr(callback, name, None)
        if method is not None and getattr(method, "__func__", None) is not getattr(StreamCallback, name):
            return method
    return None


@contextmanager
def noted(stream: Stream) -> Iterator[None]:
    """Name the stream in errors of its connection that are raised inside."""
    try:
        yield
    except BaseException as error:
        place = f", made at {stream.debug.location}" if stream.debug.file else ""
        note = f"raised by what is connected to {stream!r}{place}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


def fill(stream: Stream, buffer: Buffer, values: Any) -> None:
    """Copy values that the host gave into the buffer of a copy.

    Raises:
        StreamConnectionError: They are too many or too few, or of another kind.
    """
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
    buffer[...] = array.reshape(stream.shape)
