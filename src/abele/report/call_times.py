"""Times that a call of a program spends on the host beside running."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class CallTimes:
    """Seconds of one call on the host, beside those in which the device runs.

    Attributes:
        waiting_seconds: Before the call, for data that loaders were making.
        sending_seconds: Until its inputs, and what the host changed, are where the device takes them.
        reading_seconds: From the end of the run until its outputs are handed over.
    """

    waiting_seconds: float = 0.0
    sending_seconds: float = 0.0
    reading_seconds: float = 0.0


class _Waited(threading.local):
    """Seconds that a thread has waited for data since its last call, and the loaders of its present waits."""

    seconds = 0.0
    depth = 0


_waited = _Waited()


@contextmanager
def waiting_for_data() -> Iterator[None]:
    """Count the time inside as waiting for data: the next call of a program from this thread reports it."""
    _waited.depth += 1
    begin = time.perf_counter()
    try:
        yield
    finally:
        _waited.depth -= 1
        # Loaders that wait for loaders wait once.
        if not _waited.depth:
            _waited.seconds += time.perf_counter() - begin


def take_waited() -> float:
    """Seconds that this thread has waited for data since the last call of this."""
    seconds, _waited.seconds = _waited.seconds, 0.0
    return seconds
