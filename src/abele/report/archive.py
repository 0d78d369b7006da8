"""Archives: a zip of plain arrays and one JSON document, written in one move and read without executing anything."""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from abele.errors import AbeleError, FileFormatError

Array = npt.NDArray[Any]
T = TypeVar("T")

_DAMAGE = (
    zlib.error,
    struct.error,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    RuntimeError,
    AttributeError,
    AssertionError,
    AbeleError,
)
"""What Python's readers of zip, JSON and .npy, and our own checks, raise on damaged contents."""


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        noun: What it holds, in words: ``report``.
        version: Version that is written, and the newest that is read.
        max_bytes: Most that the members of a file may unpack to.
        again: How to make the file again.
    """

    noun: str
    version: int
    max_bytes: int
    again: str

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


def write(path: Path, fill: Callable[[zipfile.ZipFile], None]) -> None:
    """Write an archive to ``path``: to a temporary file beside it, then moved into place.

    Raises:
        FileFormatError: The folder cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.absolute().parent)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with (
            os.fdopen(handle, "wb") as stream,
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        ):
            fill(archive)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_member(archive: zipfile.ZipFile, name: str, content: bytes | str) -> None:
    """Add a member, without a time, so that equal contents make equal files."""
    member = zipfile.ZipInfo(name)
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)


def write_array(archive: zipfile.ZipFile, name: str, array: npt.ArrayLike) -> None:
    """Add an array; one of a type that NumPy does not have itself goes as its bits."""
    plain = np.asarray(array, order="C")
    if plain.dtype.kind not in "biuf":
        plain = plain.view(f"u{plain.dtype.itemsize}")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, plain, version=(1, 0), allow_pickle=False)
    write_member(archive, name, buffer.getvalue())


def read_array(archive: zipfile.ZipFile, name: str, dtype: Any) -> Array:
    """The array of a member.

    Raises:
        ValueError: It holds something else than numbers as wide as ``dtype``, or not as many as it says.
    """
    wanted = np.dtype(dtype)
    stream = io.BytesIO(archive.read(name))
    np.lib.format.read_magic(stream)
    shape, fortran_order, stored = np.lib.format.read_array_header_1_0(stream)
    data = stream.read()
    count = int(np.prod(shape, dtype=object))
    own = wanted.kind in "biuf"
    fits = stored == wanted if own else stored.kind in "u" and stored.itemsize == wanted.itemsize
    if not fits or fortran_order or count * wanted.itemsize != len(data):
        raise ValueError(f"{name} holds {stored} of shape {shape} in {len(data):,} B, expected {wanted}")
    return np.frombuffer(data, wanted).reshape(shape).copy()


def read(path: Path, kind: Kind, build: Callable[[zipfile.ZipFile, dict[str, Any]], T]) -> T:
    """What ``build`` makes of an archive and its document.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or of another kind.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return build(archive, _document(archive, path, kind))
    except FileFormatError:
        raise
    except OSError as error:
        missing = f"give the path of an Abele {kind.noun}"
        raise FileFormatError(f"{path}: {error.strerror or error}", remedy=missing) from error
    except zipfile.BadZipFile as error:
        raise FileFormatError(_not_readable(path, kind), because=str(error), remedy=kind.again) from error
    except _DAMAGE as error:
        because = str(error) or type(error).__name__
        raise FileFormatError(f"{path}: the {kind.noun} is damaged", because=because, remedy=kind.again) from error


def _not_readable(path: Path, kind: Kind) -> str:
    with path.open("rb") as stream:
        cut_short = stream.read(4) == b"PK\x03\x04"
    return f"{path}: the {kind.noun} is damaged or cut short" if cut_short else f"{path}: not an Abele {kind.noun}"


def _document(archive: zipfile.ZipFile, path: Path, kind: Kind) -> dict[str, Any]:
    sizes = {info.filename: info.file_size for info in archive.infolist()}
    other = f"{path}: not an Abele {kind.noun}"
    if kind.member not in sizes:
        raise FileFormatError(other, because=f"the archive holds no {kind.member}")
    if sum(sizes.values()) > kind.max_bytes:
        raise FileFormatError(
            f"{path}: unpacks to {sum(sizes.values()):,} B, "
            f"more than the {kind.max_bytes:,} B that a{'n' if kind.noun[0] in 'aeiou' else ''} {kind.noun} may hold"
        )
    document = json.loads(archive.read(kind.member))
    if not isinstance(document, dict) or document.get("format") != kind.format:
        raise FileFormatError(other, because=f"{kind.member} does not say so")
    version = document.get("version")
    if not isinstance(version, int) or version < 1:
        because = f"format version {version!r}"
        raise FileFormatError(f"{path}: the {kind.noun} is damaged", because=because, remedy=kind.again)
    if version > kind.version:
        raise FileFormatError(
            f"{path}: the {kind.noun} is of format version {version}; this Abele reads up to version {kind.version}",
            remedy="install a newer Abele: pip install --upgrade abele",
        )
    return document
