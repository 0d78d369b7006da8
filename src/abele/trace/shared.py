"""A recording that several objects want, and that ends with the last of them."""

from __future__ import annotations

import logging
import threading
import weakref
from pathlib import Path
from typing import Any

from abele.errors import FileFormatError
from abele.trace.channel import is_recording, start, stop

LOG = logging.getLogger(__name__)
_LOCK = threading.RLock()
_HOLDERS: dict[int, weakref.finalize[Any, Any]] = {}


def hold_recording(owner: Any, folder: Path) -> None:
    """Record into a folder as long as ``owner`` lives, or until :func:`release_recording`.

    Where a recording is on already it goes on as it is: a process has one.

    Raises:
        FileFormatError: The folder cannot be written.
    """
    with _LOCK:
        if id(owner) in _HOLDERS:
            return
        if not _HOLDERS:
            if is_recording():
                return
            start(folder)
        _HOLDERS[id(owner)] = weakref.finalize(owner, _release, id(owner))


def release_recording(owner: Any) -> None:
    """Let go of a recording; the last one ends it."""
    with _LOCK:
        found = _HOLDERS.get(id(owner))
    if found is not None:
        found()


def _release(key: int) -> None:
    with _LOCK:
        _HOLDERS.pop(key, None)
        if _HOLDERS:
            return
    try:
        stop()
    except FileFormatError as error:
        LOG.warning("%s", error)
