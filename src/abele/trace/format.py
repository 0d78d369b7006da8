"""The layout of a trace file: a head, then chunks that are only ever appended.

A chunk has a head of 24 bytes (marker, kind, number of records, bytes of its payload, checksums of both) and a payload
whose length is a multiple of 8. A reader takes whole chunks up to where the file ends, so that a file may be read while
it grows, or after the program that wrote it died. Numbers are little-endian. docs/traces.md has the tables.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64

MAGIC = b"abele-trace\x00"
VERSION = 1
ENDING = ".abele-trace"
FILE_HEAD = struct.Struct("<12sI")
_CHUNK_HEAD = struct.Struct("<4sIIIII")
"""Marker, kind, number of records, bytes of the payload, checksum of the payload, checksum of the five before."""
CHUNK_HEAD_BYTES = _CHUNK_HEAD.size
_MARKER = b"ABCK"
MOST_PAYLOAD_BYTES = 16 << 20
_COLUMN_HEAD = struct.Struct("<qB7x")
_WIDTHS = (1, 2, 4)
LATEST = 1 << 60
"""Times and counts lie below this in magnitude, so that sums and differences of two stay within 64 bits."""


class ChunkKind(IntEnum):
    """Content of a chunk."""

    DECLARATIONS = 1
    EVENTS = 2
    INSTANTS = 3
    SAMPLES = 4
    HEATMAP = 5
    OPEN = 6
    END = 7


class ProcessHead(msgspec.Struct, omit_defaults=True):
    """The process that a file is of.

    Attributes:
        pid: Its number.
        name: Its name: the program's file.
        parent: Number of the process that started it.
        host: The computer's name.
        begin_ns: Time of its clock when the recording began.
        begin_unix_ns: The same time in nanoseconds since 1970 began.
    """

    pid: int
    name: str = ""
    parent: int = 0
    host: str = ""
    begin_ns: int = 0
    begin_unix_ns: int = 0


class ThreadHead(msgspec.Struct):
    """Thread: its number in the file, its number in the system, and its name."""

    number: int
    id: int
    name: str = ""


class SeriesHead(msgspec.Struct, omit_defaults=True):
    """A numeric series: its number in the file, the graph it is drawn in, its name, the unit, the channel."""

    number: int
    graph: str
    name: str
    unit: str = ""
    channel: int = 0


class HeatmapHead(msgspec.Struct, omit_defaults=True):
    """A heat map: its number in the file, its name, the edges between its bins, their unit, the channel."""

    number: int
    name: str
    edges: list[float]
    unit: str = ""
    channel: int = 0


class Declarations(msgspec.Struct, omit_defaults=True):
    """Names that chunks after it refer to by number.

    Attributes:
        process: The process; in the first chunk of a file.
        channels: Names of channels, the first of which has the number ``first_channel``.
        labels: Channel and text of labels, the first of which has the number ``first_label``.
        details: Further facts about single events, as JSON; the first has the number ``first_detail``.
        threads: Threads.
        series: Numeric series.
        heatmaps: Heat maps.
    """

    process: ProcessHead | None = None
    first_channel: int = 0
    channels: list[str] = []
    first_label: int = 0
    labels: list[tuple[int, str]] = []
    first_detail: int = 1
    details: list[str] = []
    threads: list[ThreadHead] = []
    series: list[SeriesHead] = []
    heatmaps: list[HeatmapHead] = []


@dataclass(frozen=True)
class Chunk:
    """A chunk of a file, its payload checked.

    Attributes:
        kind: A :class:`ChunkKind`, or a number that a later version may have given a meaning.
        num_records: Number of records.
        payload: The records.
    """

    kind: int
    num_records: int
    payload: memoryview


class DamagedChunkError(ValueError):
    """A chunk that is not as it was written.

    Attributes:
        end: Begin of the next chunk, if that is known.
    """

    def __init__(self, message: str, end: int | None = None) -> None:
        super().__init__(message)
        self.end = end


def chunk_bytes(kind: ChunkKind, num_records: int, payload: bytes) -> bytes:
    """A chunk as it stands in a file."""
    payload += bytes(-len(payload) % 8)
    head = _CHUNK_HEAD.pack(_MARKER, kind, num_records, len(payload), zlib.crc32(payload), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def chunk_at(content: memoryview, start: int) -> tuple[Chunk, int] | None:
    """The chunk that begins at ``start``, and where it ends; None where the content ends before the chunk does.

    Raises:
        DamagedChunkError: There is no chunk, or it does not have its checksum.
    """
    if len(content) - start < CHUNK_HEAD_BYTES:
        return None
    marker, kind, num_records, size, checksum, head_checksum = _CHUNK_HEAD.unpack_from(content, start)
    body = start + CHUNK_HEAD_BYTES
    if marker != _MARKER or zlib.crc32(content[start : body - 4]) != head_checksum:
        raise DamagedChunkError("no chunk begins there")
    if size % 8 or size > MOST_PAYLOAD_BYTES or num_records > size:
        raise DamagedChunkError(f"a chunk claims {num_records:,} records in {size:,} B")
    if body + size > len(content):
        return None
    payload = content[body : body + size]
    if zlib.crc32(payload) != checksum:
        raise DamagedChunkError("a chunk does not have its checksum", body + size)
    return Chunk(kind, num_records, payload), body + size


def packed(values: Array) -> bytes:
    """Integers as a base and the differences from it in the fewest bytes that hold them.

    Args:
        values: int64[n]; times stay below :data:`LATEST`.
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for width in _WIDTHS:
        if high - low < 1 << 8 * width:
            content = (values - low).astype(f"<u{width}").tobytes()
            return _COLUMN_HEAD.pack(low, width) + content + bytes(-len(content) % 8)
    return _COLUMN_HEAD.pack(0, 8) + values.astype("<i8").tobytes()


def unpacked(payload: memoryview, start: int, count: int) -> tuple[Int64, int]:
    """Integers that :func:`packed` packed, and the place after them.

    Raises:
        ValueError: They are longer than the payload, of another width, or out of range.
    """
    if start + _COLUMN_HEAD.size > len(payload):
        raise ValueError("a column is cut short")
    base, width = _COLUMN_HEAD.unpack_from(payload, start)
    start += _COLUMN_HEAD.size
    if width not in (*_WIDTHS, 8) or start + count * width > len(payload):
        raise ValueError(f"a column of {count:,} values of {width} B does not fit")
    if abs(base) >= LATEST - (1 << 32):
        raise ValueError(f"a column begins at {base}, which is out of range")
    values = np.frombuffer(payload, f"<i{width}" if width == 8 else f"<u{width}", count, start)
    result = values.astype(np.int64)
    if width != 8:
        result += base
    elif len(result) and (int(result.max()) >= LATEST or int(result.min()) <= -LATEST):
        raise ValueError("a column holds values that are out of range")
    size = count * width
    return result, start + size + -size % 8


def packed_floats(values: Array) -> bytes:
    """Floating-point numbers as in memory, float64[n]."""
    return np.ascontiguousarray(values, "<f8").tobytes()


def unpacked_floats(payload: memoryview, start: int, count: int) -> tuple[npt.NDArray[np.float64], int]:
    """Numbers that :func:`packed_floats` packed, and the place after them.

    Raises:
        ValueError: They are longer than the payload.
    """
    if start + 8 * count > len(payload):
        raise ValueError(f"a column of {count:,} values of 8 B does not fit")
    return np.frombuffer(payload, "<f8", count, start).astype(np.float64), start + 8 * count
