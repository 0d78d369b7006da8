"""Callback objects: host code that serves a stream buffer by buffer, by Poplar's rules."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

Buffer = npt.NDArray[Any]


class Result(Enum):
    """Result of :meth:`StreamCallback.prefetch`; true when the buffer was filled."""

    NotAvailable = 0
    Success = 1

    def __bool__(self) -> bool:
        return self is Result.Success


class StreamCallback:
    """Serves one stream. Subclasses write :meth:`fetch`, and others as needed.

    The engine calls :meth:`fetch` once per copy unless prefetched data is there, and :meth:`complete` once per copy,
    after the data was used. :meth:`prefetch` runs in a thread of its own before the program asks, when the stream's
    buffering depth is over 1; it is never called while :meth:`fetch` or another prefetch of the stream is.

    Any object that has ``fetch`` will do; methods that it lacks are taken from here.
    """

    def prefetch(self, buffer: Buffer) -> Result | bool:
        """Fill the buffer of a copy to come, without waiting; false when there is no data yet.

        Args:
            buffer: Array of the stream's shape and type.
        """
        return Result.NotAvailable

    def fetch(self, buffer: Buffer) -> None:
        """Fill the buffer of the copy that the program waits for; of an output stream, take its contents.

        Args:
            buffer: Array of the stream's shape and type; it is used again, so keep a copy, not itself.
        """
        raise NotImplementedError(f"{type(self).__name__}.fetch")

    def complete(self) -> None:
        """The data of the oldest copy that is not complete was used."""

    def invalidate_prefetched(self) -> None:
        """Drop prefetched data that was not used: the next call must give it again."""

    def invalidatePrefetched(self) -> None:
        """Poplar's name for :meth:`invalidate_prefetched`; either may be overridden."""


setattr(StreamCallback, "Result", Result)  # noqa: B010  Poplar's name; as an annotation it would hide the class


def is_callback(data: object) -> bool:
    """True if something serves streams as a callback object does."""
    return callable(getattr(data, "fetch", None)) and not isinstance(data, np.ndarray)
