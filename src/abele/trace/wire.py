"""The wire format of protocol buffers, for columns: one record per row, all of one kind as long as each other.

An object of the protobuf package per event takes some 10 µs and a kilobyte. Here a column becomes a block of bytes at
once: integers as varints of the width that the largest needs, shorter ones filled up with continuation bytes, which
the format allows (Perfetto's own writer fills its lengths up so).

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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
