"""Checks of the tables by which native code counts and reaches memory, made once per engine.

The graph's own checks, and those of files, keep programs inside their variables. Native code believes its tables, so
they are looked at once more here, however they came to be: a mistake above ends in an error, not in foreign memory.
All comparisons are without sums that could wrap. Costs a few passes over arrays that were just made.
"""

from __future__ import annotations

from abele.arrays import Int64
from abele.errors import EngineError


def check_intervals(begin: Int64, length: Int64, size: int) -> None:
    """Intervals lie in a space of ``size`` elements, and none is empty.

    Args:
        begin: First element of each, int64[k].
        length: Elements of each, int64[k].
        size: Elements of the space.

    Raises:
        EngineError: One does not.
    """
    if len(begin) != len(length):
        raise _outside(f"{len(begin)} intervals have {len(length)} lengths")
    if len(begin) == 0:
        return
    if begin.min() < 0 or length.min() < 1 or (length > size - begin).any():
        raise _outside(f"an interval of elements lies outside the {size:,} that the graph has")


def check_stretches(begin: Int64, count: int, rows: int, what: str) -> None:
    """``begin`` bounds ``count`` stretches of ``rows`` rows, one after the other from the first to the last.

    Raises:
        EngineError: It does not.
    """
    if len(begin) != count + 1 or begin[0] != 0 or begin[-1] != rows or (begin[1:] < begin[:-1]).any():
        raise _outside(f"{what} of {count:,} vertices do not add up to {rows:,} rows")


def check_numbers(numbers: Int64, count: int, what: str) -> None:
    """Check that numbers are below ``count``.

    Raises:
        EngineError: One is not.
    """
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
        raise _outside(f"{what}: there are {count:,}")


def check_equal(one: int, other: int, what: str) -> None:
    """Two sides of a copy have as many bytes.

    Raises:
        EngineError: They do not.
    """
    if one != other:
        raise _outside(f"{what} moves {one:,} bytes onto {other:,}")


def _outside(what: str) -> EngineError:
    return EngineError(
        f"the program would reach outside its variables: {what}",
        remedy="make the graph anew through its own methods; a file from elsewhere is damaged",
    )
