"""Reading the files that recordings write, also while they are being written."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from abele.arrays import Int64
from abele.errors import FileFormatError
from abele.trace import format as layout
from abele.trace.columns import Codes, HeatmapData, Numbers, SeriesData
from abele.trace.source import MOST_EVENTS, MOST_THREADS, Marks, SourceProcess, SourceThread, Spans, TraceSource, joined
from abele.words import counted

_MOST_WORDS = 1 << 22
_MOST_BINS = 1 << 12
_LONGEST = 1 << 12
_LATEST_UNIX_NS = 1 << 62
LOST = "(lost)"
"""Name for one whose chunk is damaged."""


@dataclass
class _ChunkColumns:
    """Columns of one kind of records, chunk by chunk."""

    names: tuple[str, ...]
    parts: list[tuple[Int64, ...]]
    size: int = 0

    def add(self, *columns: Int64) -> None:
        self.parts.append(columns)
        self.size += len(columns[0])

    def joined(self) -> dict[str, Int64]:
        """Each column, int64[n]; joined parts stay joined."""
        whole = tuple(joined([part[k] for part in self.parts]) for k in range(len(self.names)))
        self.parts = [whole]
        return dict(zip(self.names, whole, strict=True))


class RecordedFile:
    """File of a finished or running recording, with the parts read so far.

    Args:
        path: The file.

    Raises:
        FileFormatError: It is missing, no trace, or of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._end = 0
        self._size = -1
        self._identity: tuple[int, int] | None = None
        self._process: layout.ProcessHead | None = None
        self._channels: dict[int, str] = {}
        self._labels: dict[int, tuple[int, str]] = {}
        self._details: dict[int, str] = {}
        self._threads: dict[int, layout.ThreadHead] = {}
        self._series: dict[int, tuple[layout.SeriesHead, _ChunkColumns, list[Numbers]]] = {}
        self._heatmaps: dict[int, tuple[layout.HeatmapHead, _ChunkColumns, list[Int64]]] = {}
        self._spans = _ChunkColumns(("thread", "label", "begin", "duration", "detail"), [])
        self._marks = _ChunkColumns(("thread", "label", "time", "detail"), [])
        self._open: dict[str, Int64] = {}
        self._size_when_open = 0
        self._has_ended = False
        self._is_damaged = False
        self._notes: dict[str, int] = {}

    def grown(self) -> bool:
        """True if the file is not as it was when it was read last."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        return now.st_size != self._size or (now.st_dev, now.st_ino) != self._identity

    def read(self) -> TraceSource:
        """Events of the file by now; of a file that was read before, only new parts are read.

        Raises:
            FileFormatError: It is missing, no trace, or of a newer version.
        """
        with self._lock:
            try:
                with self.path.open("rb") as stream:
                    self._read(stream.fileno())
            except OSError as error:
                raise FileFormatError(f"{self.path}: cannot be read: {error.strerror or error}") from error
            return self._source()

    def _read(self, handle: int) -> None:
        now = os.fstat(handle)
        identity = (now.st_dev, now.st_ino)
        if identity != self._identity or now.st_size < self._end:
            self._begin()
        self._identity, self._size = identity, now.st_size
        if now.st_size < layout.FILE_HEAD.size:
            start = os.pread(handle, layout.FILE_HEAD.size, 0) if hasattr(os, "pread") else b""
            if not layout.MAGIC.startswith(start[: len(layout.MAGIC)]):
                raise self._foreign()
            return  # Begun a moment ago.
        with mmap.mmap(handle, now.st_size, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as content:
            self._read_chunks(content)

    def _foreign(self) -> FileFormatError:
        return FileFormatError(
            f"{self.path}: not an Abele trace", because="the file does not begin as one", remedy="a file of abele.trace"
        )

    def _read_chunks(self, content: memoryview) -> None:
        if self._end == 0:
            magic, version = layout.FILE_HEAD.unpack_from(content, 0)
            if magic != layout.MAGIC:
                raise self._foreign()
            if version != layout.VERSION:
                raise FileFormatError(
                    f"{self.path}: version {version} of the format of traces; this Abele reads {layout.VERSION}",
                    remedy="a newer Abele",
                )
            self._end = layout.FILE_HEAD.size
        while not self._is_damaged:
            try:
                found = layout.chunk_at(content, self._end)
            except layout.DamagedChunkError as error:
                self._note(f"damaged at byte {self._end:,}: {error}")
                # Without a head that can be trusted nobody knows where the next chunk begins.
                self._is_damaged, self._end = error.end is None, error.end or self._end
                continue
            if found is None:
                return
            chunk, after = found
            with chunk.payload:
                self._take(chunk)
            self._end = after

    def _note(self, text: str) -> None:
        if text in self._notes or len(self._notes) < 20:
            self._notes[text] = self._notes.get(text, 0) + 1

    def _take(self, chunk: layout.Chunk) -> None:
        read = _READERS.get(chunk.kind)
        if read is None:
            self._note(f"holds what this Abele does not know (kind {chunk.kind})")
            return
        try:
            read(self, chunk)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            self._note(f"damaged at byte {self._end:,}: {str(error)[:200]}")

    # --- chunks ------------------------------------------------------------------------------------------------------

    def _take_declarations(self, chunk: layout.Chunk) -> None:
        found = msgspec.json.decode(bytes(chunk.payload).rstrip(b"\0"), type=layout.Declarations)
        if self._process is None and found.process is not None:
            head = found.process
            if not abs(head.begin_ns) < layout.LATEST:
                raise ValueError("its clock is out of range")
            self._process = head
        for first, words in ((found.first_channel, found.channels), (found.first_label, found.labels)):
            if first < 0 or first + len(words) > _MOST_WORDS:
                raise ValueError(f"names are numbered up to {first + len(words):,}, at most {_MOST_WORDS:,} are read")
        if found.first_detail < 1:
            raise ValueError("details are numbered from 1 on")
        if len(self._details) + len(found.details) > _MOST_WORDS:
            self._note(f"more than {_MOST_WORDS:,} events are told more of; what is told of the later ones is left out")
            found.details = []
        self._channels.update(enumerate((text[:_LONGEST] for text in found.channels), found.first_channel))
        self._labels.update(enumerate(((c, text[:_LONGEST]) for c, text in found.labels), found.first_label))
        self._details.update(enumerate(found.details, found.first_detail))
        for thread in found.threads:
            _bounded(len(self._threads), "thread")
            self._threads.setdefault(thread.number, thread)
        for series in found.series:
            _bounded(len(self._series), "series")
            self._series.setdefault(series.number, (series, _ChunkColumns(("time",), []), []))
        for heatmap in found.heatmaps:
            _bounded(len(self._heatmaps), "heat map")
            edges = np.array(heatmap.edges, np.float64)
            if not 2 <= len(edges) <= _MOST_BINS + 1 or not (np.diff(edges) > 0).all():
                raise ValueError(f"a heat map has {len(edges):,} edges, or edges that do not ascend")
            self._heatmaps.setdefault(heatmap.number, (heatmap, _ChunkColumns(("time",), []), []))

    def _columns(self, chunk: layout.Chunk, count: int, start: int = 0) -> tuple[list[Int64], int]:
        found = []
        for _ in range(count):
            column, start = layout.unpacked(chunk.payload, start, chunk.num_records)
            found.append(column)
        return found, start

    def _take_events(self, chunk: layout.Chunk) -> None:
        (thread, label, begin, duration, detail), _ = self._columns(chunk, 5)
        if len(duration) and int(duration.min()) < 0:
            raise ValueError("an event ends before it begins")
        if self._spans.size + len(begin) > MOST_EVENTS:
            self._note(f"more than {MOST_EVENTS:,} events; the later ones are left out")
            return
        self._spans.add(thread, label, begin, duration, detail)

    def _take_instants(self, chunk: layout.Chunk) -> None:
        columns, _ = self._columns(chunk, 4)
        if self._marks.size + chunk.num_records > MOST_EVENTS:
            self._note(f"more than {MOST_EVENTS:,} instants; the later ones are left out")
            return
        self._marks.add(*columns)

    def _take_samples(self, chunk: layout.Chunk) -> None:
        (number, time), start = self._columns(chunk, 2)
        values, _ = layout.unpacked_floats(chunk.payload, start, chunk.num_records)
        for one in np.unique(number).tolist():
            if one not in self._series:
                self._note("holds values of a series that is not declared")
                continue
            _, times, kept = self._series[one]
            if times.size + len(time) > MOST_EVENTS:
                self._note(f"more than {MOST_EVENTS:,} values of a series; the later ones are left out")
                continue
            mine = number == one
            times.add(time[mine])
            kept.append(values[mine])

    def _take_heatmap(self, chunk: layout.Chunk) -> None:
        head, start = layout.unpacked(chunk.payload, 0, 1)
        if int(head[0]) not in self._heatmaps:
            raise ValueError("holds counts of a heat map that is not declared")
        heatmap, times, kept = self._heatmaps[int(head[0])]
        bins = len(heatmap.edges) - 1
        time, start = layout.unpacked(chunk.payload, start, chunk.num_records)
        counts, _ = layout.unpacked(chunk.payload, start, chunk.num_records * bins)
        if len(counts) and int(counts.min()) < 0:
            raise ValueError("a heat map counts less than nothing")
        if (times.size + len(time)) * bins > MOST_EVENTS:
            self._note("more of a heat map than is read; the later part is left out")
            return
        times.add(time)
        kept.append(counts.reshape(-1, bins))

    def _take_open(self, chunk: layout.Chunk) -> None:
        (thread, label, begin, until), _ = self._columns(chunk, 4)
        self._open = {"thread": thread, "label": label, "begin": begin, "until": until}
        self._size_when_open = self._spans.size

    def _take_end(self, chunk: layout.Chunk) -> None:
        (lost,), _ = self._columns(chunk, 1)
        self._has_ended, self._open = True, {}
        if len(lost) and int(lost[0]) > 0:
            self._note(f"{counted(int(lost[0]), 'event')} could not be written")

    # --- what they make together -------------------------------------------------------------------------------------

    def _source(self) -> TraceSource:
        head = self._process or layout.ProcessHead(0, "unknown process")
        begin = head.begin_ns
        threads, rows = self._thread_rows()
        # Names may be missing, as their chunk is damaged: the last entry of both lists stands for all of them.
        channels = [self._channels.get(k, LOST) for k in range(max(self._channels, default=-1) + 1)] + [LOST]
        labels = [self._labels.get(k, (-1, LOST)) for k in range(max(self._labels, default=-1) + 1)] + [(-1, LOST)]
        last = len(channels) - 1
        channel_of = np.array([c if 0 <= c < last else last for c, _ in labels], np.int32)
        details = list(self._details.values())
        detail_rows = np.array(sorted(self._details), np.int64)

        def label_codes(numbers: Int64) -> Codes:
            return np.where((numbers < 0) | (numbers >= len(labels)), len(labels) - 1, numbers).astype(np.int32)

        def details_of(numbers: Int64) -> Codes:
            if not len(detail_rows):
                return np.full(len(numbers), -1, np.int32)
            at = np.minimum(np.searchsorted(detail_rows, numbers), len(detail_rows) - 1)
            return np.where(detail_rows[at] == numbers, at, -1).astype(np.int32)

        # Details are looked up by binary search, so their texts go in order of number.
        if list(self._details) != detail_rows.tolist():
            details = [self._details[k] for k in detail_rows.tolist()]
        spans, opened = self._spans.joined(), self._still_open()
        number = np.concatenate([spans["label"], opened["label"]])
        codes = label_codes(number)
        marks = self._marks.joined()
        mark_codes = label_codes(marks["label"])
        series = [self._series_data(number, begin, last) for number in self._series]
        heatmaps = [self._heatmap_data(number, begin, last) for number in self._heatmaps]
        # Where no name is missing, the spare entries are dropped again.
        if not (codes == len(labels) - 1).any() and not (mark_codes == len(labels) - 1).any():
            labels.pop()
            if not (channel_of[:-1] == last).any() and last not in [
                *(s.channel for s in series),
                *(h.channel for h in heatmaps),
            ]:
                channels.pop()
        return TraceSource(
            file=self.path.name,
            unix_ns=head.begin_unix_ns if 0 < head.begin_unix_ns < _LATEST_UNIX_NS else None,
            processes=[SourceProcess(head.pid, head.name, head.parent, head.host)],
            threads=threads,
            channels=channels,
            labels=[text for _, text in labels],
            details=details,
            spans=Spans(
                thread=rows(np.concatenate([spans["thread"], opened["thread"]])),
                channel=channel_of[codes],
                label=codes,
                begin_ns=np.concatenate([spans["begin"], opened["begin"]]) - begin,
                duration_ns=np.concatenate([spans["duration"], np.maximum(opened["until"] - opened["begin"], 0)]),
                detail=details_of(np.concatenate([spans["detail"], np.zeros(len(opened["label"]), np.int64)])),
                is_open=np.arange(len(codes)) >= len(spans["label"]),
            ),
            marks=Marks(
                thread=rows(marks["thread"]),
                channel=channel_of[mark_codes],
                label=mark_codes,
                time_ns=marks["time"] - begin,
                detail=details_of(marks["detail"]),
            ),
            series=series,
            heatmaps=heatmaps,
            notes=self._all_notes(),
        )

    def _thread_rows(self) -> tuple[list[SourceThread], Callable[[Int64], Codes]]:
        """Threads in order, and a function from their numbers to rows; those not declared share one."""
        numbers = np.array(sorted(self._threads), np.int64)
        threads = [SourceThread(0, t.id, t.name) for t in (self._threads[k] for k in numbers.tolist())]
        spare = len(threads)
        used = [self._spans.joined()["thread"], self._marks.joined()["thread"], self._open.get("thread", numbers[:0])]
        if not np.isin(np.unique(np.concatenate(used)), numbers).all():
            threads.append(SourceThread(0, -1, LOST))

        def rows(wanted: Int64) -> Codes:
            at = np.searchsorted(numbers, wanted)
            known = np.isin(wanted, numbers)
            return np.where(known, at, spare).astype(np.int32)

        return threads, rows

    def _still_open(self) -> dict[str, Int64]:
        """Events that were open when the file was last written, less those ended since."""
        if not self._open:
            return dict.fromkeys(("thread", "label", "begin", "until"), np.zeros(0, np.int64))
        since = {name: values[self._size_when_open :] for name, values in self._spans.joined().items()}
        names = ("thread", "label", "begin")
        ended = set(zip(*(since[name].tolist() for name in names), strict=True))
        kept = [key not in ended for key in zip(*(self._open[name].tolist() for name in names), strict=True)]
        return {name: values[np.array(kept, np.bool_)] for name, values in self._open.items()}

    def _series_data(self, number: int, begin: int, last: int) -> SeriesData:
        head, times, values = self._series[number]
        time = times.joined()["time"] - begin
        whole = np.concatenate(values) if values else np.zeros(0)
        values[:] = [whole]
        order = np.argsort(time, kind="stable")
        channel = head.channel if 0 <= head.channel < last else last
        return SeriesData(head.graph, head.name, head.unit, channel, 0, time_ns=time[order], values=whole[order])

    def _heatmap_data(self, number: int, begin: int, last: int) -> HeatmapData:
        head, times, counts = self._heatmaps[number]
        time = times.joined()["time"] - begin
        edges = np.array(head.edges, np.float64)
        whole = np.concatenate(counts) if counts else np.zeros((0, len(edges) - 1), np.int64)
        counts[:] = [whole]
        order = np.argsort(time, kind="stable")
        channel = head.channel if 0 <= head.channel < last else last
        return HeatmapData(head.name, head.unit, channel, 0, edges, time_ns=time[order], counts=whole[order])

    def _all_notes(self) -> list[str]:
        notes = [text if n == 1 else f"{text} ({n:,} times)" for text, n in self._notes.items()]
        if not self._has_ended:
            rest = self._size - self._end
            cut = f"; the last {counted(rest, 'byte')} are no whole chunk" if rest and not self._is_damaged else ""
            notes.append(f"the recording has no end: it is still being written, or was cut short{cut}")
        return notes


def _bounded(count: int, noun: str) -> None:
    if count >= MOST_THREADS:
        raise ValueError(f"more than {counted(MOST_THREADS, noun)}")


_READERS: dict[int, Callable[[RecordedFile, layout.Chunk], None]] = {
    layout.ChunkKind.DECLARATIONS: RecordedFile._take_declarations,
    layout.ChunkKind.EVENTS: RecordedFile._take_events,
    layout.ChunkKind.INSTANTS: RecordedFile._take_instants,
    layout.ChunkKind.SAMPLES: RecordedFile._take_samples,
    layout.ChunkKind.HEATMAP: RecordedFile._take_heatmap,
    layout.ChunkKind.OPEN: RecordedFile._take_open,
    layout.ChunkKind.END: RecordedFile._take_end,
}
