"""Recording: notes of threads go to a file from a thread of its own.

A tracepoint appends three integers to a list that only its thread appends to, which needs no lock, makes no objects
for the garbage collector to visit, and takes a fraction of a microsecond. A background thread empties the lists into
chunks several times per second. A faster thread empties its list itself, so that memory stays bounded.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import multiprocessing
import os
import re
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from abele.errors import FileFormatError, InvalidOptionError
from abele.trace.format import ENDING, ChunkKind, Declarations, HeatmapHead, ProcessHead, SeriesHead, ThreadHead
from abele.trace.writer import TraceWriter

LOG = logging.getLogger(__name__)
_FULL = 3 * (1 << 16)
"""Numbers in a list at which its thread empties it: 65,536 events, some 6 MB."""
_PART = 3 * (1 << 13)
"""Numbers that are taken from a list at a time, so that others get a turn."""
_MANY = 1 << 14
"""Instants, details or samples at which a thread empties its own list."""
_MOST_LABELS = 1 << 20
_LONGEST_LABEL = 1000
_LONGEST_DETAIL = 1 << 16
MORE_LABELS = "(one of many more names)"
FLUSH_SECONDS = 0.25


class ThreadBuffer:
    """Notes of one thread.

    Attributes:
        number: The thread's number in the file.
        events: Label, begin and end of one event after the other, flat.
        detailed: Events with details: label, begin, end, JSON.
        instants: Label, time, JSON.
        opened: Tracepoints that are open: label and begin.
    """

    __slots__ = ("detailed", "events", "instants", "number", "opened", "recorder", "thread")

    def __init__(self, recorder: Recorder, number: int) -> None:
        self.recorder = recorder
        self.number = number
        self.events: list[int] = []
        self.detailed: list[tuple[int, int, int, str]] = []
        self.instants: list[tuple[int, int, str]] = []
        self.opened: list[Any] = []
        self.thread = weakref.ref(threading.current_thread())

    def is_done(self) -> bool:
        """True if its thread has ended."""
        thread = self.thread()
        return thread is None or not thread.is_alive()

    def add(self, label: int, begin: int, end: int, detail: str) -> None:
        """Note down an event with details; those without are appended to ``events``."""
        self.detailed.append((label, begin, end, detail))
        if len(self.detailed) > _MANY:
            self.recorder.flush()

    def instant(self, label: int, moment: int, detail: str) -> None:
        """Note down an instant."""
        self.instants.append((label, moment, detail))
        if len(self.instants) > _MANY:
            self.recorder.flush()


class Recorder:
    """A recording that is on.

    Args:
        path: The file, or the folder in which each process has a file of its own.
        channels: Names of the channels that are recorded; all of them when None.
        flush_seconds: Seconds between writes of the file.

    Raises:
        FileFormatError: The file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        channels: Iterable[str] | None,
        flush_seconds: float = FLUSH_SECONDS,
        *,
        of_child: bool = False,
    ) -> None:
        self.target = path
        self.only = None if channels is None else frozenset(channels)
        self.flush_seconds = flush_seconds
        self.local = threading.local()
        self.failure: OSError | None = None
        self._buffers: list[ThreadBuffer] = []
        self._lock = threading.RLock()
        self._declared = Declarations()
        self._numbers = {"threads": 0, "labels": 0, "details": 0, "series": 0, "heatmaps": 0}
        self._channels: dict[str, int] = {}
        self._labels: dict[tuple[int, str], int] = {}
        self._series: dict[tuple[str, str, str, int], int] = {}
        self._heatmaps: dict[tuple[str, tuple[float, ...], str, int], int] = {}
        self._samples: list[tuple[int, int, float]] = []
        self._counts: list[tuple[int, int, Any]] = []
        self._had_open = False
        self._num_lost = 0
        self._closed = False
        begin = time.perf_counter_ns()
        self._declared.process = ProcessHead(
            os.getpid(), _program_name(), os.getppid(), socket.gethostname(), begin, time.time_ns()
        )
        self._writer: TraceWriter | None = None
        if not of_child:
            # Children write only if they record something: many never do.
            try:
                self._write_to_file().flush()
            except OSError as error:
                raise FileFormatError(
                    f"{path}: cannot be written: {error.strerror or error}",
                    remedy="a folder that exists and may be written",
                ) from error
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> Path | None:
        """The file; None while a child process has nothing to write."""
        return None if self._writer is None else self._writer.path

    @property
    def num_bytes(self) -> int:
        """Bytes written so far."""
        return 0 if self._writer is None else self._writer.num_bytes

    # --- numbers for names -------------------------------------------------------------------------------------------

    def channel(self, name: str) -> int:
        """The number of a channel in this file."""
        with self._lock:
            if name not in self._channels:
                if not self._declared.channels:
                    self._declared.first_channel = len(self._channels)
                self._channels[name] = len(self._channels)
                self._declared.channels.append(_shown(name))
            return self._channels[name]

    def label(self, channel: int, text: str) -> int:
        """The number of a label in this file; all beyond a million share one."""
        with self._lock:
            key = (channel, text)
            if key not in self._labels:
                if len(self._labels) >= _MOST_LABELS:
                    key = (channel, MORE_LABELS)
                    if key in self._labels:
                        return self._labels[key]
                if not self._declared.labels:
                    self._declared.first_label = len(self._labels)
                self._labels[key] = len(self._labels)
                self._declared.labels.append((channel, _shown(key[1])))
            return self._labels[key]

    def buffer(self) -> ThreadBuffer:
        """The buffer of this thread."""
        with self._lock:
            self._begin_writing()
            thread, number = threading.current_thread(), self._next("threads")
            self._declared.threads.append(ThreadHead(number, thread.native_id or 0, _shown(thread.name)))
            found = self.local.buffer = ThreadBuffer(self, number)
            self._buffers.append(found)
            return found

    def series(self, graph: str, name: str, unit: str, channel: int) -> int:
        """The number of a series in this file."""
        with self._lock:
            self._begin_writing()
            key = (graph, name, unit, channel)
            if key not in self._series:
                number = self._series[key] = self._next("series")
                self._declared.series.append(SeriesHead(number, _shown(graph), _shown(name), _shown(unit), channel))
            return self._series[key]

    def heatmap(self, name: str, edges: list[float], unit: str, channel: int) -> int:
        """The number of a heat map in this file."""
        with self._lock:
            self._begin_writing()
            key = (name, tuple(edges), unit, channel)
            if key not in self._heatmaps:
                number = self._heatmaps[key] = self._next("heatmaps")
                self._declared.heatmaps.append(HeatmapHead(number, _shown(name), edges, _shown(unit), channel))
            return self._heatmaps[key]

    def _next(self, kind: str) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind] - 1

    def sample(self, series: int, moment: int, value: float) -> None:
        """Note down a value of a series."""
        self._samples.append((series, moment, value))
        if len(self._samples) > _MANY:
            self.flush()

    def count(self, heatmap: int, moment: int, counts: Any) -> None:
        """Note down counts of a heat map, int64[bins]."""
        self._counts.append((heatmap, moment, counts))
        if len(self._counts) > _MANY // 16:
            self.flush()

    # --- writing ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write all notes so far. Data that the system does not take is lost and counted, and no error raised."""
        with self._lock:
            for buffer in list(self._buffers):
                self._drain(buffer)
                if buffer.is_done() and not (buffer.events or buffer.detailed or buffer.instants or buffer.opened):
                    self._buffers.remove(buffer)
            self._drain_series()
            self._note_open()
            self._write()

    def drain(self, buffer: ThreadBuffer) -> None:
        """Write the notes of one thread."""
        with self._lock:
            self._drain(buffer)
            self._write()

    def _drain(self, buffer: ThreadBuffer) -> None:
        # Each line is one step of the interpreter: what is appended meanwhile stands behind what is taken.
        events = buffer.events
        while size := min(len(events) // 3 * 3, _PART):
            taken = np.fromiter(events[:size], np.int64, size).reshape(-1, 3)
            del events[:size]
            self._add_events(buffer, taken[:, 0], taken[:, 1], taken[:, 2], np.zeros(len(taken), np.int64))
        if size := len(buffer.detailed):
            detailed = buffer.detailed[:size]
            del buffer.detailed[:size]
            label, begin, end = (np.array([row[k] for row in detailed], np.int64) for k in range(3))
            self._add_events(buffer, label, begin, end, self._details([row[3] for row in detailed]))
        if size := len(buffer.instants):
            instants = buffer.instants[:size]
            del buffer.instants[:size]
            label, moment = (np.array([row[k] for row in instants], np.int64) for k in range(2))
            details = self._details([row[2] for row in instants])
            self._columns(ChunkKind.INSTANTS, np.full(size, buffer.number), label, moment, details)

    def _add_events(self, buffer: ThreadBuffer, label: Any, begin: Any, end: Any, detail: Any) -> None:
        thread = np.full(len(label), buffer.number)
        self._columns(ChunkKind.EVENTS, thread, label, begin, np.maximum(end - begin, 0), detail)

    def _details(self, texts: list[str]) -> Any:
        """Numbers of details, 0 for none, int64[n]."""
        numbers = np.zeros(len(texts), np.int64)
        for place, text in enumerate(texts):
            if text:
                if not self._declared.details:
                    self._declared.first_detail = self._numbers["details"] + 1
                numbers[place] = self._next("details") + 1
                self._declared.details.append(text)
        return numbers

    def _drain_series(self) -> None:
        if size := len(self._samples):
            samples = self._samples[:size]
            del self._samples[:size]
            series, moment = (np.array([row[k] for row in samples], np.int64) for k in range(2))
            if writer := self._ready():
                writer.samples(series, moment, np.array([row[2] for row in samples], np.float64))
        if size := len(self._counts):
            found = self._counts[:size]
            del self._counts[:size]
            if writer := self._ready():
                for number in dict.fromkeys(row[0] for row in found):
                    mine = [row for row in found if row[0] == number]
                    moments = np.array([row[1] for row in mine], np.int64)
                    writer.counts(number, moments, np.array([row[2] for row in mine], np.int64))

    def _note_open(self) -> None:
        opened = [(b.number, p.label, p.begin) for b in self._buffers for p in list(b.opened) if p.begin]
        if not opened and not self._had_open:
            return
        self._had_open = bool(opened)
        if writer := self._ready():
            columns = np.array(opened or np.zeros((0, 3)), np.int64)
            writer.open_events(*columns.T, np.full(len(columns), time.perf_counter_ns(), np.int64))

    def _columns(self, kind: ChunkKind, *columns: Any) -> None:
        if writer := self._ready():
            writer.columns(kind, *columns)
        else:
            self._num_lost += len(columns[0])

    def _ready(self) -> TraceWriter | None:
        """The writer, after everything that was declared; None when writing has failed or ended."""
        if self._closed or self.failure is not None:
            return None
        try:
            return self._write_to_file()
        except OSError as error:
            self._fail(error)
            return None

    def _write_to_file(self) -> TraceWriter:
        """Open the file if it is not, and add the declarations."""
        if self._writer is None:
            self._writer = _writer(self.target)
        if self._declared != Declarations():
            self._writer.declare(self._declared)
            self._declared = Declarations()
        return self._writer

    def _write(self) -> None:
        if self._writer is None or self._closed or self.failure is not None:
            return
        try:
            self._writer.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.failure = error
        LOG.warning("%s: the trace cannot be written any more: %s", self.target, error.strerror or error)

    def _begin_writing(self) -> None:
        """Start the thread that writes, with the first data: most forked processes have none."""
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name="abele trace writer", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while not self._wake.wait(self.flush_seconds):
            self.flush()

    def close(self) -> None:
        """Write the rest and the end.

        Raises:
            FileFormatError: Something could not be written.
        """
        self._wake.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
        with self._lock:
            if self._closed:
                return
            self.flush()
            if self._writer is not None and self.failure is None:
                self._writer.end(self._num_lost)
                self._write()
            self._closed = True
            if self._writer is not None:
                self._writer.close()
            self._buffers.clear()
        if self.failure is not None:
            raise FileFormatError(
                f"{self.target}: cannot be written: {self.failure.strerror or self.failure}",
                because="the trace has what was written before",
                remedy="room on the disk",
            ) from self.failure

    def abandon(self) -> None:
        """Let go of the file without writing: it belongs to the process that this one was forked from."""
        self._closed = True
        # A thread of the parent may have held the lock when the process was forked; nobody here would give it back.
        self._lock = threading.RLock()
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()


def detail_text(metadata: Any) -> str:
    """Metadata of an event, as JSON of bounded length; empty for none.

    Raises:
        InvalidOptionError: It is no mapping.
    """
    if not metadata:
        return ""
    if not isinstance(metadata, dict):
        raise InvalidOptionError(
            f"metadata of an event is a {type(metadata).__name__}", remedy="a dict from names to values"
        )
    text = msgspec.json.encode({str(key): value for key, value in metadata.items()}, enc_hook=str).decode()
    return text if len(text) <= _LONGEST_DETAIL else f'{{"left out":"{len(text)} characters"}}'


def _shown(text: str) -> str:
    """A text of bounded length that UTF-8 has."""
    short = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return short.encode("utf-8", "replace").decode("utf-8")


def _program_name() -> str:
    return _shown(Path(sys.argv[0]).name) if sys.argv and sys.argv[0] else "python"


def _writer(target: Path) -> TraceWriter:
    """The file of this process: as named, or one in a folder that has the program's name and the process's number.

    Raises:
        OSError: It cannot be written.
    """
    if target.suffix == ENDING:
        return TraceWriter(target)
    stem = re.sub(r"[^\w.-]+", "_", _program_name().removesuffix(".py")) or "python"
    for attempt in range(1000):
        name = f"{stem}-{os.getpid()}" + (f"-{attempt + 1}" if attempt else "")
        with contextlib.suppress(FileExistsError):
            return TraceWriter(target / f"{name}{ENDING}", exclusive=True)
    return TraceWriter(target / f"{stem}-{os.getpid()}{ENDING}")


def of_child(path: Path) -> Path:
    """File of a forked process whose parent writes to ``path``: beside a file, in the same folder."""
    return path.with_name(f"{path.stem}-{os.getpid()}{ENDING}") if path.suffix == ENDING else path


def at_end(close: Callable[[], None]) -> None:
    """Close a recording when the process ends; errors then are logged."""
    atexit.register(_closing, close)


def at_end_of_worker(close: Callable[[], None]) -> None:
    """Close a recording when a process of ``multiprocessing`` ends, which takes a way out of its own."""
    if multiprocessing.parent_process() is not None:
        Finalize(None, _closing, (close,), exitpriority=0)


def _closing(close: Callable[[], None]) -> None:
    try:
        close()
    except FileFormatError as error:
        LOG.warning("%s", error)
