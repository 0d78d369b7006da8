"""Archives: a zip of plain arrays and one JSON document, written in one move and read without executing anything.

A file may come from anybody. What it costs to read is bounded by its size before anything in it is unpacked: the zip's
directory is looked through first, arrays are measured by their headers, and the JSON document is counted before it is
decoded into the types of its schema. Whatever a reader raises on the way becomes a :class:`FileFormatError`.
"""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import FileFormatError
from abele.words import counted
from abele.writing import writing

T = TypeVar("T")
D = TypeVar("D")

_MEMBER = re.compile(r"[a-z_]+[a-z_0-9]*(/[a-z_]+)?\.(npy|json|net|zip)")
_MOST_MEMBERS = 1 << 20
_DOCUMENT_RATIO, _SMALL_DOCUMENT = 250, 4 << 20
"""A larger document may unpack to this many times its packed size. Those that Abele writes stay below 60."""
_MOST_OBJECTS, _OBJECTS_PER_BYTE = 1 << 20, 4
"""Most values of a document: this number, or this many per packed byte."""
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<|][biuf][1248])', 'fortran_order': False, "
    rb"'shape': \((|\d{1,18},|\d{1,18}(?:, \d{1,18}){1,31})\), \} *\n"
)
_LONGEST_REASON = 500
ALIGNMENT = 64
"""Alignment of arrays that can be mapped, in bytes: a cache line, and the widest vector of any host."""
_LOCAL_HEAD = struct.Struct("<4s22xHH")
"""Signature, lengths of name and extra fields. Source: APPNOTE.TXT of the zip format, 4.3.7."""
_EXTRA_HEAD = struct.Struct("<HH")
_PADDING_FIELD = 0x4241
"""Our number for an extra field that holds nothing; readers skip fields that they do not know."""
_ZIP64_FIELD_BYTES = 20
_LONGEST_ARRAY_HEAD = 1 << 12


@dataclass(frozen=True)
class Kind(Generic[D]):
    """A kind of file.

    Attributes:
        noun: Name of its content, in words: ``report``.
        version: Version that is written, and the newest that is read.
        max_bytes: Most that the members of a file may unpack to.
        free_bytes: Bytes that a file of any size may unpack to; a larger one up to ``ratio`` times its size.
        ratio: See ``free_bytes``.
        again: Advice on how to make the file again.
        schema: Type that the document is decoded into.
        mapped: Arrays are stored as they lie in memory, so that a reader can map them.
    """

    noun: str
    version: int
    max_bytes: int
    free_bytes: int
    ratio: int
    again: str
    schema: type[D]
    mapped: bool = False

    @property
    def format(self) -> str:
        """Name of the format in the document."""
        return f"abele-{self.noun}"

    @property
    def member(self) -> str:
        """Name of the document."""
        return f"{self.noun}.json"

    @property
    def head(self) -> dict[str, Any]:
        """The first entries of the document."""
        return {"format": self.format, "version": self.version}


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0


# --- writing ---------------------------------------------------------------------------------------------------------


class ArchiveWriter(zipfile.ZipFile):
    """An archive that is being written, and that its reader will take.

    Args:
        stream: File to write to.
        kind: Kind of the archive.
    """

    def __init__(self, stream: IO[bytes], kind: Kind[Any]) -> None:
        super().__init__(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._stream = stream
        self._kind = kind
        self._unpacked = 0

    def packing(self, name: str, size: int) -> int:
        """Compression of the next member: none if it is to be mapped, or if it would look like a bomb."""
        self._unpacked += size
        # What packs too well would be refused by the reader, so it is stored as it is.
        bomb = self._unpacked > max(self._kind.free_bytes, self._kind.ratio * self._stream.tell())
        mapped = self._kind.mapped and name.endswith(".npy")
        return zipfile.ZIP_STORED if bomb or mapped else zipfile.ZIP_DEFLATED

    def padding(self, name: str, size: int) -> bytes:
        """Extra field for the next member's head, so that the content after it begins on ``ALIGNMENT``."""
        if not self._kind.mapped:
            return b""
        zip64 = _ZIP64_FIELD_BYTES if size * 1.05 > zipfile.ZIP64_LIMIT else 0
        # What follows the head is the array file; its own head is padded by NumPy to the same alignment.
        end = self._stream.tell() + _LOCAL_HEAD.size + len(name.encode()) + zip64 + _EXTRA_HEAD.size
        room = -end % ALIGNMENT
        return _EXTRA_HEAD.pack(_PADDING_FIELD, room) + bytes(room)


def write(path: Path, kind: Kind[Any], fill: Callable[[ArchiveWriter], None]) -> None:
    """Write an archive to ``path``: to a temporary file beside it, then moved into place.

    Raises:
        FileFormatError: The folder cannot be written.
    """
    with writing(path):
        handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.absolute().parent)
    try:
        with writing(path):
            with os.fdopen(handle, "wb") as stream, ArchiveWriter(stream, kind) as archive:
                fill(archive)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_member(archive: ArchiveWriter, name: str, *pieces: bytes | memoryview) -> None:
    """Add a member, without a time, so that equal contents make equal files."""
    member = zipfile.ZipInfo(name)
    member.file_size = sum(len(piece) for piece in pieces)
    member.compress_type = archive.packing(name, member.file_size)
    member.extra = archive.padding(name, member.file_size)
    with archive.open(member, "w") as stream:
        for piece in pieces:
            stream.write(piece)


def write_document(archive: ArchiveWriter, kind: Kind[Any], document: dict[str, Any]) -> None:
    """Add the document.

    Raises:
        FileFormatError: It holds what no reader would take: an entry of another type than the schema says.
    """
    try:
        content = msgspec.json.encode({**kind.head, **document}, enc_hook=_plain)
        msgspec.json.decode(content, type=kind.schema)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise FileFormatError(f"the {kind.noun} cannot be written", because=str(error)) from error
    write_member(archive, kind.member, content)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def write_array(archive: ArchiveWriter, name: str, array: npt.ArrayLike) -> None:
    """Add an array; one of a type that NumPy does not have itself goes as its bits."""
    plain = np.asarray(array, order="C")
    if plain.dtype.kind not in "biuf":
        plain = plain.view(f"u{plain.dtype.itemsize}")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(plain))
    write_member(archive, name, head.getvalue(), plain.reshape(-1).view(np.uint8).data)


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredArray:
    """Array of an archive whose head was read; the contents are read on first use.

    Attributes:
        name: Its member.
        shape: Its dimensions.
        load: Gives the contents, checked; maps them where the file allows that.
    """

    name: str
    shape: tuple[int, ...]
    load: Callable[[], Array]


class Archive:
    """An open archive whose directory was looked through.

    Args:
        archive: The zip.
        path: The file.
        stream: The open file.
        kind: Kind that it should be of.

    Raises:
        ValueError: It names a member twice, in another way than Abele does, or one that is no plain file.
        FileFormatError: It would unpack to more than it may, or holds no document.
    """

    def __init__(self, archive: zipfile.ZipFile, path: Path, stream: IO[bytes], kind: Kind[Any]) -> None:
        size = os.fstat(stream.fileno()).st_size
        self._archive = archive
        self._path = path
        self._stream = stream
        self._kind = kind
        self._map: mmap.mmap | None = None
        self._members = {info.filename: info for info in archive.infolist()}
        if kind.member not in self._members:
            raise FileFormatError(f"not an Abele {kind.noun}", because=f"the archive holds no {kind.member}")
        # Two members of one name would let a reader check one and use the other.
        if len(self._members) != len(archive.infolist()) or len(self._members) > _MOST_MEMBERS:
            raise ValueError(f"the archive names a member twice, or has more than {_MOST_MEMBERS:,}")
        for info in self._members.values():
            _check_member(info)
        packed = [info for info in self._members.values() if not self._can_map(info)]
        unpacked = sum(info.file_size for info in packed)
        most = min(kind.max_bytes, max(kind.free_bytes, kind.ratio * size))
        if unpacked > most:
            article = "an" if kind.noun[0] in "aeiou" else "a"
            raise FileFormatError(
                f"unpacks to {unpacked:,} B, more than the {most:,} B that {article} {kind.noun} may hold"
                f" in a file of {size:,} B"
            )

    def _can_map(self, info: zipfile.ZipInfo) -> bool:
        """True if a member costs no memory: it is stored without packing."""
        return self._kind.mapped and info.compress_type == zipfile.ZIP_STORED and info.filename != self._kind.member

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def array(self, name: str, dtype: Any, shape: tuple[int, ...] | None = None) -> Array:
        """The array of a member, which can be taken once.

        Raises:
            ValueError: It holds something else than numbers as wide as ``dtype``, is of another shape, or was taken.
        """
        info = self._members.pop(name, None)
        if info is None:
            raise ValueError(f"there is no array {name}, or two places use it")
        with part(name), self._archive.open(info) as stream:
            found = _header(stream, info.file_size, np.dtype(dtype))
            if shape is not None and found != shape:
                raise ValueError(f"it has shape {list(found)}, expected {list(shape)}")
            values = np.frombuffer(bytearray(stream.read()), dtype).reshape(found)
            if values.dtype.kind == "b" and (values.view(np.uint8) > 1).any():
                raise ValueError("it holds bytes that are neither true nor false")
            return values

    def stored(self, name: str, dtype: Any) -> StoredArray:
        """An array of which the head alone is read now; one that is packed is read whole.

        Its ``load`` raises :class:`FileFormatError` where the contents are not those that were written. The file must
        stay as it is for as long as the array is used; one that is replaced, as :func:`write` does, stays readable.

        Raises:
            ValueError: It holds something else than numbers as wide as ``dtype``, or was taken.
        """
        info = self._members.get(name)
        if info is None or not self._can_map(info):
            values = self.array(name, dtype)
            return StoredArray(name, values.shape, lambda: values)
        del self._members[name]
        with part(name):
            content = self._content(info)
            head = io.BytesIO(bytes(content[:_LONGEST_ARRAY_HEAD]))
            shape = _header(head, len(content), np.dtype(dtype))
        return StoredArray(name, shape, partial(self._mapped, info, content, head.tell(), dtype, shape))

    def content(self, name: str) -> bytes:
        """The bytes of a member, which can be taken once.

        Raises:
            ValueError: There is none of this name, or it was taken.
        """
        info = self._members.pop(name, None)
        if info is None:
            raise ValueError(f"there is no {name}")
        with part(name):
            return self._archive.read(info)

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Turn errors raised inside into a :class:`FileFormatError` that names the file and a part of it."""
        with told_as_file_error(self._path, self._kind), part(name):
            yield

    def _content(self, info: zipfile.ZipInfo) -> memoryview:
        """Bytes of a member that is stored without packing."""
        if self._map is None:
            self._map = mmap.mmap(self._stream.fileno(), 0, access=mmap.ACCESS_READ)
        # The directory gives the offset of the local head, whose name and extra field may be of other lengths.
        signature, name, extra = _LOCAL_HEAD.unpack_from(self._map, info.header_offset)
        start = info.header_offset + _LOCAL_HEAD.size + name + extra
        end = start + info.file_size
        if signature != b"PK\x03\x04" or info.compress_size != info.file_size or end > len(self._map):
            raise ValueError("the archive's directory does not lead to it")
        return memoryview(self._map)[start:end]

    def _mapped(
        self, info: zipfile.ZipInfo, content: memoryview, head: int, dtype: Any, shape: tuple[int, ...]
    ) -> Array:
        """The contents of a member, which its checksum vouches for."""
        with told_as_file_error(self._path, self._kind), part(info.filename):
            # Mapped bytes are checked on first use, since the file is not read through before.
            if zlib.crc32(content) != info.CRC:
                raise ValueError("its checksum differs")
            values = np.frombuffer(content[head:], dtype).reshape(shape)
            if values.dtype.kind == "b" and (values.view(np.uint8) > 1).any():
                raise ValueError("it holds bytes that are neither true nor false")
            return values

    def vector(self, name: str, dtype: Any) -> Array:
        """The same, of one dimension."""
        values = self.array(name, dtype)
        if values.ndim != 1:
            raise ValueError(f"{name} has {counted(values.ndim, 'dimension')}, expected 1")
        return values

    def document(self, kind: Kind[D]) -> D:
        """The document, decoded into its schema.

        Raises:
            FileFormatError: It is of another kind, or of a newer version.
            ValueError: It is too large, or does not fit its schema.
        """
        info = self._members.pop(kind.member)
        with part(kind.member):
            text = self._text(info)
            head = msgspec.json.decode(text, type=_Head)
        if head.format != kind.format:
            raise FileFormatError(f"not an Abele {kind.noun}", because=f"{kind.member} does not say so")
        if head.version < 1:
            raise ValueError(f"format version {head.version!r}")
        if head.version > kind.version:
            raise FileFormatError(
                f"the {kind.noun} is of format version {head.version}; this Abele reads up to version {kind.version}",
                remedy="install a newer Abele: pip install --upgrade abele",
            )
        with part(kind.member):
            return msgspec.json.decode(text, type=kind.schema)

    def _text(self, info: zipfile.ZipInfo) -> bytes:
        # Before it is unpacked: a small packed document may hold gigabytes.
        if info.file_size > max(_SMALL_DOCUMENT, _DOCUMENT_RATIO * info.compress_size):
            raise ValueError(f"it unpacks from {info.compress_size:,} to {info.file_size:,} B")
        text = self._archive.read(info)
        values = _num_values(text)
        if values > _MOST_OBJECTS + _OBJECTS_PER_BYTE * info.compress_size:
            raise ValueError(f"it holds up to {values:,} values in {info.compress_size:,} packed bytes")
        return text


def _check_member(info: zipfile.ZipInfo) -> None:
    """Raise unless a member is a plain file, packed as Abele packs, under a name such as Abele gives."""
    mode = info.external_attr >> 16
    odd = info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    if odd or (stat.S_IFMT(mode) not in (0, stat.S_IFREG)) or not _MEMBER.fullmatch(info.filename):
        raise ValueError(f"the archive holds {info.filename!r:.100}, which no part of such a file is")


def _num_values(text: bytes) -> int:
    """No fewer than the values in a JSON text: each but the first follows one of these characters."""
    counts = np.bincount(np.frombuffer(text, np.uint8), minlength=256)
    return 1 + int(counts[[ord(c) for c in ",:[{"]].sum())


def _header(stream: IO[bytes], size: int, wanted: np.dtype[Any]) -> tuple[int, ...]:
    """The shape that the head of an .npy file of ``size`` bytes gives; the data that follow are as long as that.

    NumPy's own reader evaluates the head as Python; this one takes what NumPy writes for plain arrays alone.
    """
    start = stream.read(len(_MAGIC) + 2)
    if start[:-2] != _MAGIC or len(start) != len(_MAGIC) + 2:
        raise ValueError("it is no .npy file of format version 1")
    (length,) = struct.unpack("<H", start[-2:])
    match = _HEADER.fullmatch(stream.read(length))
    if match is None:
        raise ValueError("its head is not that of an array of plain numbers in C order")
    stored = np.dtype(match[1].decode())
    shape = tuple(int(n) for n in re.findall(rb"\d+", match[2]))
    own = wanted.kind in "biuf"
    fits = stored == wanted if own else stored.kind == "u" and stored.itemsize == wanted.itemsize
    if not fits or math.prod(shape) * wanted.itemsize != size - len(start) - length:
        data = size - len(start) - length
        raise ValueError(f"it holds {stored} of shape {list(shape)} in {data:,} B, expected {wanted}")
    return shape


@contextmanager
def part(name: object) -> Iterator[None]:
    """Name ``name`` in errors that pass through here."""
    try:
        yield
    except Exception as error:
        error.add_note(str(name))
        raise


def read(path: Path, kind: Kind[D], build: Callable[[Archive, D], T]) -> T:
    """Object that ``build`` makes of an archive and its document.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or of another kind.
    """
    with told_as_file_error(path, kind), _opened(path) as stream, zipfile.ZipFile(stream) as archive:
        opened = Archive(archive, path, stream, kind)
        return build(opened, opened.document(kind))


def _opened(path: Path) -> IO[bytes]:
    """The file, to read; a pipe or device, which would keep its reader waiting, is refused."""
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise OSError(errno.EINVAL, "not a plain file")
    return path.open("rb")


@contextmanager
def told_as_file_error(path: Path, kind: Kind[Any]) -> Iterator[None]:
    """Turn errors of reading a file into a :class:`FileFormatError` that names the file and the place in it."""
    try:
        yield
    except FileFormatError as error:
        if error.message.startswith(f"{path}: "):
            raise
        raise FileFormatError(
            f"{path}: {error.message}", at=_place(error), because=error.because, remedy=error.remedy
        ) from error
    except OSError as error:
        missing = f"give the path of an Abele {kind.noun}"
        raise FileFormatError(f"{path}: {error.strerror or error}", remedy=missing) from error
    except zipfile.BadZipFile as error:
        raise FileFormatError(_not_readable(path, kind), because=_reason(error), remedy=kind.again) from error
    # Whatever a file makes our readers, or the compiler behind them, raise: it is the file that is at fault.
    except Exception as error:
        raise FileFormatError(
            f"{path}: the {kind.noun} is damaged", at=_place(error), because=_reason(error), remedy=kind.again
        ) from error


def _place(error: Exception) -> str | None:
    """The part of the file at which an error arose, outermost first."""
    return ", ".join(reversed(getattr(error, "__notes__", ()))) or None


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, LookupError | AttributeError | AssertionError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]} …"


def _not_readable(path: Path, kind: Kind[Any]) -> str:
    with path.open("rb") as stream:
        cut_short = stream.read(4) == b"PK\x03\x04"
    return f"{path}: the {kind.noun} is damaged or cut short" if cut_short else f"{path}: not an Abele {kind.noun}"
