"""Channels, and their records: tracepoints, instants, graphs of series, heat maps."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.util import register_after_fork
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError
from abele.trace.recorder import FLUSH_SECONDS, Recorder, ThreadBuffer, at_end, at_end_of_worker, detail_text, of_child

P = ParamSpec("P")
R = TypeVar("R")

_now = time.perf_counter_ns
_FULL = 3 * (1 << 16)
_MOST_BINS = 1 << 12


class Sink:
    """Destination of a channel's events while it is recorded: the recorder, its number there, and numbers of labels."""

    __slots__ = ("_labels", "_name", "_number", "local", "recorder")

    def __init__(self, recorder: Recorder, name: str) -> None:
        self.recorder = recorder
        self.local = recorder.local
        self._name = name
        self._number = -1
        self._labels: dict[str, int] = {}

    @property
    def number(self) -> int:
        """The channel's number in the file, which names it with its first event."""
        if self._number < 0:
            self._number = self.recorder.channel(self._name)
        return self._number

    def label(self, text: str) -> int:
        """The number of a label."""
        found = self._labels.get(text)
        if found is None:
            found = self.recorder.label(self.number, str(text))
            if len(self._labels) < 1 << 16:
                self._labels[text] = found
        return found

    def buffer(self) -> ThreadBuffer:
        """The buffer of this thread."""
        try:
            buffer: ThreadBuffer = self.local.buffer
        except AttributeError:
            buffer = self.recorder.buffer()
        return buffer


class RecordedSpan:
    """A span of time that is being recorded: from entering to leaving the ``with`` block."""

    __slots__ = ("_buffer", "_detail", "_sink", "begin", "label")

    def __init__(self, sink: Sink, label: str, metadata: Mapping[str, Any] | None = None) -> None:
        self._sink = sink
        self._detail = detail_text(metadata) if metadata else ""
        self.label = sink.label(label)
        self.begin = 0

    def __enter__(self) -> Self:
        try:
            buffer = self._buffer = self._sink.local.buffer
        except AttributeError:
            buffer = self._buffer = self._sink.recorder.buffer()
        buffer.opened.append(self)
        self.begin = _now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = _now()
        buffer: ThreadBuffer = self._buffer
        opened = buffer.opened
        # Those of coroutines need not end in the order in which they began.
        if opened[-1] is self:
            opened.pop()
        else:
            opened.remove(self)
        if self._detail:
            buffer.add(self.label, self.begin, end, self._detail)
            return
        events = buffer.events
        events.extend((self.label, self.begin, end))
        if len(events) > _FULL:
            buffer.recorder.drain(buffer)


class _Nothing:
    """Stand-in for a tracepoint of a channel that is not recorded."""

    __slots__ = ()
    # Functions written in C have no frame to be made: a third less of what a disabled tracepoint costs. This one takes
    # any arguments and gives an empty text, which is false, so that errors go on their way.
    __enter__ = "".format
    __exit__ = "".format


NOTHING: Any = _Nothing()


class Channel:
    """A named source of events, which is recorded or not.

    Args:
        name: Its name; channels of one name are recorded alike.

    Attributes:
        name: Its name.
    """

    __slots__ = ("__weakref__", "_sink", "name")

    def __init__(self, name: str) -> None:
        self.name = str(name)
        self._sink: Sink | None = None
        with _STATE.lock:
            _STATE.channels.add(self)
            self._connect(_STATE.recorder)

    def _connect(self, recorder: Recorder | None) -> None:
        wanted = recorder is not None and (recorder.only is None or self.name in recorder.only)
        self._sink = Sink(recorder, self.name) if recorder is not None and wanted else None

    @property
    def is_on(self) -> bool:
        """True while it is recorded."""
        return self._sink is not None

    def tracepoint(self, label: str, metadata: Mapping[str, Any] | None = None) -> RecordedSpan:
        """Event that spans ``with channel.tracepoint(label):``.

        Args:
            label: Name of the event. Use few different texts, and ``metadata`` for values that differ each time.
            metadata: Further facts about the event, from names to numbers, texts, lists and mappings.
        """
        if self._sink is None:
            return NOTHING  # type: ignore[no-any-return]
        return RecordedSpan(self._sink, label, metadata)

    def traced(self, label: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: each call of the function is an event.

        Args:
            label: Name of the event; by default the function's qualified name.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            name = label or getattr(function, "__qualname__", repr(function))

            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                if self._sink is None:
                    return function(*args, **kwargs)
                with RecordedSpan(self._sink, name):
                    return function(*args, **kwargs)

            return call

        return decorate

    def instrument(self, target: Any, methods: Iterable[str]) -> None:
        """Each call of some methods of an object, or of a class, is an event.

        Args:
            target: The object.
            methods: Names of its methods. Those that are instrumented already stay so.

        Raises:
            InvalidOptionError: It has no such method.
        """
        owner = target.__name__ if isinstance(target, type) else type(target).__name__
        for method in [methods] if isinstance(methods, str) else methods:
            function = getattr(target, method, None)
            if not callable(function):
                raise InvalidOptionError(f"{owner} has no method {method!r}")
            if getattr(function, "_abele_channel", None) is self:
                continue
            found: Any = self.traced(f"{owner}.{method}")(function)
            found._abele_channel = self
            is_static = isinstance(target, type) and isinstance(vars(target).get(method), staticmethod | classmethod)
            setattr(target, method, staticmethod(found) if is_static else found)

    def instant(self, label: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Mark this moment.

        Args:
            label: Name of the event.
            metadata: Further facts about it.
        """
        sink = self._sink
        if sink is not None:
            sink.buffer().instant(sink.label(label), _now(), detail_text(metadata))

    def graph(self, name: str, unit: str = "") -> SeriesGraph:
        """A graph that series of numbers are drawn in.

        Args:
            name: Its name.
            unit: Unit of the numbers.
        """
        return SeriesGraph(name, unit, self)

    def heatmap(self, name: str, edges: Sequence[float] | npt.NDArray[Any], unit: str = "") -> Heatmap:
        """A histogram over time.

        Args:
            name: Its name.
            edges: Edges between bins, ascending, at least 2.
            unit: Unit of the edges.

        Raises:
            InvalidOptionError: The edges do not ascend, or are too few or too many.
        """
        return Heatmap(name, edges, unit, self)

    def __repr__(self) -> str:
        return f"Channel({self.name!r}, {'on' if self.is_on else 'off'})"


class SeriesGraph:
    """A graph of numeric series over time.

    Args:
        name: Its name.
        unit: Unit of the numbers.
        channel: The channel that it is recorded on.
    """

    def __init__(self, name: str, unit: str, channel: Channel) -> None:
        self.name, self.unit, self.channel = name, unit, channel

    def series(self, name: str) -> Series:
        """A line in the graph."""
        return Series(self, name)


class Series:
    """A number over time.

    Args:
        graph: The graph that it is drawn in.
        name: Its name.
    """

    def __init__(self, graph: SeriesGraph, name: str) -> None:
        self.graph, self.name = graph, name
        self._known: tuple[Sink, int] | None = None

    def add(self, value: float) -> None:
        """Record the present number; anything that ``float`` takes."""
        sink = self.graph.channel._sink
        if sink is None:
            return
        known = self._known
        if known is None or known[0] is not sink:
            number = sink.recorder.series(self.graph.name, self.name, self.graph.unit, sink.number)
            known = self._known = (sink, number)
        sink.recorder.sample(known[1], _now(), float(value))


class Heatmap:
    """A histogram over time.

    Args:
        name: Its name.
        edges: Edges between bins.
        unit: Unit of the edges.
        channel: The channel that it is recorded on.

    Raises:
        InvalidOptionError: The edges do not ascend, or are too few or too many.
    """

    def __init__(self, name: str, edges: Sequence[float] | npt.NDArray[Any], unit: str, channel: Channel) -> None:
        self.edges = np.array(edges, np.float64)
        ascending = self.edges.ndim == 1 and bool(np.isfinite(self.edges).all() and (np.diff(self.edges) > 0).all())
        if not ascending or not 2 <= len(self.edges) <= _MOST_BINS + 1:
            raise InvalidOptionError(
                f"heat map {name!r} has edges that are no bins",
                because=f"shape {self.edges.shape}" + ("" if ascending else ", not ascending or not finite"),
                remedy=f"2 to {_MOST_BINS + 1:,} numbers, each larger than the one before",
            )
        self.name, self.unit, self.channel = name, unit, channel
        self._known: tuple[Sink, int] | None = None

    def add(self, values: npt.ArrayLike) -> None:
        """Count values, of any shape, into the bins as of now; those outside the edges and NaN are left out."""
        if self.channel._sink is not None:
            flat = np.asarray(values).reshape(-1)
            self.add_counts(np.histogram(flat[np.isfinite(flat)], self.edges)[0])

    def add_counts(self, counts: npt.ArrayLike) -> None:
        """Record how many values each bin has now.

        Args:
            counts: Integers of shape [bins].

        Raises:
            InvalidOptionError: Not as many as there are bins, or fewer than none.
        """
        sink = self.channel._sink
        if sink is None:
            return
        found = np.array(counts, np.int64)
        if found.shape != (len(self.edges) - 1,) or (found < 0).any():
            raise InvalidOptionError(
                f"heat map {self.name!r} has {len(self.edges) - 1:,} bins, got counts of shape {found.shape}",
                remedy="a number, 0 or more, for each bin",
            )
        known = self._known
        if known is None or known[0] is not sink:
            number = sink.recorder.heatmap(self.name, self.edges.tolist(), self.unit, sink.number)
            known = self._known = (sink, number)
        sink.recorder.count(known[1], _now(), found)


# --- turning recording on and off ------------------------------------------------------------------------------------


class _Recording:
    """The recording of this process, and its channels."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.channels: weakref.WeakSet[Channel] = weakref.WeakSet()
        self.recorder: Recorder | None = None
        self.ends_with_process = False

    def switch(self, recorder: Recorder | None) -> None:
        """Let all channels record there."""
        self.recorder = recorder
        for channel in list(self.channels):
            channel._connect(recorder)


_STATE = _Recording()


def is_recording() -> bool:
    """True while a recording is on in this process."""
    return _STATE.recorder is not None


def recording_path() -> Path | None:
    """The file that this process records into; None when it does not, or has nothing to write yet."""
    recorder = _STATE.recorder
    return None if recorder is None else recorder.path


def start(path: str | Path, channels: Iterable[str] | None = None, *, flush_seconds: float = FLUSH_SECONDS) -> Path:
    """Begin to record; it ends with :func:`stop`, or with the process.

    Processes that are forked while it is on record into files of their own beside it.

    Args:
        path: A file that ends in ``.abele-trace``, which is replaced; or a folder, in which each process has a file.
        channels: Names of the channels to record; all when left out.
        flush_seconds: Seconds between writes of the file.

    Returns:
        The file.

    Raises:
        InvalidOptionError: A recording is on already.
        FileFormatError: The file cannot be written.
    """
    with _STATE.lock:
        if _STATE.recorder is not None:
            raise InvalidOptionError(
                f"a recording is on already, into {_STATE.recorder.path or _STATE.recorder.target}",
                remedy="abele.trace.stop() first; one recording has all channels",
            )
        if isinstance(channels, str):
            channels = [channels]
        recorder = Recorder(Path(path).absolute(), channels, flush_seconds)
        _STATE.switch(recorder)
        if not _STATE.ends_with_process:
            _STATE.ends_with_process = True
            at_end(stop)
            register_after_fork(_STATE, lambda _: at_end_of_worker(stop))
            at_end_of_worker(stop)
        assert recorder.path is not None
        return recorder.path


def flush() -> None:
    """Write all records so far, so that readers find them."""
    recorder = _STATE.recorder
    if recorder is not None:
        recorder.flush()


def stop() -> None:
    """End the recording, if one is on; events that are open then are not recorded.

    Raises:
        FileFormatError: Something could not be written.
    """
    with _STATE.lock:
        recorder = _STATE.recorder
        _STATE.switch(None)
    if recorder is not None:
        recorder.close()


@contextmanager
def recording(
    path: str | Path, channels: Iterable[str] | None = None, *, flush_seconds: float = FLUSH_SECONDS
) -> Iterator[Path]:
    """Record inside; arguments, result and errors as of :func:`start`."""
    found = start(path, channels, flush_seconds=flush_seconds)
    try:
        yield found
    finally:
        stop()


def _after_fork() -> None:
    """Give a forked process a recording of its own, beside that of its parent."""
    before = _STATE.recorder
    _STATE.lock = threading.RLock()
    if before is None:
        return
    before.abandon()
    _STATE.switch(Recorder(of_child(before.target), before.only, before.flush_seconds, of_child=True))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
