"""The file that a recording writes: appended to chunk by chunk, each with one call of the system."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np

from abele.arrays import Array
from abele.trace.format import (
    FILE_HEAD,
    MAGIC,
    MOST_PAYLOAD_BYTES,
    VERSION,
    ChunkKind,
    Declarations,
    chunk_bytes,
    packed,
    packed_floats,
)

RECORDS_PER_CHUNK = 1 << 16
"""Most records of a chunk: a reader waits for it, and a crash may lose one that is being written."""
_MOST_DECLARED_BYTES = MOST_PAYLOAD_BYTES // 4


class TraceWriter:
    """Appends to a trace file.

    Args:
        path: The file; what it held is replaced.
        exclusive: Refuse a file that is there already.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: Path, *, exclusive: bool = False) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        if not exclusive:
            # A reader keeps what it mapped: the old file goes, rather than being emptied under it.
            path.unlink(missing_ok=True)
        self._handle = os.open(path, flags | os.O_EXCL, 0o644)
        self._pending: list[bytes] = [FILE_HEAD.pack(MAGIC, VERSION)]
        self.num_bytes = 0

    def declare(self, found: Declarations) -> None:
        """Add declarations for later chunks."""
        content = msgspec.json.encode(found)
        if len(content) <= _MOST_DECLARED_BYTES:
            self._add(ChunkKind.DECLARATIONS, 1, content)
            return
        for part in _halves(found):
            self.declare(part)

    def columns(self, kind: ChunkKind, *columns: Array) -> None:
        """Add records, int64[n] a column."""
        for first in range(0, len(columns[0]), RECORDS_PER_CHUNK):
            rows = slice(first, first + RECORDS_PER_CHUNK)
            parts = [packed(column[rows]) for column in columns]
            self._add(kind, len(columns[0][rows]), b"".join(parts))

    def samples(self, series: Array, time: Array, values: Array) -> None:
        """Add values of series: int64[n], int64[n], float64[n]."""
        for first in range(0, len(time), RECORDS_PER_CHUNK):
            rows = slice(first, first + RECORDS_PER_CHUNK)
            content = packed(series[rows]) + packed(time[rows]) + packed_floats(values[rows])
            self._add(ChunkKind.SAMPLES, len(time[rows]), content)

    def counts(self, heatmap: int, time: Array, counts: Array) -> None:
        """Add counts of a heat map: int64[n], int64[n, bins]."""
        step = max(1, min(RECORDS_PER_CHUNK, MOST_PAYLOAD_BYTES // 16 // max(counts.shape[1], 1)))
        for first in range(0, len(time), step):
            rows = slice(first, first + step)
            parts = (np.array([heatmap], np.int64), time[rows], counts[rows].reshape(-1))
            self._add(ChunkKind.HEATMAP, len(time[rows]), b"".join(packed(part) for part in parts))

    def open_events(self, *columns: Array) -> None:
        """Add the open events, as the last ones that a reader believes; at most one chunk of them."""
        rows = slice(0, RECORDS_PER_CHUNK)
        parts = [packed(column[rows]) for column in columns]
        self._add(ChunkKind.OPEN, len(columns[0][rows]), b"".join(parts))

    def end(self, num_lost: int) -> None:
        """Add the end, with how many events were lost on the way."""
        self._add(ChunkKind.END, 1, packed(np.array([num_lost], np.int64)))

    def _add(self, kind: ChunkKind, num_records: int, payload: bytes) -> None:
        self._pending.append(chunk_bytes(kind, num_records, payload))

    def flush(self) -> None:
        """Pass all added chunks to the system at once: a reader finds all of them or none, but for a crash in between.

        Raises:
            OSError: The system refuses; what was added is lost.
        """
        content = memoryview(b"".join(self._pending))
        self._pending = []
        while content:
            written = os.write(self._handle, content)
            self.num_bytes += written
            content = content[written:]

    def close(self) -> None:
        """Close the file; nothing can be added any more."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def _halves(found: Declarations) -> list[Declarations]:
    """Declarations in two parts, or the same where there is one name only."""
    names = ("channels", "labels", "details", "threads", "series", "heatmaps")
    parts = []
    for name in names:
        words = getattr(found, name)
        middle = len(words) // 2
        for low, high in ((0, middle), (middle, len(words))):
            if low < high:
                part = Declarations(**{name: words[low:high]})
                first = f"first_{name[:-1]}"
                if hasattr(part, first):
                    setattr(part, first, getattr(found, first) + low)
                parts.append(part)
    if found.process is not None:
        parts.insert(0, Declarations(process=found.process))
    return parts
