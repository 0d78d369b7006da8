"""``poptorch.profiling``: spans of the host's time that a program names; reports of its models list them.

While a trace is recorded, they are events of it too, on a channel of the same name.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from abele import trace
from abele.trace.environment import begin_from_environment

_MOST = 100_000
"""Spans that are kept; older ones are forgotten."""


@dataclass(frozen=True)
class Tracepoint:
    """One span of the host's time.

    Attributes:
        channel: The channel that recorded it.
        name: Name of the span.
        begin_seconds: Begin of the span, on the clock of :func:`time.perf_counter`.
        seconds: Duration of the span.
        thread: The thread that it ran in.
    """

    channel: str
    name: str
    begin_seconds: float
    seconds: float
    thread: str


_SPANS: deque[Tracepoint] = deque(maxlen=_MOST)


def tracepoints(channel: str | None = None) -> list[Tracepoint]:
    """Recorded spans, in the order of their ends; of one channel, or of all."""
    return [span for span in list(_SPANS) if channel in (None, span.channel)]


class Channel:
    """A named source of spans.

    Args:
        name: The channel's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        begin_from_environment()
        self._channel = trace.Channel(name)

    @contextlib.contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """Record what runs inside as one span."""
        with self._channel.tracepoint(name):
            begin = time.perf_counter()
            try:
                yield
            finally:
                seconds = time.perf_counter() - begin
                _SPANS.append(Tracepoint(self.name, name, begin, seconds, threading.current_thread().name))

    def instrument(self, obj: Any, *methods: str) -> None:
        """Record each call of these methods of an object, or of a class, as a span.

        Args:
            obj: The object.
            *methods: Names of its methods.

        Raises:
            AttributeError: It has no such method.
        """
        owner = obj.__name__ if isinstance(obj, type) else type(obj).__name__
        for method in methods:
            setattr(obj, method, self._recorded(getattr(obj, method), f"{owner}.{method}"))

    def _recorded(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.tracepoint(name):
                return function(*args, **kwargs)

        return call
