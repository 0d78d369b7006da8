"""Archives: a zip of plain arrays and one JSON document, written in one move and read without executing anything.

A file may come from anybody. What it costs to read is bounded by its size before anything in it is unpacked: the zip's
directory is looked through first, arrays are measured by their headers, and the JSON document is counted before it is
decoded into the types of its schema. Whatever a reader raises on the way becomes a :class:`FileFormatError`.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from abele.errors import FileFormatError
from abele.words import counted

Array = npt.NDArray[Any]
T = TypeVar("T")
D = TypeVar("D")

_MEMBER = re.compile(r"[a-z_]+[a-z_0-9]*(/[a-z_]+)?\.(npy|json)")
_MOST_MEMBERS = 1 << 20
_DOCUMENT_RATIO, _SMALL_DOCUMENT = 250, 4 << 20
"""A larger document may unpack to this many times its packed size. Those that Abele writes stay below 60."""
_MOST_OBJECTS, _OBJECTS_PER_BYTE = 1 << 20, 4
"""Values that a document may hold: so many, or so many for each packed byte."""
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<|][biuf][1248])', 'fortran_order': False, "
    rb"'shape': \((|\d{1,18},|\d{1,18}(?:, \d{1,18}){1,31})\), \} *\n"
)
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Kind(Generic[D]):
    """A kind of file.

    Attributes:
        noun: What it holds, in words: ``report``.
        version: Version that is written, and the newest that is read.
        max_bytes: Most that the members of a file may unpack to.
        free_bytes: What a file of any size may unpack to; a larger one up to ``ratio`` times its size.
        ratio: See ``free_bytes``.
        again: How to make the file again.
        schema: What the document is decoded into.
    """

    noun: str
    version: int
    max_bytes: int
    free_bytes: int
    ratio: int
    again: str
    schema: type[D]

    @property
    def format(self) -> str:
        """What the document says that it is."""
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


class Target(zipfile.ZipFile):
    """An archive that is being written, and that its reader will take.

    Args:
        stream: Where it goes.
        kind: What it is to hold.
    """

    def __init__(self, stream: IO[bytes], kind: Kind[Any]) -> None:
        super().__init__(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._stream = stream
        self._kind = kind
        self._unpacked = 0

    def packing(self, size: int) -> int:
        """How to pack the next member: not at all where a reader would take the archive for a bomb."""
        self._unpacked += size
        bomb = self._unpacked > max(self._kind.free_bytes, self._kind.ratio * self._stream.tell())
        return zipfile.ZIP_STORED if bomb else zipfile.ZIP_DEFLATED


def write(path: Path, kind: Kind[Any], fill: Callable[[Target], None]) -> None:
    """Write an archive to ``path``: to a temporary file beside it, then moved into place.

    Raises:
        FileFormatError: The folder cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.absolute().parent)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as stream, Target(stream, kind) as archive:
            fill(archive)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_member(archive: Target, name: str, content: bytes) -> None:
    """Add a member, without a time, so that equal contents make equal files."""
    member = zipfile.ZipInfo(name)
    member.compress_type = archive.packing(len(content))
    archive.writestr(member, content)


def write_document(archive: Target, kind: Kind[Any], document: dict[str, Any]) -> None:
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


def write_array(archive: Target, name: str, array: npt.ArrayLike) -> None:
    """Add an array; one of a type that NumPy does not have itself goes as its bits."""
    plain = np.asarray(array, order="C")
    if plain.dtype.kind not in "biuf":
        plain = plain.view(f"u{plain.dtype.itemsize}")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, plain, version=(1, 0), allow_pickle=False)
    write_member(archive, name, buffer.getvalue())


# --- reading ---------------------------------------------------------------------------------------------------------


class Archive:
    """An open archive whose directory was looked through.

    Args:
        archive: The zip.
        size: Bytes of the file.
        kind: What it should hold.

    Raises:
        ValueError: It names a member twice, in another way than Abele does, or one that is no plain file.
        FileFormatError: It would unpack to more than it may, or holds no document.
    """

    def __init__(self, archive: zipfile.ZipFile, size: int, kind: Kind[Any]) -> None:
        self._archive = archive
        self._members = {info.filename: info for info in archive.infolist()}
        if kind.member not in self._members:
            raise FileFormatError(f"not an Abele {kind.noun}", because=f"the archive holds no {kind.member}")
        if len(self._members) != len(archive.infolist()) or len(self._members) > _MOST_MEMBERS:
            raise ValueError(f"the archive names a member twice, or has more than {_MOST_MEMBERS:,}")
        for info in self._members.values():
            _check_member(info)
        unpacked = sum(info.file_size for info in self._members.values())
        most = min(kind.max_bytes, max(kind.free_bytes, kind.ratio * size))
        if unpacked > most:
            article = "an" if kind.noun[0] in "aeiou" else "a"
            raise FileFormatError(
                f"unpacks to {unpacked:,} B, more than the {most:,} B that {article} {kind.noun} may hold"
                f" in a file of {size:,} B"
            )

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
    """Errors that pass through here tell that they arose while ``name`` was read."""
    try:
        yield
    except Exception as error:
        error.add_note(str(name))
        raise


def read(path: Path, kind: Kind[D], build: Callable[[Archive, D], T]) -> T:
    """What ``build`` makes of an archive and its document.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or of another kind.
    """
    try:
        with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
            opened = Archive(archive, os.fstat(stream.fileno()).st_size, kind)
            return build(opened, opened.document(kind))
    except FileFormatError as error:
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
