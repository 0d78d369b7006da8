"""Orders of points in which those of a tile lie close together, so that blocks between far tiles have low rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TensorError

_BITS = 62
"""Bits of a place on the curve, shared by the dimensions."""


def morton_order(points: npt.ArrayLike) -> Int64:
    """Order of points along a Morton curve: their numbers, int64[n].

    The curve goes through each half of space before the next one, in every dimension by turns: bits of the coordinates
    are interleaved. Rows and columns of a matrix of distances are taken in this order before it is compressed.

    Args:
        points: Coordinates, [n, dimensions].

    Raises:
        TensorError: Another shape, or coordinates that are not finite.

    Example: four corners of a square go (0, 0), (0, 1), (1, 0), (1, 1).
    """
    given: npt.NDArray[Any] = np.asarray(points, np.float64)
    if given.ndim != 2 or not 1 <= given.shape[1] <= _BITS:
        raise TensorError(f"morton_order takes points [n, dimensions], got shape {list(given.shape)}")
    if not np.isfinite(given).all():
        raise TensorError("morton_order takes finite coordinates")
    if not len(given):
        return np.empty(0, np.int64)
    dimensions = given.shape[1]
    bits = min(20, _BITS // dimensions)
    low, span = given.min(0), np.ptp(given, axis=0).max()
    cells = np.minimum((given - low) / (span or 1.0) * 2**bits, 2**bits - 1).astype(np.int64)
    places = np.arange(bits)
    # Bit b of dimension d becomes bit b · dimensions + (dimensions − 1 − d).
    digits = (cells[:, :, None] >> places) & 1
    weights = places * dimensions + (dimensions - 1 - np.arange(dimensions))[:, None]
    curve = (digits << weights).sum((1, 2))
    return np.argsort(curve, kind="stable").astype(np.int64)
