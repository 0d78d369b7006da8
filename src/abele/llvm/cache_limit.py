"""Limit of the room of cached objects, and the removal of those that were not used for longest.

Several processes may store, use and remove objects at once, without a lock: an object is one file, which appears whole
and vanishes whole, and whoever finds a file gone counts it as removed. Two processes that remove at once choose the
same files, since both go by the time of last use, so that they remove no more than one alone would have.

Looking through the directory takes about a second for 200,000 objects. It is done once a process has stored 1/32 of the
limit, and once a day, so that many short processes cannot fill the disk either; the time of the last look is that of a
file beside the objects. In between, the objects exceed the limit by at most 1/32 for each process at work.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from abele.errors import InvalidOptionError

LIMIT_VARIABLE = "ABELE_CACHE_LIMIT"
"""Environment variable that names the limit: a number with a unit, as in ``500 MB``, or ``none``."""
DEFAULT_LIMIT_BYTES = 1 << 30
_KEPT_PROPORTION = 0.8
"""Part of a cache that is left once it had grown too large: below the limit, so that the next object does not exceed
it.
"""
_BLOCK_BYTES = 4096
"""Room on disk goes by blocks of this size."""
_DAY_SECONDS = 86_400
_STALE_SECONDS = 3600
"""Age from which an unfinished file counts as that of a dead process."""
_MARKER = "looked-through"
_OBJECT = re.compile(r"[0-9a-f]{64}[-\w]*\.o")
_PARTIAL = re.compile(r"tmp[a-z0-9_]{8}")
_SHARD = re.compile(r"[0-9a-f]{2}")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?", re.IGNORECASE)

_stored_bytes: dict[Path, int] = {}
"""Bytes that this process has stored in each directory since it last looked through it."""


class CacheEntry(NamedTuple):
    """A file of the cache: its path, the room that it takes, and when it was last used, in seconds since 1970."""

    path: str
    bytes: int
    used: float


@dataclass(frozen=True)
class Usage:
    """Number, size and age of the objects in a cache.

    Attributes:
        objects: Number of objects.
        bytes: Room that they take on disk.
        oldest: Last use of the object that was not used for longest, in seconds since 1970; None without any.
    """

    objects: int
    bytes: int
    oldest: float | None


@dataclass(frozen=True)
class Removed:
    """Number and size of the objects that were removed from a cache.

    Attributes:
        objects: Objects removed.
        bytes: Room that they took.
        left: Objects that could not be removed.
        why: Message of the system about the first of these.
    """

    objects: int
    bytes: int
    left: int = 0
    why: str = ""


def limit_bytes() -> int | None:
    """Room that objects may take, from ``$ABELE_CACHE_LIMIT``; None for no limit.

    Raises:
        InvalidOptionError: The variable is no size.
    """
    given = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not given:
        return DEFAULT_LIMIT_BYTES
    if given.lower() == "none":
        return None
    return parse_size(given)


def parse_size(text: str) -> int:
    """Bytes of a text such as ``500 MB``, ``1.5GiB`` or ``4096``.

    Raises:
        InvalidOptionError: It stands for none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidOptionError(
            f"{LIMIT_VARIABLE} = {text!r}: not a size", remedy="a number with a unit, such as 500 MB or 2 GiB, or none"
        )
    number, prefix, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kMGT".lower().index((prefix or " ").lower()))


def is_object_name(name: str) -> bool:
    """True for names of files that hold objects; others are not counted."""
    return _OBJECT.fullmatch(name) is not None


def note_stored(directory: Path, size: int) -> None:
    """Note that this process has stored an object; now and then, remove the excess.

    Raises:
        InvalidOptionError: ``ABELE_CACHE_LIMIT`` is no size.
    """
    limit = limit_bytes()
    first = directory not in _stored_bytes
    stored = _stored_bytes[directory] = _stored_bytes.get(directory, 0) + _room(size)
    if limit is not None and (stored > limit // 32 or (first and _is_due(directory))):
        _stored_bytes[directory] = 0
        remove_oldest(directory, limit)


def _is_due(directory: Path) -> bool:
    try:
        return time.time() - (directory / _MARKER).stat().st_mtime > _DAY_SECONDS
    except OSError:
        return True


def usage(directory: Path) -> Usage:
    """Number, size and age of the objects in the cache of a directory."""
    found = list(entries(directory))
    return Usage(len(found), sum(e.bytes for e in found), min((e.used for e in found), default=None))


def entries(directory: Path) -> Iterator[CacheEntry]:
    """The objects in a cache, in no order. Files of others are passed over."""
    for file in _files(directory):
        if _OBJECT.fullmatch(file.name):
            with contextlib.suppress(OSError):
                status = file.stat(follow_symlinks=False)
                yield CacheEntry(file.path, _room(status.st_size), status.st_mtime)


def remove_oldest(directory: Path, limit: int) -> Removed:
    """Remove the objects that were not used for longest, where all take more than ``limit`` bytes.

    Four fifths of the limit are kept. Files that a process began and never finished go too.
    """
    with contextlib.suppress(OSError):
        (directory / _MARKER).touch()
    _remove_unfinished(directory)
    found = list(entries(directory))
    total = sum(entry.bytes for entry in found)
    if total <= limit:
        return Removed(0, 0)
    excess, chosen = total - int(_KEPT_PROPORTION * limit), []
    for entry in sorted(found, key=lambda each: (each.used, each.path)):
        if excess <= 0:
            break
        excess -= entry.bytes
        chosen.append(entry)
    return _removed(chosen)


def clear(directory: Path) -> Removed:
    """Remove all objects, and the folders that hold nothing else."""
    removed = _removed(list(entries(directory)))
    _remove_unfinished(directory, age_seconds=0)
    for shard in _shards(directory):
        with contextlib.suppress(OSError):
            os.rmdir(shard)
    return removed


def _removed(chosen: list[CacheEntry]) -> Removed:
    objects = size = left = 0
    why = ""
    for entry in chosen:
        try:
            os.unlink(entry.path)
        except FileNotFoundError:
            pass
        except OSError as error:
            left, why = left + 1, why or str(error.strerror or error)
            continue
        objects, size = objects + 1, size + entry.bytes
    return Removed(objects, size, left, why)


def _remove_unfinished(directory: Path, age_seconds: float = _STALE_SECONDS) -> None:
    now = time.time()
    for file in _files(directory):
        if _PARTIAL.fullmatch(file.name):
            with contextlib.suppress(OSError):
                if now - file.stat(follow_symlinks=False).st_mtime >= age_seconds:
                    os.unlink(file.path)


def _shards(directory: Path) -> Iterator[str]:
    with contextlib.suppress(OSError), os.scandir(directory / "objects") as found:
        for shard in found:
            if _SHARD.fullmatch(shard.name) and shard.is_dir(follow_symlinks=False):
                yield shard.path


def _files(directory: Path) -> Iterator[os.DirEntry[str]]:
    for shard in _shards(directory):
        with contextlib.suppress(OSError), os.scandir(shard) as found:
            yield from (file for file in found if file.is_file(follow_symlinks=False))


def _room(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
