"""Choosing blocks: by magnitude, by gradients, at random; and moving values from one pattern to the next."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Bool, Int64
from abele.sparsity import Pattern, grid_of

Floats = npt.NDArray[np.floating]


def block_magnitudes(matrix: npt.ArrayLike, block: tuple[int, int]) -> Floats:
    """Sum of magnitudes of each block of a matrix, [block rows, block columns]."""
    dense = np.abs(np.asarray(matrix, np.float64))
    rows, columns = grid_of(dense.shape, block)
    return np.asarray(dense.reshape((rows, block[0], columns, block[1])).sum((1, 3)))


def largest(scores: npt.ArrayLike, count: int) -> Int64:
    """Places of the ``count`` largest scores, the first of equal ones; what is no number counts as the least."""
    given = np.asarray(scores, np.float64).reshape(-1)
    given = np.where(np.isnan(given), -np.inf, given)
    return np.asarray(np.argsort(-given, kind="stable")[:count], np.int64)


def pattern_of_places(pattern: Pattern, places: Int64) -> Pattern:
    """The pattern of blocks at places of the flat grid, of the shape and block of another."""
    columns = pattern.grid[1]
    return Pattern.from_coordinates(pattern.shape, places // columns, places % columns, pattern.block)[0]


def places_of(pattern: Pattern) -> Int64:
    """Place of each block of a pattern in the flat grid, ascending."""
    return pattern.rows * pattern.grid[1] + pattern.columns


def magnitude_pattern(matrix: npt.ArrayLike, blocks: int, block: tuple[int, int]) -> Pattern:
    """The blocks of largest magnitude of a matrix."""
    dense = np.asarray(matrix)
    scores = block_magnitudes(dense, block)
    held = np.zeros(scores.shape, bool)
    held.reshape(-1)[largest(scores, blocks)] = True
    return Pattern.from_dense_mask(held, block)


def moved_values(old: Pattern, new: Pattern, values: npt.ArrayLike, kept: Bool | None = None) -> Array:
    """Values of a new pattern: those of blocks that both hold, and zeros.

    Args:
        old: The pattern before.
        new: The pattern after.
        values: Values of the old one, [blocks, *block].
        kept: True for blocks of the old pattern whose values go on; all by default.
    """
    held = np.asarray(values)
    made = np.zeros((new.num_blocks, *new.block), held.dtype)
    before, after = places_of(old), places_of(new)
    stays = np.isin(before, after) if kept is None else kept
    made[np.searchsorted(after, before[stays])] = held[stays]
    return made
