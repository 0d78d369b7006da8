"""libpvti's names, for programs that record traces for PopVision System Analyser.

Events are recorded when ``PVTI_OPTIONS='{"enable":"true","directory":"traces"}'`` is in the environment, or
:func:`abele.trace.start` was called; files end in ``.abele-trace``. After :func:`install`, ``import libpvti`` finds
this module.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from abele.errors import InvalidOptionError, MissingPackageError
from abele.trace.channel import Channel, is_recording
from abele.trace.channel import Heatmap as _Heatmap
from abele.trace.channel import RecordedSpan as _RecordedSpan
from abele.trace.channel import Series as _Series
from abele.trace.channel import SeriesGraph as _Graph
from abele.trace.environment import begin_from_environment

__all__ = [
    "Graph",
    "Heatmap",
    "HeatmapDouble",
    "HeatmapInt",
    "Series",
    "TraceChannel",
    "Tracepoint",
    "checkTracingEnabled",
    "createGraph",
    "createHeatmap",
    "createTraceChannel",
    "install",
    "instrument",
    "instrument_fn",
]

P = ParamSpec("P")
R = TypeVar("R")
TraceChannel = Channel
_DEFAULT = "default"


def createTraceChannel(name: str) -> Channel:
    """A channel; the first one looks into ``PVTI_OPTIONS``.

    Raises:
        InvalidOptionError: The variable holds no JSON object, or values that it does not take.
        FileFormatError: The file cannot be written.
    """
    begin_from_environment()
    return Channel(name)


@functools.cache
def _default_channel(name: str) -> Channel:
    return createTraceChannel(name)


def checkTracingEnabled(channel: Channel | None = None) -> bool:
    """True while events are recorded; of a channel, if one is given."""
    begin_from_environment()
    return is_recording() if channel is None else channel.is_on


class _Opened(threading.local):
    """Spans that :meth:`Tracepoint.begin` began in a thread, by channel and label."""

    def __init__(self) -> None:
        self.stacks: dict[tuple[str, str], list[_RecordedSpan]] = {}


class Tracepoint:
    """A span of time: the run of ``with Tracepoint(channel, label):``.

    Args:
        channel: The channel.
        label: Name of the span.
        metadata: Further facts about it.
    """

    _opened = _Opened()

    def __init__(self, channel: Channel, label: str, metadata: Mapping[str, Any] | None = None) -> None:
        self._channel, self._label, self._metadata = channel, label, metadata
        self._point: _RecordedSpan | None = None

    def __enter__(self) -> Self:
        self._point = self._channel.tracepoint(self._label, self._metadata)
        self._point.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._point is not None:
            self._point.__exit__(kind, error, trace)
            self._point = None

    @classmethod
    def begin(cls, channel: Channel, label: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Begin an event of this thread, which :meth:`end` ends."""
        if channel.is_on:
            stack = cls._opened.stacks.setdefault((channel.name, label), [])
            stack.append(channel.tracepoint(label, metadata))
            stack[-1].__enter__()

    @classmethod
    def end(cls, channel: Channel, label: str) -> None:
        """End the event of this thread that began last under this label.

        Raises:
            InvalidOptionError: None did, while the channel is recorded.
        """
        stack = cls._opened.stacks.get((channel.name, label), [])
        if stack:
            stack.pop().__exit__(None, None, None)
        elif channel.is_on:
            raise InvalidOptionError(
                f"{label!r} on channel {channel.name!r} ends without having begun in this thread",
                remedy="Tracepoint.begin(channel, label) before it, or a with block",
            )

    @staticmethod
    def event(channel: Channel, label: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Mark this moment: an instant event."""
        channel.instant(label, metadata)


def instrument_fn(channel: Channel) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: each call of the function is an event of the channel."""
    return channel.traced()


def instrument(target: Any, methods: Iterable[str], channel: Channel | None = None) -> None:
    """Each call of some methods of an object, or of a class, is an event.

    Args:
        target: The object.
        methods: Names of its methods.
        channel: The channel; by default one that is named as the object's class.

    Raises:
        InvalidOptionError: It has no such method.
    """
    if channel is None:
        kind = target if isinstance(target, type) else type(target)
        channel = _default_channel(kind.__name__)
    channel.instrument(target, methods)


class Series:
    """A line in a graph."""

    def __init__(self, series: _Series) -> None:
        self._series = series

    def add(self, value: float) -> None:
        """Record the present number."""
        self._series.add(value)


class Graph:
    """A graph of numbers over time.

    Args:
        name: Its name.
        unit: Unit of the numbers.
        channel: The channel that they are recorded on.
    """

    def __init__(self, name: str, unit: str = "", channel: Channel | None = None) -> None:
        self._graph = _Graph(name, unit, channel or _default_channel(_DEFAULT))

    def addSeries(self, name: str) -> Series:
        """A line in the graph."""
        return Series(self._graph.series(name))


def createGraph(name: str, unit: str = "", channel: Channel | None = None) -> Graph:
    """A graph of numbers over time; as :class:`Graph`."""
    return Graph(name, unit, channel)


class Heatmap:
    """A histogram over time.

    Args:
        name: Its name.
        edges: Edges between bins, ascending.
        unit: Unit of the edges.
        channel: The channel that it is recorded on.

    Raises:
        InvalidOptionError: The edges do not ascend, or are too few or too many.
    """

    def __init__(self, name: str, edges: Sequence[float], unit: str = "", channel: Channel | None = None) -> None:
        self._heatmap = _Heatmap(name, edges, unit, channel or _default_channel(_DEFAULT))

    def add(self, values: Any) -> None:
        """Count values, of any shape, into the bins as of now."""
        self._heatmap.add(values)


HeatmapDouble = Heatmap
HeatmapInt = Heatmap


def createHeatmap(name: str, edges: Sequence[float], unit: str = "", channel: Channel | None = None) -> Heatmap:
    """A histogram over time; as :class:`Heatmap`."""
    return Heatmap(name, edges, unit, channel)


def install(name: str = "libpvti") -> None:
    """Let ``import libpvti`` find this module from now on in this process.

    Args:
        name: The name that programs import.

    Raises:
        MissingPackageError: Another module of this name was imported already.
    """
    own = sys.modules[__name__]
    if sys.modules.get(name, own) is not own:
        raise MissingPackageError(
            f"{name} is imported already, from {getattr(sys.modules[name], '__file__', None)}",
            remedy="call abele.pvti.install() before that",
        )
    sys.modules[name] = own
