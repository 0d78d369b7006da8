"""Writing files: a place that cannot be written is told of by name, in one form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from abele.errors import FileFormatError


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """What happens inside writes to ``path``.

    Raises:
        FileFormatError: The operating system refused something inside.
    """
    try:
        yield
    except OSError as error:
        raise FileFormatError(
            f"{path}: cannot be written: {error.strerror or error}", remedy="a folder that exists and may be written"
        ) from error
