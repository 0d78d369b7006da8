"""Whole numbers that callers give: sizes, counts, seeds."""

from __future__ import annotations

import numbers
from typing import Any, TypeGuard

from abele.errors import InvalidOptionError


def is_whole(value: Any) -> TypeGuard[int]:
    """True if ``value`` is a whole number, of Python or NumPy, and no truth value."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_counts(least: int = 1, *, bits: int = 31, **counts: object) -> None:
    """Raise unless each is a whole number from ``least`` to 2**bits - 1, by name.

    Raises:
        InvalidOptionError: One is not; true and false are none.
    """
    for name, count in counts.items():
        if not is_whole(count) or not least <= count < 2**bits:
            raise InvalidOptionError(f"{name} is a whole number from {least} to 2**{bits} - 1, got {count!r}")
