"""Connections of host streams: memory that is used round and round, iterables, callables and callback objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import StreamConnectionError
from abele.graph import Stream
from abele.runtime.control.bytecode import StreamMode
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.streams.feeds import ArrayFeed, CallbackFeed, Feed, FunctionFeed, IterableFeed
from abele.runtime.streams.prefetch import Prefetcher, PrefetchThreads
from abele.runtime.streams.stream_callback import Buffer, is_callback


class Connection:
    """Data or code that a stream is connected to.

    Args:
        stream: The stream.
        data: An array, an iterable, a callable or a callback object.
        begin: First element of the array that is used; at the beginning when left out.
        end: One past the last; at the end when left out.

    Attributes:
        stream: The stream.
        mode: Service by the virtual machine.
        memory: The ring, or the staging areas of the copies that are under way together.

        array: The array that it is connected to, if it is one.

    Raises:
        StreamConnectionError: The data does not fit.
    """

    def __init__(self, stream: Stream, data: Any, begin: int | None = None, end: int | None = None) -> None:
        self.stream = stream
        self.mode = StreamMode.RING
        self.memory: npt.NDArray[Any] = np.empty(0, np.uint8)
        self.array: npt.NDArray[Any] | None = None
        self._feed: Feed | None = None
        self._ahead: Prefetcher | None = None
        self._buffers: list[Buffer] = []
        self._fetched = self._drained = 0
        if isinstance(data, np.ndarray):
            self._connect_array(_interval(stream, data, begin, end))
            return
        if begin is not None or end is not None:
            raise StreamConnectionError(
                f"{stream!r}: begin and end need an array, not {type(data).__name__}", at=stream.debug.location
            )
        self._serve_by(_feed(stream, data))

    @property
    def address(self) -> int:
        """Address of the ring or of the first staging area."""
        return address_of(self.memory)

    # --- a copy, called by the running program -----------------------------------------------------------------------

    def fetch(self) -> None:
        """Fill the staging area of the next copy."""
        assert self._feed is not None
        buffer = self._buffers[self._fetched % len(self._buffers)]
        self._fetched += 1
        filled = self._ahead.take() if self._ahead is not None else None
        if filled is None:
            self._feed.fetch(buffer)
        else:
            assert self._ahead is not None
            buffer[...] = filled
            self._ahead.give_back(filled)
        if self._ahead is not None and not self._feed.completes:
            self._ahead.retry()

    def drain(self) -> None:
        """Finish the last copy: hand over its output, or release its input."""
        assert self._feed is not None
        buffer = self._buffers[self._drained % len(self._buffers)]
        self._drained += 1
        if self.stream.direction == "out":
            self._feed.fetch(buffer)
        self._feed.complete()
        if self._ahead is not None:
            self._ahead.retry()

    # --- a run, called by the engine ---------------------------------------------------------------------------------

    @property
    def is_staged(self) -> bool:
        """True if data passes through staging areas, and not straight from or to an array."""
        return self._feed is not None

    def stage(self, copies: int) -> None:
        """Make staging areas for as many copies as are under way at once."""
        if self._feed is None or len(self._buffers) == copies:
            return
        stream = self.stream
        self.memory = aligned_block(stream.bytes * copies)
        parts = self.memory.reshape(copies, -1)
        self._buffers = [part.view(stream.dtype.np).reshape(stream.shape) for part in parts]

    def look_ahead(self, items: int, threads: PrefetchThreads) -> None:
        """Allow up to ``items`` copies to be prefetched from now on, if the feed can."""
        if self._ahead is None and items > 0 and self._feed is not None and self._feed.ahead:
            stream = self.stream
            buffers = [aligned_block(stream.bytes).view(stream.dtype.np).reshape(stream.shape) for _ in range(items)]
            self._ahead = Prefetcher(self._feed, buffers, threads)

    def begin_run(self) -> None:
        """A run starts that uses the stream."""
        self._fetched = self._drained = 0
        if self._ahead is not None:
            self._ahead.begin()

    def end_run(self) -> BaseException | None:
        """End a run; gives the error of a prefetch whose data was never used."""
        return self._ahead.end() if self._ahead is not None else None

    def abandon(self) -> None:
        """Wait for no data in this run any more."""
        if self._ahead is not None:
            self._ahead.abandon()

    def rewind(self) -> None:
        """Begin an array at its beginning."""
        if self._feed is not None:
            self._feed.rewind()

    def discard(self) -> None:
        """Drop prefetched data, as the stream is connected to something else now."""
        if self._ahead is not None:
            self._ahead.discard()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _serve_by(self, feed: Feed) -> None:
        self._feed = feed
        self.mode = StreamMode.FETCH if self.stream.direction == "in" else StreamMode.DRAIN
        if feed.completes:
            self.mode = StreamMode(self.mode | StreamMode.DRAIN)

    def _connect_array(self, array: npt.NDArray[Any]) -> None:
        stream = self.stream
        _check_array(stream, array)
        self.array = array
        if array.nbytes % stream.bytes == 0:
            self.memory = array
            return
        self._serve_by(ArrayFeed(stream, array))


def _feed(stream: Stream, data: Any) -> Feed:
    if is_callback(data):
        return CallbackFeed(stream, data)
    if callable(data):
        return FunctionFeed(stream, data)
    if stream.direction == "in" and isinstance(data, Iterable):
        return IterableFeed(stream, data)
    wants = "an array, an iterable or a callable" if stream.direction == "in" else "an array or a callable"
    raise StreamConnectionError(
        f"{stream!r} cannot be connected to {type(data).__name__}", at=stream.debug.location, remedy=f"connect {wants}"
    )


def _interval(stream: Stream, array: npt.NDArray[Any], begin: int | None, end: int | None) -> npt.NDArray[Any]:
    """The part of an array, in flattened order, that a stream is connected to."""
    if begin is None and end is None:
        return array
    low, high = 0 if begin is None else begin, array.size if end is None else end
    if not 0 <= low <= high <= array.size:
        raise StreamConnectionError(
            f"{stream!r} cannot be connected to elements {low} to {high} of an array of {array.size}",
            at=stream.debug.location,
        )
    if not array.flags.c_contiguous:
        _check_array(stream, array)
    return array.reshape(-1)[low:high]


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
