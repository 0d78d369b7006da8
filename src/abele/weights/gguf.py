"""Files in the format GGUF, versions 2 and 3: counts, typed metadata, tensors' places, then aligned data.

Little-endian throughout. A metadata entry is a name, the number of a type and a value; strings have a length of 64
bits, arrays a type and a count. A tensor is a name, its dimensions with the fastest first, the number of its kind and
its offset from the start of the data. Every count is compared with the bytes that are left before anything is
made of it.

Source: the format's specification in the repository of ggml (docs/gguf.md); the tests write files with the package
``gguf``.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, cast

import numpy as np

from abele.arrays import Array
from abele.errors import FileFormatError
from abele.weights.kinds import KINDS, StoredKind
from abele.weights.stored import PlacedTensor, StoredTensor, WeightFile, mapped, stored

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_DIMENSIONS = 4
MOST_NESTED = 4
"""Arrays within arrays that are read."""
DEFAULT_ALIGNMENT = 32
MOST_ALIGNMENT = 1 << 16
SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
"""Names of the parts of a split model."""

_STRING, _ARRAY = 8, 9
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("u1"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_BOOL = 7
_KIND_NAMES = {
    number: name
    for names in (
        "F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S",
        20 * "- " + "IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 Q4_0_4_4 Q4_0_4_8 Q4_0_8_8 TQ1_0 TQ2_0",
        39 * "- " + "MXFP4",
    )
    for number, name in enumerate(names.split())
    if name != "-"
}
"""Kinds of the format by number; those that are not in ``KINDS`` are refused by name."""


def read_gguf(path: Path) -> WeightFile:
    """Tensors and metadata of one file, or of all parts of a split model whose first part is given.

    Raises:
        FileFormatError: The file is cut off, of another version or byte order, or says what cannot be.
    """
    file = _read_part(path)
    parts = file.metadata.get("split.count", 0)
    if not isinstance(parts, int) or parts <= 1:
        return file
    named = SHARD.fullmatch(path.name)
    if named is None or int(named[3]) != parts or int(named[2]) != 1:
        raise FileFormatError(
            f"{path}: the file is one of {parts} parts", remedy="open the first, NAME-00001-of-0000N.gguf"
        )
    tensors: dict[str, StoredTensor] = dict(file)
    for number in range(2, parts + 1):
        part = path.with_name(f"{named[1]}-{number:05d}-of-{named[3]}.gguf")
        if not part.is_file():
            raise FileFormatError(f"{path}: the part {part.name!r} is missing", remedy="fetch all parts of the model")
        more = _read_part(part)
        twice = next((name for name in more if name in tensors), None)
        if twice is not None:
            raise FileFormatError(f"{part}: tensor {twice!r} is in an earlier part, too")
        tensors.update(more)
    return WeightFile(path, "gguf", tensors, file.metadata)


def _read_part(path: Path) -> WeightFile:
    reader = _GgufHeader(path)
    if reader.take(4, "the magic number") != MAGIC:
        raise FileFormatError(f"{path}: not a GGUF file", at="byte 0", because=f"it does not begin with {MAGIC!r}")
    version = reader.whole(4, "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        raise FileFormatError(
            f"{path}: GGUF version {version:,} is not read" if not swapped else f"{path}: the file is big-endian",
            at="byte 4",
            remedy=f"convert it to a little-endian file of version {VERSIONS[-1]}",
        )
    num_tensors = reader.count("tensors", least_bytes=8 + 4 + 4 + 8)
    num_entries = reader.count("metadata entries", least_bytes=8 + 4 + 1)
    metadata: dict[str, Any] = {}
    for _ in range(num_entries):
        at = reader.position
        name = reader.text("a metadata name")
        if name in metadata:
            raise FileFormatError(f"{path}: there are two metadata entries {name!r}", at=f"byte {at:,}")
        metadata[name] = reader.value(reader.whole(4, f"the type of {name!r}"), name)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= MOST_ALIGNMENT or alignment & (alignment - 1):
        raise FileFormatError(
            f"{path}: an alignment of {alignment!r} is no power of two up to {MOST_ALIGNMENT:,}",
            at="general.alignment",
        )
    told = [_told(reader) for _ in range(num_tensors)]
    first = -(-reader.position // alignment) * alignment
    placed = [_placed(path, one, first, alignment) for one in told]
    return WeightFile(path, "gguf", stored(path, reader.data, first, placed), metadata)


class _GgufHeader:
    """Place in a file's header that moves on as things are read, never past the file's end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = mapped(path)
        self.bytes = memoryview(cast(bytes, self.data))
        self.position = 0

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return len(self.bytes) - self.position

    def fault(self, message: str, because: str | None = None) -> FileFormatError:
        """An error at this place."""
        return FileFormatError(f"{self.path}: {message}", at=f"byte {self.position:,}", because=because)

    def take(self, size: int, what: str) -> bytes:
        """The next bytes."""
        if size > self.left:
            raise self.fault(f"cut off in {what}", f"{size:,} B are needed, {self.left:,} B are left")
        self.position += size
        return bytes(self.bytes[self.position - size : self.position])

    def whole(self, size: int, what: str) -> int:
        """An unsigned number of ``size`` bytes."""
        return int.from_bytes(self.take(size, what), "little")

    def count(self, what: str, least_bytes: int) -> int:
        """A count of things of which each takes at least so many bytes."""
        found = self.whole(8, f"the number of {what}")
        if found * least_bytes > self.left:
            self.position -= 8
            raise self.fault(
                f"{found:,} {what} cannot be in the file",
                f"they take {least_bytes} B or more, {self.left:,} B are left",
            )
        return found

    def text(self, what: str) -> str:
        """A string with its length before it."""
        at = self.position
        taken = self.take(self.count(f"bytes of {what}", 1), what)
        try:
            return taken.decode("utf-8")
        except UnicodeDecodeError as error:
            self.position = at
            raise self.fault(f"{what} is not UTF-8", str(error)) from error

    def value(self, type_number: int, name: str, depth: int = 0) -> Any:
        """A metadata value: a number, a string, an array of numbers, or a tuple of strings or arrays."""
        if type_number == _STRING:
            return self.text(f"the value of {name!r}")
        if type_number in _NUMBERS:
            return self._truth(self._numbers(1, type_number, name), type_number, name)[0].item()
        if type_number != _ARRAY:
            raise self.fault(f"metadata {name!r} is of the unknown type {type_number:,}")
        if depth == MOST_NESTED:
            raise self.fault(f"metadata {name!r} nests arrays deeper than {MOST_NESTED}")
        inner = self.whole(4, f"the type of {name!r}")
        if inner in _NUMBERS:
            length = self.count(f"numbers of {name!r}", _NUMBERS[inner].itemsize)
            return self._truth(self._numbers(length, inner, name), inner, name)
        length = self.count(f"values of {name!r}", 8 if inner == _STRING else 12)
        return tuple(self.value(inner, name, depth + 1) for _ in range(length))

    def _numbers(self, length: int, type_number: int, name: str) -> Array:
        dtype = _NUMBERS[type_number]
        return np.frombuffer(self.take(length * dtype.itemsize, f"the value of {name!r}"), dtype)

    def _truth(self, numbers: Array, type_number: int, name: str) -> Array:
        if type_number != _BOOL:
            return numbers
        if (numbers > 1).any():
            raise self.fault(f"metadata {name!r} is neither true nor false", f"it is {numbers.max()}")
        return numbers.astype(np.bool_)


def _told(reader: _GgufHeader) -> tuple[str, tuple[int, ...], StoredKind, int, str]:
    """A tensor's name, shape, kind, offset in the data and place in the header."""
    at = f"byte {reader.position:,}"
    name = reader.text("a tensor's name")
    rank = reader.whole(4, f"the rank of tensor {name!r}")
    if not 0 < rank <= MOST_DIMENSIONS:
        raise reader.fault(f"tensor {name!r} has {rank:,} dimensions, 1 to {MOST_DIMENSIONS} are allowed")
    sizes = [reader.whole(8, f"the shape of tensor {name!r}") for _ in range(rank)]
    number = reader.whole(4, f"the kind of tensor {name!r}")
    offset = reader.whole(8, f"the offset of tensor {name!r}")
    if math.prod(sizes) >= 1 << 63:
        raise FileFormatError(f"{reader.path}: tensor {name!r} has a shape of {sizes}: too many numbers", at=at)
    kind = KINDS.get(_KIND_NAMES.get(number, ""))
    if kind is None:
        known = _KIND_NAMES.get(number)
        raise FileFormatError(
            f"{reader.path}: tensor {name!r} is of the kind {known or f'number {number:,}'}, which is not read",
            at=at,
            remedy=f"one of {', '.join(name for name in _KIND_NAMES.values() if name in KINDS)}",
        )
    return name, tuple(reversed(sizes)), kind, offset, at


def _placed(
    path: Path, told: tuple[str, tuple[int, ...], StoredKind, int, str], first: int, alignment: int
) -> PlacedTensor:
    name, shape, kind, offset, at = told
    if offset % alignment:
        raise FileFormatError(
            f"{path}: tensor {name!r} has the offset {offset:,}, which is no multiple of {alignment}", at=at
        )
    return PlacedTensor(name, kind, shape, first + offset, at)
