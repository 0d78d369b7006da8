"""Datasets of files: lines of text, and records as TensorFlow writes them.

A record is 8 bytes of length, 4 of its checksum, the data and 4 bytes of checksum; a file of 3 records of 100 bytes has
348 bytes. Checksums are not read.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from abele.errors import FileFormatError, InvalidOptionError

from ..names.files import path_of
from ..shapes import TensorSpec
from ..tensors import host_array
from .dataset import Dataset
from .nodes import MadeElements

_HEADER = struct.Struct("<QI")
_CHECKSUM_BYTES = 4


class FileDataset(Dataset):
    """Strings of files, one file after the other.

    Args:
        filenames: A path, several, or a dataset of paths.
        compression_type: "GZIP", "ZLIB" or none.
    """

    def __init__(self, filenames: Any, compression_type: Any = None, *_: Any, **__: Any) -> None:
        kind = compression_type or ""
        if kind not in ("", "GZIP", "ZLIB"):
            raise InvalidOptionError(f"compression_type {kind!r}", remedy='"GZIP", "ZLIB" or ""')

        def strings() -> Iterator[list[Any]]:
            for path in _paths(filenames):
                with _opened(path, kind) as file:
                    for found in self._read(file, path):
                        yield [found]

        super().__init__(MadeElements(strings, TensorSpec((), "string")))

    def _read(self, file: BinaryIO, path: str) -> Iterator[bytes]:
        raise NotImplementedError


class TextLineDataset(FileDataset):
    """Lines of text, without their ends."""

    def _read(self, file: BinaryIO, path: str) -> Iterator[bytes]:
        return (line.rstrip(b"\r\n") for line in file)


class TFRecordDataset(FileDataset):
    """Records.

    Raises:
        FileFormatError: A file that ends inside a record.
    """

    def _read(self, file: BinaryIO, path: str) -> Iterator[bytes]:
        while header := file.read(_HEADER.size):
            length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else 0
            data = file.read(length + _CHECKSUM_BYTES)
            if len(data) != length + _CHECKSUM_BYTES:
                raise FileFormatError(f"{path} ends inside a record", remedy="copy the file again")
            yield data[:length]


def _paths(filenames: Any) -> Iterator[str]:
    if isinstance(filenames, Dataset):
        return (path_of(name) for name in filenames.as_numpy_iterator())
    return (path_of(name) for name in np.ravel(host_array(filenames)))


def _opened(path: str, kind: str) -> Any:
    if kind == "ZLIB":
        return io.BytesIO(zlib.decompress(Path(path).read_bytes()))
    opener: Callable[..., Any] = gzip.open if kind == "GZIP" else open
    return opener(path, "rb")
