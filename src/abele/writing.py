"""Writing files: a place that cannot be written is named in an error of one form."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from abele.errors import FileFormatError


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn errors of writing to ``path`` inside into errors that name it.

    Raises:
        FileFormatError: The operating system refused something inside.
    """
    try:
        yield
    except OSError as error:
        raise FileFormatError(
            f"{path}: cannot be written: {error.strerror or error}", remedy="a folder that exists and may be written"
        ) from error


@contextmanager
def writing_whole(path: str | Path) -> Iterator[Path]:
    """A file beside ``path`` to write inside, which takes its place at once when everything is on the disk.

    Whoever reads ``path`` finds what was there before, or all of what is new, whenever this process ends.

    Raises:
        FileFormatError: The operating system refused something inside.
    """
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
        os.close(handle)
        part = Path(name)
        try:
            yield part
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
            part.chmod(0o644)
            part.replace(path)
            _flush_folder(path.parent)
        finally:
            part.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Let the names in a folder reach the disk, on systems that know that of a folder."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
