"""Locks that survive a fork."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator


class ForkLock:
    """A lock that a forked process finds open, whoever held it when it was forked."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it; the same thread may do so again inside."""
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.RLock()
        with self._lock:
            yield
