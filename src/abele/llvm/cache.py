"""Object code and choices on disk, found again by the content that they were made from.

An object that is used is touched, at most once an hour, so that the oldest files are those that were not used for
longest; :mod:`abele.llvm.cache_limit` removes these when the objects take more room than they may.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec
import platformdirs

from abele.llvm.cache_limit import is_object_name, note_stored

VARIABLE = "ABELE_CACHE_DIR"
"""Environment variable that names the directory; ``off`` keeps nothing on disk."""
_DIGEST_BYTES = 32
_TOUCH_SECONDS = 3600
"""Age from which a used object is touched."""
_WORTH_SECONDS = 0.002
"""Time of a choice from which keeping it pays: a file takes 0.2 ms to write, and 0.05 ms to find."""

Choice = TypeVar("Choice")


def cache_directory() -> Path | None:
    """Directory of cached objects: ``$ABELE_CACHE_DIR``, else the user's; None when switched off."""
    wanted = os.environ.get(VARIABLE)
    if wanted == "off":
        return None
    return Path(wanted) if wanted else _default_directory()


def load_object(key: str) -> bytes | None:
    """The object stored under ``key``; None when there is none, or it is damaged."""
    path = _path(key)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            used = os.fstat(file.fileno()).st_mtime
            stored = file.read()
    except OSError:
        return None
    digest, data = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != digest:
        return None
    if abs(time.time() - used) > _TOUCH_SECONDS:
        with contextlib.suppress(OSError):
            os.utime(path)
    return data


def store_object(key: str, data: bytes) -> None:
    """Keep ``data`` under ``key``. Whole or not at all: others may read, write and remove at the same time.

    A directory that cannot be written to is no error; the object is made again next time.

    Raises:
        ValueError: ``key`` is no digest with a word behind it, so the limit would not count its file.
        InvalidOptionError: ``ABELE_CACHE_LIMIT`` is no size.
    """
    if not is_object_name(f"{key}.o"):
        raise ValueError(f"{key!r} does not begin with 64 hexadecimal digits")
    path, directory = _path(key), cache_directory()
    if path is None or directory is None:
        return
    with contextlib.suppress(OSError):
        write_whole(path, hashlib.sha256(data).digest() + data)
        note_stored(directory, len(data) + _DIGEST_BYTES)


def kept_choice(content: str, kind: type[Choice], choose: Callable[[], Choice], *folders: str) -> Choice:
    """A choice that was made before for this content, by this process or another; it is made where there is none.

    A choice that takes less than 2 ms is made anew each time.

    Args:
        content: All that it depends on but the code, such as the text of a loop nest.
        kind: Its type: numbers, strings, tuples and dataclasses of these.
        choose: Makes it.
        folders: Folders of the package, such as ``kernels/schedule``, whose code it depends on.
    """
    key = f"{hashlib.sha256(f'{code_digest(folders)} {content}'.encode()).hexdigest()}-choice"
    stored = load_object(key)
    if stored is not None:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(stored, type=kind)
    start = time.perf_counter()
    made = choose()
    if time.perf_counter() - start > _WORTH_SECONDS:
        store_object(key, msgspec.msgpack.encode(made))
    return made


@cache
def code_digest(folders: tuple[str, ...]) -> str:
    """Digest of the modules in some folders of the package, so that other code makes its own choices."""
    root, digest = Path(__file__).parent.parent, hashlib.sha256()
    for file in (file for folder in folders for file in sorted((root / folder).glob("*.py"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of the cache whole or not at all; its folder is made, for the user alone.

    Raises:
        OSError: The operating system refused.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, partial = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except OSError:
        os.unlink(partial)
        raise


@lru_cache(maxsize=1)
def _default_directory() -> Path:
    return Path(platformdirs.user_cache_dir("abele", appauthor=False))


def _path(key: str) -> Path | None:
    directory = cache_directory()
    return None if directory is None else directory / "objects" / key[:2] / f"{key}.o"
