"""The container of an executable: a zip of plain arrays and one JSON document, read without executing anything."""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import AbeleError, FileFormatError

Array = npt.NDArray[Any]
MAX_BYTES = 64 << 30
"""Most that the members of a file may unpack to."""
_HEADER = "executable.json"
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
"""What Python's readers and our own checks raise on damaged contents."""
_AGAIN = "compile the program again and save it with Executable.save"


class Writer:
    """Collects arrays while the document is put together."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._num = 0

    def array(self, values: npt.ArrayLike) -> str:
        """Keep an array; gives the name by which the document refers to it."""
        name, self._num = f"a{self._num}.npy", self._num + 1
        buffer = io.BytesIO()
        plain = np.asarray(values, order="C")
        if plain.dtype.kind not in "biuf":
            plain = plain.view(f"u{plain.dtype.itemsize}")
        np.lib.format.write_array(buffer, plain, version=(1, 0), allow_pickle=False)
        self._archive.writestr(_member(name), buffer.getvalue())
        return name


class Reader:
    """Gives the arrays that the document refers to, checked against what is expected of them."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def array(self, name: Any, dtype: Any, shape: tuple[int, ...] | None = None) -> Array:
        """The array called ``name``.

        Raises:
            ValueError: It has another type or shape, or is not there.
        """
        wanted = np.dtype(dtype)
        stream = io.BytesIO(self._archive.read(str(name)))
        np.lib.format.read_magic(stream)
        stored_shape, fortran, stored = np.lib.format.read_array_header_1_0(stream)
        data = stream.read()
        count = int(np.prod(stored_shape, dtype=object))
        if stored.itemsize != wanted.itemsize or stored.kind not in "biuf" or fortran:
            raise ValueError(f"{name} holds {stored}, expected {wanted}")
        if count * stored.itemsize != len(data) or (shape is not None and tuple(stored_shape) != shape):
            raise ValueError(f"{name} has shape {stored_shape} in {len(data)} B, expected {shape}")
        return np.frombuffer(data, wanted).reshape(stored_shape).copy()

    def int64(self, name: Any) -> npt.NDArray[np.int64]:
        """A one-dimensional array of 64-bit integers."""
        values = self.array(name, np.int64)
        if values.ndim != 1:
            raise ValueError(f"{name} has {values.ndim} dimensions")
        return values


def write(path: Path, document: Callable[[Writer], dict[str, Any]]) -> None:
    """Write a document with its arrays to ``path``: to a temporary file beside it, then moved into place.

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
            zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out,
        ):
            out.writestr(_member(_HEADER), json.dumps(document(Writer(out))))
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _member(name: str) -> zipfile.ZipInfo:
    """A member without a time, so that equal contents make equal files."""
    member = zipfile.ZipInfo(name)
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def read(path: Path, kind: str, version: int, build: Callable[[Reader, dict[str, Any]], Any]) -> Any:
    """What ``build`` makes of the document in ``path`` and its arrays.

    Raises:
        FileFormatError: The file is missing, damaged, cut short, written by a newer version, or of another kind.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return build(Reader(archive), _document(archive, path, kind, version))
    except FileFormatError:
        raise
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}", remedy="give the path of an executable") from error
    except zipfile.BadZipFile as error:
        raise FileFormatError(
            f"{path}: not an Abele executable, or cut short", because=str(error), remedy=_AGAIN
        ) from error
    except _DAMAGE as error:
        raise FileFormatError(f"{path}: the executable is damaged", because=str(error), remedy=_AGAIN) from error


def _document(archive: zipfile.ZipFile, path: Path, kind: str, version: int) -> dict[str, Any]:
    sizes = {info.filename: info.file_size for info in archive.infolist()}
    if _HEADER not in sizes:
        raise FileFormatError(f"{path}: not an Abele executable", because=f"the archive holds no {_HEADER}")
    if sum(sizes.values()) > MAX_BYTES:
        raise FileFormatError(f"{path}: unpacks to {sum(sizes.values()):,} B, more than {MAX_BYTES:,} B")
    document = json.loads(archive.read(_HEADER))
    if not isinstance(document, dict) or document.get("format") != kind:
        raise FileFormatError(f"{path}: not an Abele executable", because=f"{_HEADER} does not say so")
    found = document.get("version")
    if isinstance(found, int) and found > version:
        raise FileFormatError(
            f"{path}: the executable is of format version {found}; this Abele reads up to version {version}",
            remedy="install a newer Abele: pip install --upgrade abele",
        )
    if not isinstance(found, int) or found < 1:
        raise FileFormatError(f"{path}: the executable is damaged", because=f"format version {found!r}", remedy=_AGAIN)
    return document
