"""Notes on recorded nodes: what PyTorch's tracer writes into the metadata of each call that it meets.

A note holds inside a ``with``; a lasting one from where it is made until it is made anew, also where that is inside of
a ``with`` that ends before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.fx import traceback

BLOCK = "abele_block"
"""Under this name a node's notes have the number of the block that it is in, or one of the two below."""

OUTSIDE = -1
"""Number of nodes after the end of a block, in none."""

BEFORE = -2
"""Number of nodes before the first block."""

_lasting: dict[str, Any] = {}


@contextmanager
def annotate(notes: dict[str, Any]) -> Iterator[None]:
    """Calls that are recorded inside have ``notes`` in their metadata; nothing where PyTorch cannot do that yet."""
    context: Any = getattr(traceback, "annotate", None)
    if context is None:
        yield
        return
    try:
        with context(notes):
            yield
    finally:
        _renew()


@contextmanager
def keeping(name: str, first: object) -> Iterator[None]:
    """Let there be a lasting note, ``first`` for a start; see :func:`keep`."""
    keep(name, first)
    try:
        yield
    finally:
        del _lasting[name]
        _current()["custom"] = {key: note for key, note in _current().get("custom", {}).items() if key != name}


def keep(name: str, note: object) -> None:
    """Make a lasting note anew."""
    _lasting[name] = note
    _renew()


def _renew() -> None:
    if _lasting:
        _current()["custom"] = {**_current().get("custom", {}), **_lasting}


def _current() -> dict[str, Any]:
    """The metadata that the next recorded call gets."""
    module: Any = traceback
    found: dict[str, Any] = module.current_meta
    return found
