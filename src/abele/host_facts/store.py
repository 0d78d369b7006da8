"""Facts measured on a host, kept as JSON beside the cache of compiled code, one file per fact and host.

A file is found again by the CPU (its name, features and number of cores that the process may use), so that hosts which
share a home directory keep their own. Files appear whole or not at all; two processes that measure at once both store
theirs, and either will do. What cannot be read, or was written for another version of the fact, is measured again.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from abele.llvm.cache import cache_directory, write_whole
from abele.llvm.host import host_cpu, num_threads

T = TypeVar("T")

_FOLDER = "host"
_lock = threading.RLock()
_known: dict[tuple[str, int, str], object] = {}


def measured(name: str, version: int, kind: type[T], measure: Callable[[], T]) -> T:
    """Fact about this host; it is measured on first use.

    Args:
        name: Of the fact: letters, digits and dashes.
        version: Raised when the fact is measured in another way, or means something else.
        kind: Its type, as msgspec converts it to and from JSON: a struct, dataclass, mapping, list or number.
        measure: Measures it.
    """
    key = name, version, host_name()
    with _lock:
        if key not in _known:
            found = _load(name, version, kind)
            if found is None:
                found = measure()
                _store(name, version, found)
            _known[key] = found
        return cast(T, _known[key])


def forget() -> int:
    """Forget all facts about this host, so that they are measured again when they are needed; gives how many files
    were removed."""
    with _lock:
        _known.clear()
        folder, removed = _folder(), 0
        for path in sorted(folder.glob("*.json")) if folder is not None else ():
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
        return removed


@cache
def host_name() -> str:
    """The CPU and its cores, as in ``AMD EPYC 9R14, znver4, 2 cores``."""
    cores = num_threads()
    named = dict.fromkeys((_model(), host_cpu().name))
    return ", ".join([*(n for n in named if n), f"{cores} core" + "s" * (cores != 1)])


def _model() -> str:
    """Name of the CPU in the system's words; empty where it has none."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return ""


def _folder() -> Path | None:
    directory = cache_directory()
    identity = f"{host_name()}\n{host_cpu().feature_string}".encode()
    return None if directory is None else directory / _FOLDER / hashlib.sha256(identity).hexdigest()[:16]


def _path(name: str, version: int) -> Path | None:
    folder = _folder()
    return None if folder is None else folder / f"{name}-{version}.json"


def _load(name: str, version: int, kind: type[T]) -> T | None:
    path = _path(name, version)
    if path is None:
        return None
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None


def _store(name: str, version: int, fact: object) -> None:
    """Keep a fact; a directory that cannot be written to is no error."""
    path = _path(name, version)
    if path is None:
        return
    with contextlib.suppress(OSError):
        write_whole(path, msgspec.json.format(msgspec.json.encode(fact)))
