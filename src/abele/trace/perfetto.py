"""Perfetto traces, in the protocol buffers that https://ui.perfetto.dev opens, of columns of any size.

:class:`PerfettoWriter` takes tracks, and slices, instants and counters as columns; :func:`write_perfetto` writes a
:class:`~abele.trace.trace.Trace`. Nothing but NumPy is needed for it.

Source: protos/perfetto/trace/perfetto_trace.proto, whose numbers of fields stand below.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.writing import writing_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from abele.trace.trace import Trace


# The wire format of protocol buffers, for columns: one record per row, all of one kind as long as each other.
#
# An object of the protobuf package per event takes some 10 µs and a kilobyte. Here a column becomes a block of bytes
# at once: integers as varints of the width that the largest needs, shorter ones filled up with continuation bytes,
# which the format allows (Perfetto's own writer fills its lengths up so).
#
# Source: protobuf.dev/programming-guides/encoding.

Bytes = npt.NDArray[np.uint8]
VARINT, FIXED64, LENGTH = 0, 1, 2
_ROWS_AT_A_TIME = 1 << 16


def varint(value: int) -> bytes:
    """A number, 0 or more, in the fewest bytes."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def tag(field: int, kind: int) -> bytes:
    """Bytes before a field."""
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """A field with a number, 0 or more."""
    return tag(field, VARINT) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """A field with a message, a text or bytes."""
    content = b"".join(parts)
    return tag(field, LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Field with a text; characters outside UTF-8 become question marks."""
    return message(field, value.encode("utf-8", "replace"))


def number_column(field: int, values: npt.NDArray[Any]) -> Bytes:
    """A field with a number in each row.

    Args:
        field: Its number.
        values: Integers of shape [n], 0 or more.

    Returns:
        uint8[n, width].
    """
    left = values.astype(np.uint64)
    width = max(1, -(-int(left.max()).bit_length() // 7)) if len(left) else 1
    head = tag(field, VARINT)
    block = np.empty((len(left), len(head) + width), np.uint8)
    block[:, : len(head)] = np.frombuffer(head, np.uint8)
    for place in range(width):
        more = 0x80 if place < width - 1 else 0
        block[:, len(head) + place] = (left & np.uint64(0x7F)).astype(np.uint8) | np.uint8(more)
        left >>= np.uint64(7)
    return block


def double_column(field: int, values: npt.NDArray[Any]) -> Bytes:
    """A field with a float64 in each row, uint8[n, width]."""
    head = np.frombuffer(tag(field, FIXED64), np.uint8)
    content = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(len(values), 8)
    return np.concatenate([np.broadcast_to(head, (len(values), len(head))), content], axis=1)


def constant_column(content: bytes, rows: int) -> Bytes:
    """The same bytes in each row, uint8[n, width]."""
    return np.broadcast_to(np.frombuffer(content, np.uint8), (rows, len(content)))


def message_column(field: int, parts: Sequence[Bytes]) -> Bytes:
    """Field with a message in each row, from the columns of its fields, uint8[n, width]."""
    rows, width = len(parts[0]), sum(part.shape[1] for part in parts)
    return np.concatenate([constant_column(tag(field, LENGTH) + varint(width), rows), *parts], axis=1)


def merged(blocks: Sequence[tuple[npt.NDArray[np.int64], Bytes]]) -> list[Bytes]:
    """The rows of several blocks in a common order.

    Args:
        blocks: For each block the places of its rows, ascending, and the rows, uint8[n, width]. Each place from 0 on is
            taken once.

    Returns:
        Their bytes, in pieces.
    """
    total = sum(len(places) for places, _ in blocks)
    pieces = []
    for first in range(0, total, _ROWS_AT_A_TIME):
        last = min(first + _ROWS_AT_A_TIME, total)
        cuts = [tuple(np.searchsorted(places, (first, last)).tolist()) for places, _ in blocks]
        sizes = np.zeros(last - first, np.int64)
        for (low, high), (places, rows) in zip(cuts, blocks, strict=True):
            sizes[places[low:high] - first] = rows.shape[1]
        starts = np.cumsum(sizes) - sizes
        piece = np.empty(int(sizes.sum()), np.uint8)
        for (low, high), (places, rows) in zip(cuts, blocks, strict=True):
            begins = starts[places[low:high] - first]
            piece[begins[:, None] + np.arange(rows.shape[1])] = rows[low:high]
        pieces.append(piece)
    return pieces


_PACKET = 1
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _TRACK = 6, 8, 10, 11, 12, 13, 60
_CATEGORY, _ANNOTATION, _TYPE, _NAME, _EVENT_TRACK, _COUNTER, _DOUBLE_COUNTER = 3, 4, 9, 10, 11, 30, 44
_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4
_CATEGORIES, _NAMES, _ANNOTATION_NAMES, _ANNOTATION_TEXTS = 1, 2, 3, 29
_REALTIME, _BOOTTIME = 1, 6
_CLEARED, _NEEDED = 1, 2
_EXPLICIT_ORDER = 3
_UNITS = {"ns": 1, "B": 3, "bytes": 3}
_WORDS_PER_PACKET = 4096
_LARGEST_ID = (1 << 31) - 1


@dataclass
class _Words:
    """Texts that events give by number."""

    field: int
    numbers: dict[str, int]
    written: int = 0


class PerfettoWriter:
    """Writes a Perfetto trace.

    Args:
        stream: File to write to.
        unix_ns: Time of the time 0, in nanoseconds since 1970 began; None when nobody knows.
    """

    def __init__(self, stream: IO[bytes], unix_ns: int | None = None) -> None:
        self._stream = stream
        self._last_track = 0
        self._words = {
            field: _Words(field, {}) for field in (_CATEGORIES, _NAMES, _ANNOTATION_NAMES, _ANNOTATION_TEXTS)
        }
        self._packet(number(_FLAGS, _CLEARED))
        if unix_ns is not None:
            clocks = [
                message(1, number(1, clock), number(2, moment))
                for clock, moment in ((_BOOTTIME, 0), (_REALTIME, unix_ns))
            ]
            self._packet(message(_CLOCK_SNAPSHOT, *clocks, number(2, _BOOTTIME)))

    def _packet(self, *fields: bytes) -> None:
        self._stream.write(message(_PACKET, number(_SEQUENCE, 1), *fields))

    # --- tracks -------------------------------------------------------------------------------------------------------

    def _track(self, *fields: bytes, parent: int = 0, rank: int | None = None) -> int:
        self._last_track += 1
        above = number(5, parent) if parent else b""
        order = b"" if rank is None else number(12, rank)
        self._packet(message(_TRACK, number(1, self._last_track), above, order, *fields))
        return self._last_track

    def process(self, pid: int, name: str) -> int:
        """A process, for tracks below it; its number, 1 to 2³¹ − 1, is no other's. Gives the track."""
        return self._track(message(3, number(1, pid), text(6, name)), number(11, _EXPLICIT_ORDER))

    def thread(self, pid: int, tid: int, name: str, parent: int) -> int:
        """A thread of a process. Gives the track."""
        fields = number(1, pid), number(2, tid), text(5, name)
        return self._track(message(4, *fields), parent=parent)

    def track(self, name: str, parent: int = 0, rank: int | None = None) -> int:
        """A track of a name below another; those of lower ``rank`` come first. Gives the track."""
        return self._track(text(2, name), number(11, _EXPLICIT_ORDER), parent=parent, rank=rank)

    def counter(self, name: str, unit: str = "", parent: int = 0, rank: int | None = None) -> int:
        """A number over time. Gives the track."""
        known = number(3, _UNITS[unit]) if unit in _UNITS else text(6, unit) if unit else b""
        return self._track(text(2, name), message(8, known), parent=parent, rank=rank)

    # --- texts --------------------------------------------------------------------------------------------------------

    def names(self, words: Iterable[str]) -> Int64:
        """Numbers of names of slices and instants, int64[n]."""
        return self._numbers(_NAMES, words)

    def categories(self, words: Iterable[str]) -> Int64:
        """Numbers of categories, int64[n]."""
        return self._numbers(_CATEGORIES, words)

    def texts(self, words: Iterable[str]) -> Int64:
        """Numbers of texts that annotations may have, int64[n]."""
        return self._numbers(_ANNOTATION_TEXTS, words)

    def _numbers(self, field: int, words: Iterable[str]) -> Int64:
        known = self._words[field].numbers
        found = np.array([known.setdefault(word, len(known) + 1) for word in words], np.int64)
        fresh = list(known.items())[self._words[field].written :]
        for first in range(0, len(fresh), _WORDS_PER_PACKET):
            part = fresh[first : first + _WORDS_PER_PACKET]
            entries = [message(field, number(1, k), text(2, word)) for word, k in part]
            self._packet(message(_INTERNED, *entries), number(_FLAGS, _NEEDED))
        self._words[field].written = len(known)
        return found

    # --- events -------------------------------------------------------------------------------------------------------

    def slices(
        self,
        track: Int64,
        name: Int64,
        category: Int64,
        begin_ns: Int64,
        duration_ns: Int64,
        *,
        numbers: Mapping[str, Int64] | None = None,
        texts: Mapping[str, Int64] | None = None,
    ) -> None:
        """Add slices; one without length becomes an instant. On a track each lies in the one before it, or follows it.

        Args:
            track: int64[n], their tracks.
            name: int64[n], numbers of their names.
            category: int64[n], numbers of their categories.
            begin_ns: int64[n], 0 or more. Of equal ones on a track the outer comes first.
            duration_ns: int64[n], 0 or more.
            numbers: Numbers, 0 or more, to tell of each, int64[n] by name.
            texts: Numbers of texts to tell of each, int64[n] by name; 0 for none.
        """
        lasting = duration_ns > 0
        size = int(lasting.sum())
        begins = begin_ns[lasting]
        ends = begins + duration_ns[lasting]
        # At one moment what ends comes before what begins, the inner before the outer, and then the outer first.
        order = np.argsort(np.concatenate([ends[::-1], begins]), kind="stable")
        place = np.empty(2 * size, np.int64)
        place[order] = np.arange(2 * size)
        told = _picked(numbers, lasting), _picked(texts, lasting)
        end_order = np.argsort(place[:size], kind="stable")
        end_track = track[lasting][::-1]
        end_rows = self._rows(ends[::-1][end_order], _END, end_track[end_order])
        blocks = [(place[:size][end_order], end_rows)]
        order = np.argsort(place[size:], kind="stable")
        columns = (begins, track[lasting], name[lasting], category[lasting])
        blocks += self._named(place[size:], order, _BEGIN, columns, *told)
        for piece in merged(blocks):
            self._stream.write(piece.data)
        if size < len(lasting):
            short = ~lasting
            self.instants(
                track[short],
                name[short],
                category[short],
                begin_ns[short],
                numbers=_picked(numbers, short),
                texts=_picked(texts, short),
            )

    def instants(
        self,
        track: Int64,
        name: Int64,
        category: Int64,
        time_ns: Int64,
        *,
        numbers: Mapping[str, Int64] | None = None,
        texts: Mapping[str, Int64] | None = None,
    ) -> None:
        """Add instants; columns as of :meth:`slices`."""
        order = np.argsort(time_ns, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        blocks = self._named(place, order, _INSTANT, (time_ns, track, name, category), numbers or {}, texts or {})
        for piece in merged(blocks):
            self._stream.write(piece.data)

    def _named(
        self,
        place: Int64,
        order: Int64,
        kind: int,
        columns: tuple[Int64, Int64, Int64, Int64],
        numbers: Mapping[str, Int64],
        texts: Mapping[str, Int64],
    ) -> list[tuple[Int64, Bytes]]:
        """Blocks of events with names: those with texts, and those without."""
        told = np.zeros(len(order), np.bool_)
        for column in texts.values():
            told |= column > 0
        blocks = []
        for rows, some in ((order[~told[order]], {}), (order[told[order]], texts)):
            if not len(rows):
                continue
            time, track, name, category = (column[rows] for column in columns)
            fields = [number_column(_CATEGORY, category), number_column(_NAME, name)]
            for field, values in ((3, numbers), (17, some)):
                for word, column in values.items():
                    said = constant_column(number(1, self._annotation(word)), len(rows))
                    value = number_column(field, np.maximum(column[rows], 0))
                    fields.append(message_column(_ANNOTATION, [said, value]))
            blocks.append((place[rows], self._rows(time, kind, track, fields)))
        return blocks

    def _annotation(self, word: str) -> int:
        return int(self._numbers(_ANNOTATION_NAMES, [word])[0])

    def _rows(self, time: Int64, kind: int, track: Int64, fields: Sequence[Bytes] = ()) -> Bytes:
        head = number(_SEQUENCE, 1) + number(_FLAGS, _NEEDED)
        event = [
            constant_column(number(_TYPE, kind), len(time)),
            number_column(_EVENT_TRACK, track),
            *fields,
        ]
        stamp = number_column(_TIMESTAMP, time)
        packet = [constant_column(head, len(time)), stamp, message_column(_EVENT, event)]
        return message_column(_PACKET, packet)

    def counters(self, track: Int64, time_ns: Int64, values: npt.NDArray[Any]) -> None:
        """Add values of counters; NaN and infinities, which a line cannot show, are left out.

        Args:
            track: int64[n], their tracks.
            time_ns: int64[n], 0 or more.
            values: float64[n].
        """
        kept = np.flatnonzero(np.isfinite(values))
        kept = kept[np.argsort(time_ns[kept], kind="stable")]
        if len(kept):
            value = double_column(_DOUBLE_COUNTER, values[kept])
            self._stream.write(np.ascontiguousarray(self._rows(time_ns[kept], _COUNT, track[kept], [value])).data)


def _picked(columns: Mapping[str, Int64] | None, rows: npt.NDArray[np.bool_]) -> dict[str, Int64]:
    return {name: column[rows] for name, column in (columns or {}).items()}


@contextmanager
def perfetto_file(path: str | Path, unix_ns: int | None = None) -> Iterator[PerfettoWriter]:
    """A Perfetto trace that is written inside, and takes its place when it is whole; packed if it ends in ``.gz``.

    Raises:
        FileFormatError: It cannot be written.
    """
    with writing_whole(path) as part, part.open("wb") as plain:
        if Path(path).suffix != ".gz":
            yield PerfettoWriter(plain, unix_ns)
            return
        with gzip.GzipFile("", "wb", compresslevel=3, fileobj=plain, mtime=0) as packed:
            yield PerfettoWriter(packed, unix_ns)  # type: ignore[arg-type]


def write_perfetto(trace: Trace, path: str | Path) -> None:
    """Write a trace as a Perfetto trace: threads, slices with their details, instants and counters.

    Of heat maps Perfetto has none; the mean of each becomes a counter. Threads whose events cross have a track for
    each lane. Events without length are instants.

    Args:
        trace: The trace.
        path: The file; packed if it ends in ``.gz``.

    Raises:
        FileFormatError: It cannot be written.
    """
    events, instants = trace.events, trace.instants
    first = min([0, *(int(t.min()) for t in (events.begin_ns, instants.time_ns) if len(t))])
    origin = trace.origin_unix_ns
    with perfetto_file(path, None if origin is None or origin + first < 0 else origin + first) as writer:
        pids = _own_ids(trace.processes.id)
        processes = [writer.process(pid, name) for pid, name in zip(pids, trace.processes.name, strict=True)]
        tids = _own_ids(trace.threads.id)
        threads = np.array(
            [
                writer.thread(pids[p], tid, name, processes[p])
                for p, tid, name in zip(trace.threads.process.tolist(), tids, trace.threads.name, strict=True)
            ],
            np.int64,
        )
        names = writer.names(trace.labels)
        categories = writer.categories(trace.channels)
        details = np.append(writer.texts(trace.details), 0)
        writer.slices(
            _tracks(writer, trace, threads),
            names[events.label],
            categories[events.channel],
            events.begin_ns - first,
            events.duration_ns,
            texts={"detail": details[events.detail]},
        )
        writer.instants(
            threads[instants.thread],
            names[instants.label],
            categories[instants.channel],
            instants.time_ns - first,
            texts={"detail": details[instants.detail]},
        )
        for data in trace.series:
            name = data.graph if data.name in ("", data.graph) else f"{data.graph} {data.name}"
            _counter(writer, name, data.unit, processes[data.process], data.time_ns - first, data.values)
        for heat in trace.heatmaps:
            middle = (heat.edges[:-1] + heat.edges[1:]) / 2
            with np.errstate(all="ignore"):
                mean = heat.counts @ middle / heat.counts.sum(axis=1)
            _counter(writer, f"mean of {heat.name}", heat.unit, processes[heat.process], heat.time_ns - first, mean)


def _counter(
    writer: PerfettoWriter, name: str, unit: str, parent: int, time_ns: Int64, values: npt.NDArray[Any]
) -> None:
    track = writer.counter(name, unit, parent)
    kept = time_ns >= 0
    writer.counters(np.full(int(kept.sum()), track, np.int64), time_ns[kept], values[kept])


def _tracks(writer: PerfettoWriter, trace: Trace, threads: Int64) -> Int64:
    """The track of each event: its thread's, or one for each lane where events of a thread cross."""
    events = trace.events
    tracks = threads[events.thread]
    loose = np.unique(events.thread[(events.depth > 0) & (events.parent < 0)])
    if not len(loose):
        return tracks
    rows = np.flatnonzero(np.isin(events.thread, loose) & (events.depth > 0))
    keys = np.stack([events.thread[rows], events.depth[rows]], axis=1)
    lanes, which = np.unique(keys, axis=0, return_inverse=True)
    made = [
        writer.track(f"{trace.threads.name[thread]} (lane {lane})", int(threads[thread]), lane)
        for thread, lane in lanes.tolist()
    ]
    tracks[rows] = np.array(made, np.int64)[which.reshape(-1)]
    return tracks


def _own_ids(ids: Int64) -> list[int]:
    """Numbers that Perfetto takes, each once: the given ones where they can be."""
    found: list[int] = []
    used = set(ids.tolist())
    spare = 1_000_000_000
    seen: set[int] = set()
    for one in ids.tolist():
        if not 0 < one <= _LARGEST_ID or one in seen:
            while spare in used:
                spare += 1
            one, spare = spare, spare + 1
        seen.add(one)
        found.append(one)
    return found
