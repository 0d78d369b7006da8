"""Read-only records: what an executable holds cannot be written, not even into its arrays."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def make_read_only(record: Any) -> None:
    """Nobody can write into the arrays of a dataclass any more, nor into those of dataclasses in its fields."""
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        elif is_dataclass(value) and not isinstance(value, type):
            make_read_only(value)
