"""NNLSHP: packing by non-negative least squares, as published.

All ways to fill a pack exactly with at most three sequences are columns of a matrix; how often each is used is the
non-negative least-squares solution for the histogram, rounded. Short lengths weigh less, as what is left over of them
costs little. A length that rounding left over goes into packs of its own, beside a slot that fills the pack and stays
empty.

The method is here for comparison. Its matrix is dense and grows with the square of the capacity, and least squares does
not count packs: column generation is faster, closer to the bound, and knows the bound.

Source: Krell, Kosec, Perez, Fitzgibbon, "Efficient sequence packing without cross-contamination", arXiv 2107.02027.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import MissingPackageError, PackingError
from abele.packing.groups import GroupOfPacks

MOST_LENGTH = 1024
"""The largest capacity: the matrix has about capacity³ / 12 elements of 8 bytes."""

_DEEPEST = 3
_SHORT = 8
_SHORT_WEIGHT = 0.09
"""The weight of lengths up to 8, as published."""


def nnls_packs(histogram: Int64, capacity: int, depth: int) -> list[GroupOfPacks]:
    """NNLSHP's packs.

    Args:
        histogram: Items by length, int64[capacity + 1].
        capacity: Size that a pack holds, at most 1,024.
        depth: The most items of a pack, at most 3.

    Returns:
        Packs whose kinds are lengths. There are at least as many slots of each length as items; those that are too many
        stay empty.

    Raises:
        PackingError: The capacity or depth is more than the method's matrix is made for.
    """
    if capacity > MOST_LENGTH:
        raise PackingError(
            f"nnlshp packs into at most {MOST_LENGTH:,} tokens, got {capacity:,}",
            because="its matrix has a column for every way to fill a pack",
            remedy="method='columns', which makes the columns that it needs",
        )
    if depth > _DEEPEST:
        raise PackingError(
            f"nnlshp packs at most {_DEEPEST} sequences together, got depth {depth}",
            remedy="depth=3, or method='columns'",
        )
    # A column per way to fill a pack exactly, a row per length: how many items of the length the way has.
    ways = exact_fillings(capacity, depth)
    matrix = np.zeros((capacity + 1, len(ways)))
    for column in range(ways.shape[1]):
        np.add.at(matrix, (ways[:, column], np.arange(len(ways))), 1.0)
    matrix = matrix[1:]
    # Short sequences weigh little, as published: empty slots of theirs waste few tokens.
    weights = np.where(np.arange(1, capacity + 1) <= _SHORT, _SHORT_WEIGHT, 1.0)
    uses, _ = _optimize().nnls(matrix * weights[:, None], histogram[1:] * weights)
    # Rounded uses leave some items over; each goes into a pack whose other slot stays empty.
    whole = np.rint(uses).astype(np.int64)
    left = histogram[1:] - np.rint(matrix @ whole).astype(np.int64)
    groups = [
        _group([int(length) for length in way if length], int(count))
        for way, count in zip(ways[whole > 0], whole[whole > 0], strict=True)
    ]
    for length in (np.flatnonzero(left > 0) + 1).tolist():
        beside = [capacity - length] if depth > 1 and length < capacity else []
        groups.append(_group([length, *beside], int(left[length - 1])))
    return groups


def exact_fillings(capacity: int, depth: int) -> Int64:
    """All multisets of at most ``depth`` lengths, which is at most 3, with the sum ``capacity``.

    Rows of 3 ascending lengths, zeros behind those of fewer, in lexical order. Solutions are not unique, and which one
    least squares find depends on the order.
    """
    first, second = np.meshgrid(np.arange(1, capacity + 1), np.arange(capacity + 1), indexing="ij")
    third = capacity - first - second
    fills = (third == 0) & ((second >= first) | (second == 0))
    kept = fills | ((second >= first) & (third >= second))
    rows = np.stack([first[kept], second[kept], third[kept]], axis=1)
    kept_rows: Int64 = rows[(rows > 0).sum(axis=1) <= depth]
    return kept_rows


def _group(lengths: list[int], count: int) -> GroupOfPacks:
    return GroupOfPacks(
        tuple((length, lengths.count(length)) for length in dict.fromkeys(lengths)), len(lengths), count
    )


def _optimize() -> Any:
    try:
        from scipy import optimize
    except ImportError:
        raise MissingPackageError(
            "non-negative least squares need SciPy, which is not installed",
            remedy="pip install 'abele[packing]', or method='lpfhp', which needs NumPy alone",
        ) from None
    return optimize
