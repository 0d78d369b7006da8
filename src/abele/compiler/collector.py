"""Python's cyclic collector while something large is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing that compiling makes is garbage before it ends, so looking for some again and again only takes time.

    One look goes over every object of the process, those of PyTorch too, and takes a quarter of a second.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
