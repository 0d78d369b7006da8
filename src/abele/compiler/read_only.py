"""Read-only records: parts of an executable cannot be written, not even into their arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def make_read_only(record: Any) -> None:
    """Make the arrays of a record, and of records in its fields, read-only.

    Args:
        record: A dataclass or a named tuple.
    """
    for value in _values(record):
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        else:
            make_read_only(value)


def _values(record: Any) -> Iterator[Any]:
    """Values of a record's fields; none of other objects."""
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        yield from record
    elif is_dataclass(record) and not isinstance(record, type):
        yield from (getattr(record, each.name) for each in fields(record))
