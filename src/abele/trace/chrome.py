"""Chrome traces, which PyTorch's profiler and many other tools export, as the columns of a trace.

JSON knows no columns, so that every event becomes an object on the way; the size of a file is therefore bounded before
it is decoded, and so is what a packed one may unpack to. What an event must not be (another type than it should, a time
that is no number, an end without a beginning) is left out and counted.
"""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from abele.errors import FileFormatError
from abele.trace.columns import SeriesData
from abele.trace.source import MOST_EVENTS, MOST_THREADS, Marks, SourceProcess, SourceThread, Spans, TraceSource
from abele.words import counted

_MOST_BYTES = 1 << 30
_MOST_RATIO, _FREE_BYTES = 100, 64 << 20
_LATEST_NS = 1 << 60
_LARGEST = 1 << 1000
"""Values of counters are not above this, so that they are floats."""
_LONGEST_LABEL = 1 << 12
_LONGEST_DETAIL = 1 << 16
_GZIP = b"\x1f\x8b"
_LONGEST_STACK = 1 << 12
"""Events that may be open in a thread at a time."""


class _Event(msgspec.Struct, gc=False):
    """Event of the file; its types are checked one by one, so that a bad one spoils no other."""

    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: msgspec.Raw = msgspec.Raw(b"")


class _ChromeDocument(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815
    baseTimeNanoseconds: Any = None  # noqa: N815


class ChromeFile:
    """A file with a Chrome trace.

    Args:
        path: The file; its contents may be packed by gzip.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None

    def grown(self) -> bool:
        """True if the file is not as it was when it was read."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        return (now.st_size, now.st_mtime_ns) != self._seen

    def read(self) -> TraceSource:
        """Events of the file.

        Raises:
            FileFormatError: It is missing, too large, or no Chrome trace.
        """
        try:
            now = os.stat(self.path)
            self._seen = (now.st_size, now.st_mtime_ns)
            with self.path.open("rb") as stream:
                content = stream.read(_MOST_BYTES + 1)
        except OSError as error:
            raise FileFormatError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if content.startswith(_GZIP):
            content = self._unpacked(content)
        if len(content) > _MOST_BYTES:
            raise FileFormatError(f"{self.path}: a Chrome trace of more than {_MOST_BYTES:,} B is not read")
        document, notes = self._decoded(content)
        del content
        return _EventReader(notes).source(self.path.name, document)

    def _unpacked(self, content: bytes) -> bytes:
        most = min(_MOST_BYTES, max(_FREE_BYTES, _MOST_RATIO * len(content)))
        try:
            unpacker = zlib.decompressobj(wbits=31)
            result = unpacker.decompress(content, most + 1)
        except zlib.error as error:
            raise FileFormatError(
                f"{self.path}: damaged", because=f"what gzip packed does not unpack: {error}"
            ) from error
        if len(result) > most:
            raise FileFormatError(f"{self.path}: unpacks to more than {most:,} B, which is not read")
        return result

    def _decoded(self, content: bytes) -> tuple[_ChromeDocument, list[str]]:
        start = content[:64].lstrip()[:1]
        if start not in (b"{", b"["):
            raise self._foreign("it begins neither as a JSON object nor as an array")
        whole = list[_Event] if start == b"[" else _ChromeDocument
        notes: list[str] = []
        try:
            found: Any = msgspec.json.decode(content, type=whole)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            found = self._mended(content, whole, error, notes)
        return (_ChromeDocument(found) if isinstance(found, list) else found), notes

    def _mended(self, content: bytes, whole: Any, error: Exception, notes: list[str]) -> Any:
        """Readable part of a document that is no strict JSON: with NaN in it, or without its end."""
        if isinstance(error, msgspec.ValidationError) and "out of range" not in str(error):
            raise self._foreign(str(error)) from error
        try:
            # Python's own reader takes NaN and Infinity, which its writer writes, and numbers of any size.
            return msgspec.convert(_raw_args(json.loads(content)), type=whole, strict=False)
        except (ValueError, RecursionError, msgspec.MsgspecError):
            pass
        last = content.rfind(b"}")
        for cut in (last, content.rfind(b"},", 0, last)):
            if cut < 0:
                continue
            ending = b"]" if content.lstrip()[:1] == b"[" else b"]}"
            try:
                found = msgspec.json.decode(content[: cut + 1] + ending, type=whole)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                continue
            notes.append("the file is cut short; what it holds up to there is shown")
            return found
        raise self._foreign(str(error)[:200]) from error

    def _foreign(self, because: str) -> FileFormatError:
        return FileFormatError(
            f"{self.path}: no trace",
            because=because,
            remedy="a file of abele.trace, or what torch.profiler's export_chrome_trace writes",
        )


def _raw_args(document: Any) -> Any:
    """A decoded document whose events have their ``args`` as JSON again."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and "args" in event:
            event["args"] = msgspec.Raw(msgspec.json.encode(event["args"]))
    return document


@dataclass
class _Row:
    """Thread of the file, and its open events."""

    process: Any
    id: Any
    name: str = ""
    opened: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass
class _EventReader:
    """Turns events into columns."""

    notes: list[str]
    channels: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    threads: dict[tuple[Any, Any], int] = field(default_factory=dict)
    rows: list[_Row] = field(default_factory=list)
    process_names: dict[Any, str] = field(default_factory=dict)
    spans: array[int] = field(default_factory=lambda: array("q"))
    marks: array[int] = field(default_factory=lambda: array("q"))
    samples: dict[tuple[Any, str, str], list[tuple[int, float]]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    last_ns: int = -_LATEST_NS

    def source(self, file: str, document: _ChromeDocument) -> TraceSource:
        """The columns of a document."""
        take = {
            "X": self._complete,
            "B": self._begin,
            "E": self._end,
            "i": self._instant,
            "I": self._instant,
            "R": self._instant,
            "b": self._begin_async,
            "e": self._end_async,
            "n": self._instant,
            "C": self._counter,
            "M": self._metadata,
        }
        if len(document.traceEvents) > MOST_EVENTS:
            self.notes.append(f"more than {MOST_EVENTS:,} events; the later ones are left out")
        events: list[Any] = document.traceEvents
        for place in range(min(len(events), MOST_EVENTS)):
            event = events[place]
            events[place] = None  # So that it goes while the columns come.
            reader: Callable[[_Event], str | None] | None = take.get(event.ph) if isinstance(event.ph, str) else None
            # Flows and snapshots of objects have no place in the columns.
            problem = f"of phase {str(event.ph)[:10]!r}" if reader is None else reader(event)
            if problem is not None:
                self.skipped[problem if len(self.skipped) < 20 else "of other kinds"] += 1
        self._close()
        self.notes += [f"{counted(number, 'event')} left out: {what}" for what, number in self.skipped.items()]
        return self._finished(file, document.baseTimeNanoseconds)

    # --- events of each phase; each tells what is wrong with one, or None --------------------------------------------

    def _complete(self, event: _Event) -> str | None:
        begin, duration = _nanoseconds(event.ts), _nanoseconds(event.dur)
        if begin is None or duration is None or duration < 0:
            return "without a time that can be"
        self._span(self._thread(event.pid, event.tid), event, begin, duration)
        return None

    def _span(self, thread: int, event: _Event, begin: int, duration: int) -> None:
        channel, label = self._names(event)
        self.spans.extend((thread, channel, label, begin, duration, self._detail(event), False))
        self.last_ns = max(self.last_ns, begin + duration)

    def _begin(self, event: _Event) -> str | None:
        return self._open(self._thread(event.pid, event.tid), event)

    def _open(self, thread: int, event: _Event) -> str | None:
        begin = _nanoseconds(event.ts)
        if begin is None:
            return "without a time that can be"
        stack = self.rows[thread].opened
        if len(stack) >= _LONGEST_STACK:
            return f"more than {_LONGEST_STACK:,} open at a time"
        stack.append((*self._names(event), begin, self._detail(event)))
        self.last_ns = max(self.last_ns, begin)
        return None

    def _end(self, event: _Event) -> str | None:
        return self._shut(self._thread(event.pid, event.tid), event)

    def _shut(self, thread: int, event: _Event) -> str | None:
        end, stack = _nanoseconds(event.ts), self.rows[thread].opened
        if end is None:
            return "without a time that can be"
        if not stack:
            return "ends without beginnings"
        channel, label, begin, detail = stack.pop()
        if end < begin:
            return "ends before their beginnings"
        self.spans.extend((thread, channel, label, begin, end - begin, detail, False))
        self.last_ns = max(self.last_ns, end)
        return None

    def _begin_async(self, event: _Event) -> str | None:
        return self._open(self._async_thread(event), event)

    def _end_async(self, event: _Event) -> str | None:
        return self._shut(self._async_thread(event), event)

    def _async_thread(self, event: _Event) -> int:
        """Row of its own for each id, since asynchronous events are no stack of a thread."""
        name = f"{_text(event.name)} {_plain(event.id)}".strip()
        return self._thread(event.pid, f"async {_text(event.cat)} {_plain(event.id)}", name)

    def _instant(self, event: _Event) -> str | None:
        time = _nanoseconds(event.ts)
        if time is None:
            return "without a time that can be"
        channel, label = self._names(event)
        self.marks.extend((self._thread(event.pid, event.tid), channel, label, time, self._detail(event)))
        self.last_ns = max(self.last_ns, time)
        return None

    def _counter(self, event: _Event) -> str | None:
        time = _nanoseconds(event.ts)
        values = _object(event.args)
        if time is None or not values:
            return "counters without a time and a number"
        found = 0
        for key, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
                continue
            series = (_plain(event.pid), _text(event.name)[:_LONGEST_LABEL], key[:_LONGEST_LABEL])
            if series not in self.samples and len(self.samples) >= MOST_THREADS:
                return f"of more than {counted(MOST_THREADS, 'counter')}"
            self._thread(event.pid, event.tid)
            self.samples.setdefault(series, []).append((time, float(value)))
            found += 1
        self.last_ns = max(self.last_ns, time)
        return None if found else "counters without a time and a number"

    def _metadata(self, event: _Event) -> str | None:
        values = _object(event.args) if event.name in ("process_name", "thread_name", "process_labels") else {}
        name = _text(values.get("name", values.get("labels", "")))[:_LONGEST_LABEL]
        if not name:
            return None
        if event.name == "thread_name":
            self.rows[self._thread(event.pid, event.tid)].name = name
        elif len(self.process_names) < MOST_THREADS:
            before = self.process_names.get(_plain(event.pid), "")
            self.process_names[_plain(event.pid)] = f"{before} {name}".strip() if before != name else name
        return None

    # --- names --------------------------------------------------------------------------------------------------------

    def _thread(self, pid: Any, tid: Any, name: str = "") -> int:
        key = (_plain(pid), _plain(tid))
        if (found := self.threads.get(key)) is not None:
            return found
        if len(self.rows) >= MOST_THREADS:
            return MOST_THREADS - 1
        self.rows.append(_Row(*key, name))
        return self.threads.setdefault(key, len(self.rows) - 1)

    def _names(self, event: _Event) -> tuple[int, int]:
        channel, label = _text(event.cat)[:_LONGEST_LABEL], _text(event.name)[:_LONGEST_LABEL]
        return self.channels.setdefault(channel, len(self.channels)), self.labels.setdefault(label, len(self.labels))

    def _detail(self, event: _Event) -> int:
        args = bytes(event.args)
        if len(args) <= 2 or not args.startswith(b"{"):
            return -1
        if len(args) > _LONGEST_DETAIL:
            args = b'{"left out": "more than %d B"}' % _LONGEST_DETAIL
        self.details.append(args.decode("utf-8", "replace"))
        return len(self.details) - 1

    def _close(self) -> None:
        """Events without an end last until the file ends."""
        for thread, row in enumerate(self.rows):
            for channel, label, begin, detail in reversed(row.opened):
                self.spans.extend((thread, channel, label, begin, max(self.last_ns - begin, 0), detail, True))

    # --- columns ------------------------------------------------------------------------------------------------------

    def _finished(self, file: str, base: Any) -> TraceSource:
        spans = np.frombuffer(self.spans, np.int64).reshape(-1, 7)
        marks = np.frombuffer(self.marks, np.int64).reshape(-1, 5)
        # Threads come in the order of the file; the table has them process by process.
        processes, order = self._order()
        rank = np.argsort(order)
        # The first event of any kind is time 0.
        firsts = [part.min() for part in (spans[:, 3], marks[:, 3]) if len(part)]
        firsts += [min(time for time, _ in values) for values in self.samples.values()]
        zero = int(min(firsts, default=0))
        # Anything may stand in the file as the base: only a plausible integer counts.
        has_base = isinstance(base, int) and not isinstance(base, bool) and 0 < base < 1 << 62
        unix = base + zero if has_base else None
        if unix is not None and not 0 < unix < 1 << 62:
            unix = None
        rows = {row: k for k, row in enumerate(processes)}
        names = [self.process_names.get(row, "") or str(row) for row in processes]
        channel = self.channels.setdefault("", len(self.channels))
        return TraceSource(
            file=file,
            unix_ns=unix,
            processes=[SourceProcess(_number(row), name) for row, name in zip(processes, names, strict=True)],
            threads=[
                SourceThread(
                    rows[self.rows[k].process], _number(self.rows[k].id), self.rows[k].name or str(self.rows[k].id)
                )
                for k in order.tolist()
            ],
            channels=list(self.channels),
            labels=list(self.labels),
            details=self.details,
            spans=Spans(
                thread=rank[spans[:, 0]].astype(np.int32),
                channel=spans[:, 1].astype(np.int32),
                label=spans[:, 2].astype(np.int32),
                begin_ns=spans[:, 3] - zero,
                duration_ns=spans[:, 4],
                detail=spans[:, 5].astype(np.int32),
                is_open=spans[:, 6].astype(np.bool_),
            ),
            marks=Marks(
                thread=rank[marks[:, 0]].astype(np.int32),
                channel=marks[:, 1].astype(np.int32),
                label=marks[:, 2].astype(np.int32),
                time_ns=marks[:, 3] - zero,
                detail=marks[:, 4].astype(np.int32),
            ),
            series=[
                _series(name, key, channel, rows[process], zero, values)
                for (process, name, key), values in self.samples.items()
            ],
            notes=self.notes,
        )

    def _order(self) -> tuple[list[Any], Any]:
        """The processes, and the threads process by process."""
        processes = list(dict.fromkeys(row.process for row in self.rows))
        place = {process: k for k, process in enumerate(processes)}
        return processes, np.argsort(np.array([place[row.process] for row in self.rows], np.int64), kind="stable")


def _series(
    graph: str, name: str, channel: int, process: int, zero: int, pairs: Iterable[tuple[int, float]]
) -> SeriesData:
    times, numbers = zip(*pairs, strict=True)
    time = np.array(times, np.int64) - zero
    order = np.argsort(time, kind="stable")
    values = np.array(numbers, np.float64)[order]
    return SeriesData(graph, name, "", channel, process, time_ns=time[order], values=values)


def _nanoseconds(microseconds: Any) -> int | None:
    """Time of the file in nanoseconds; None for other values."""
    if isinstance(microseconds, str):
        # Some writers quote numbers.
        try:
            microseconds = float(microseconds) if len(microseconds) < 40 else None
        except ValueError:
            return None
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float):
        return None
    # Compared before anything else: an integer of JSON may be larger than any float.
    if not abs(microseconds) < _LATEST_NS // 1000:
        return None
    return round(microseconds * 1000)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:_LONGEST_LABEL]


def _plain(value: Any) -> Any:
    """Identity of a process or thread: a number or a text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return _text(value)
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return "a number out of range"
    return value[:_LONGEST_LABEL] if isinstance(value, str) else value


def _number(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else -1


def _object(args: msgspec.Raw) -> dict[str, Any]:
    """Content of ``args``, if it is an object of bounded size."""
    content = bytes(args)
    if not content.startswith(b"{") or len(content) > _LONGEST_DETAIL:
        return {}
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return {}
