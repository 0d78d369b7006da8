"""Files of records: a record is its length, a checksum of that, its bytes, and a checksum of these.

The checksum, CRC-32C, is linear: that of two strings one after the other is the first one's, moved past the second,
xored with the second one's. So the checksums of all bytes are joined in pairs, then those of pairs, and so on.
"""

from __future__ import annotations

import gzip
import struct
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ..tensors import host_array

Words = npt.NDArray[np.uint32]
_POLYNOMIAL = 0x82F63B78
"""Castagnoli's polynomial, lowest bit first (RFC 3720, appendix B.4)."""
_MASK = 0xA282EAD8
"""Added to a rotated checksum, so that checksums of records in records differ (TensorFlow's record format)."""
_ALL = 0xFFFFFFFF


@cache
def _moved(doublings: int) -> Words:
    """Checksums moved past ``2**doublings`` bytes of zeros, for each byte of the checksum: u32[4, 256]."""
    if doublings == 0:
        table: Words = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * np.uint32(_POLYNOMIAL)
        rest = [(np.arange(256, dtype=np.uint32) << np.uint32(8 * place)) >> np.uint32(8) for place in (1, 2, 3)]
        return np.stack([table, *rest])
    places = np.uint32(8) * np.arange(4, dtype=np.uint32)[:, None]
    return _move(_move(np.arange(256, dtype=np.uint32) << places, doublings - 1), doublings - 1)


def _move(checksums: Words, doublings: int) -> Words:
    table, eight = _moved(doublings), np.uint32(8)
    parts = [table[place][(checksums >> (eight * np.uint32(place))) & np.uint32(255)] for place in range(4)]
    found: Words = parts[0] ^ parts[1] ^ parts[2] ^ parts[3]
    return found


def crc32c(data: bytes) -> int:
    """CRC-32C of bytes."""
    count = len(data)
    padded = np.zeros(1 << max(count - 1, 0).bit_length(), np.uint32)  # Zeros before a string change nothing.
    padded[len(padded) - count :] = np.frombuffer(data, np.uint8)
    joined = _move(padded, 0)
    for doublings in range(len(padded).bit_length() - 1):
        joined = _move(joined[::2], doublings) ^ joined[1::2]
    start = np.array([_ALL], np.uint32)
    for doublings in range(count.bit_length()):
        start = _move(start, doublings) if count >> doublings & 1 else start
    return int(joined[0] ^ start[0]) ^ _ALL


def masked_checksum(data: bytes) -> int:
    """Checksum of bytes as records have it."""
    found = crc32c(data)
    return ((found >> 15 | found << 17) + _MASK) & _ALL


class TFRecordWriter:
    """Writes records, such as serialised ``tf.train.Example``s, to a file.

    Args:
        path: The file.
        options: ``"GZIP"``, or none.
    """

    def __init__(self, path: Any, options: Any = None) -> None:
        place = Path(path if isinstance(path, str) else str(path))
        kind = getattr(options, "compression_type", options)
        opener: Any = gzip.open if kind == "GZIP" else open
        self._file: BinaryIO = opener(place, "wb")

    def write(self, record: Any) -> None:
        """Append a record."""
        data = record if isinstance(record, bytes) else bytes(host_array(record).item())
        length = struct.pack("<Q", len(data))
        self._file.write(length + struct.pack("<I", masked_checksum(length)))
        self._file.write(data + struct.pack("<I", masked_checksum(data)))

    def flush(self) -> None:
        """Hand what was written to the system."""
        self._file.flush()

    def close(self) -> None:
        """End."""
        self._file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TFRecordOptions:
    """Options of a writer.

    Args:
        compression_type: ``"GZIP"``, or none.
    """

    def __init__(self, compression_type: str | None = None, **_: Any) -> None:
        self.compression_type = compression_type
