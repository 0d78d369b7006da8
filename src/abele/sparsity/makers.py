"""Patterns that sparse models are made of: random, banded, strided, BigBird's, causal, and N of M by magnitude."""

from __future__ import annotations

import math
import numbers

import numpy as np
import numpy.typing as npt

from abele.counts import check_counts
from abele.errors import InvalidOptionError, SparsePatternError
from abele.sparsity.pattern import Pattern, grid_of


def random_pattern(
    shape: tuple[int, int], density: float, block: tuple[int, int] = (1, 1), *, seed: int = 0
) -> Pattern:
    """Blocks that are drawn uniformly without replacement: ⌈density · blocks⌉ of them.

    Raises:
        InvalidOptionError: The density is not between 0 and 1.
    """
    if isinstance(density, bool) or not isinstance(density, numbers.Real) or not 0 <= density <= 1:
        raise InvalidOptionError(f"a density is between 0 and 1, got {density!r}")
    check_counts(0, bits=63, seed=seed)
    rows, columns = grid_of(shape, block)
    count = math.ceil(round(density * rows * columns, 6))
    places = np.random.default_rng(seed).choice(rows * columns, count, replace=False, shuffle=False)
    return Pattern.from_coordinates(shape, places // max(columns, 1), places % max(columns, 1), block)[0]


def banded_pattern(shape: tuple[int, int], band: int, block: tuple[int, int] = (1, 1)) -> Pattern:
    """Blocks at most ``band`` block columns from the diagonal: local attention."""
    check_counts(0, band=band)
    down, across = np.indices(grid_of(shape, block), sparse=True)
    return Pattern.from_dense_mask(abs(down - across) <= band, block)


def strided_pattern(shape: tuple[int, int], stride: int, block: tuple[int, int] = (1, 1)) -> Pattern:
    """Blocks whose distance from the diagonal is a multiple of ``stride``."""
    check_counts(stride=stride)
    down, across = np.indices(grid_of(shape, block), sparse=True)
    return Pattern.from_dense_mask((down - across) % stride == 0, block)


def causal_pattern(pattern: Pattern) -> Pattern:
    """The blocks of ``pattern`` on and below the diagonal of the grid."""
    keep = pattern.columns <= pattern.rows
    return Pattern.from_coordinates(pattern.shape, pattern.rows[keep], pattern.columns[keep], pattern.block)[0]


def bigbird_pattern(
    shape: tuple[int, int],
    block: tuple[int, int],
    *,
    window: int = 1,
    num_global: int = 1,
    num_random: int = 0,
    seed: int = 0,
) -> Pattern:
    """BigBird's attention: a local window, global rows and columns, and random blocks in each row.

    Args:
        shape: Queries and keys.
        block: Queries and keys of a block.
        window: Blocks on each side of the diagonal.
        num_global: First block rows that see all keys, and first block columns that all queries see.
        num_random: Blocks drawn in each row among those that are not held yet.
        seed: Seed of the draws.
    """
    check_counts(0, window=window, num_global=num_global, num_random=num_random)
    check_counts(0, bits=63, seed=seed)
    grid = grid_of(shape, block)
    down, across = np.indices(grid, sparse=True)
    mask = (abs(down - across) <= window) | (down < num_global) | (across < num_global)
    if num_random:
        # The first num_random of each row in a random order, in which held blocks come last.
        rank = np.random.default_rng(seed).random(grid) + mask
        chosen = np.argsort(rank, axis=1)[:, :num_random]
        mask[np.arange(grid[0])[:, None], chosen] = True
    return Pattern.from_dense_mask(mask, block)


def n_of_m_pattern(matrix: npt.ArrayLike, n: int, m: int) -> Pattern:
    """The ``n`` elements of largest magnitude in every ``m`` neighbours of a row, as 2:4 sparsity takes them.

    Raises:
        SparsePatternError: Rows do not divide into groups of ``m``.
        InvalidOptionError: ``n`` is not between 0 and ``m``.
    """
    dense = np.abs(np.asarray(matrix))
    check_counts(0, n=n)
    check_counts(m=m)
    if n > m:
        raise InvalidOptionError(f"of every {m} elements between 0 and {m} are held, got {n}")
    if dense.ndim != 2 or dense.shape[1] % m:
        raise SparsePatternError(f"rows of {list(dense.shape)} do not divide into groups of {m}")
    groups = dense.reshape((dense.shape[0], -1, m))
    mask = np.zeros(groups.shape, bool)
    np.put_along_axis(mask, np.argsort(-groups, axis=2, kind="stable")[:, :, :n], True, axis=2)
    return Pattern.from_dense_mask(mask.reshape(dense.shape))
