"""Compression of a matrix to tiles of low rank, with a bound on the error of the whole.

The squared Frobenius error of the whole is the sum over tiles of the squared singular values that are dropped. So the
smallest ones of all tiles together are dropped, as many as ε² ‖A‖² allows: no other choice keeps fewer. Tiles of
which too many stay are held dense, and add no error. What was lost is then measured on the tiles themselves; where
rounding took it beyond the bound, the worst tiles are made dense until it holds.

Example: tiles with singular values (3, 1, 0.2) and (2, 0.1) and ε = 0.1: ‖A‖² is 14.05 and 0.14 may go, so 0.1 and 0.2
are dropped (0.05 together), and the error is 0.06 ‖A‖.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.counts import is_whole
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError, nearest
from abele.poplibs.lowrank.compressed import Float64, TileLowRank, extents

METHODS = ("svd", "randomised")
_SKETCH = 16
"""Columns of the first random sketch of a tile."""
_OVERSAMPLING = 8
"""Columns of a sketch beyond a given rank. Source: Halko, Martinsson and Tropp (2011), §4.2: 5 or 10."""
_POWER_ITERATIONS = 2
"""Products with A·Aᵀ that sharpen a sketch. Source: the same, §4.5."""
_SKETCH_SHARE = 0.25
"""Part of the squared error that sketches may miss; the rest is for singular values that are dropped."""


@dataclass(frozen=True, eq=False)
class TileFactors:
    """Singular value decompositions of some tiles, int: t of them with up to r values.

    Attributes:
        u: Left singular vectors, float64[t, m, r].
        s: Singular values, float64[t, r], falling; zeros fill up.
        vt: Right singular vectors, float64[t, r, n].
        missed: Squared error of each tile with all r values, float64[t].
    """

    u: Float64
    s: Float64
    vt: Float64
    missed: Float64


def compress(
    matrix: npt.ArrayLike,
    tile_size: int | tuple[int, int],
    *,
    tolerance: float | None = None,
    rank: int | None = None,
    method: str = "svd",
    seed: int = 0,
) -> TileLowRank:
    """A matrix as tiles of low rank, in float64.

    Args:
        matrix: Real numbers, [M, N].
        tile_size: Rows and columns of a tile; one number for both.
        tolerance: Largest Frobenius norm of the error over that of the matrix; above 0.
        rank: Rank of every tile instead, at most its sides.
        method: ``svd``, or ``randomised``: sketches with power iterations, doubled until what they miss is small.
        seed: Seed of the sketches.

    Raises:
        TensorError: Not a matrix, empty, or with elements that are not finite.
        TypeMismatchError: Elements that are not real numbers.
        InvalidOptionError: A tile larger than the matrix, a rank larger than the tile, a tolerance that is not above 0,
            both or none of the two, or a method that there is not.
    """
    given = _matrix(matrix)
    tile = _tile(tile_size, given.shape)
    _check(tile, tolerance, rank, method)
    # In units of a power of four, squares neither overflow nor vanish, and its root scales factors exactly.
    unit = 4.0 ** (math.frexp(float(np.abs(given).max()))[1] // 2)
    tiles = _tiles(given / unit, tile)
    norm = float(np.linalg.norm(tiles))
    rows, columns = tiles.shape[1], tiles.shape[0]
    budget = 0.0 if tolerance is None else (tolerance * norm) ** 2
    rng = np.random.default_rng(seed)
    share = budget * _SKETCH_SHARE / (rows * columns)
    # A tile column at a time, so that the decompositions of all tiles need not be held as full squares.
    found = [_factored(column, rank, method, share, rng) for column in tiles]
    ranks = _ranks(found, rank, budget)
    shapes = extents(given.shape[0], tile[0])[:, None], extents(given.shape[1], tile[1])[None]
    ranks = np.minimum(ranks, np.minimum(*shapes))
    is_dense = ranks * (shapes[0] + shapes[1]) >= shapes[0] * shapes[1]
    made = _stacked(found, tiles, ranks, is_dense)
    lost = _lost(made, tiles)
    if tolerance is not None and lost.sum() > budget:
        made = _stacked(found, tiles, ranks, is_dense | _worst(lost, budget))
        lost = _lost(made, tiles)
    root = math.sqrt(unit)
    return replace(
        made,
        shape=given.shape,
        u=made.u * root,
        v=made.v * root,
        dense=made.dense * unit,
        norm=norm * unit,
        error=math.sqrt(lost.sum()) * unit,
    )


def _tiles(matrix: Float64, tile: tuple[int, int]) -> Float64:
    """Tiles [J, I, m, n], with zeros beyond the edge."""
    (m, n), (rows, columns) = tile, (-(-matrix.shape[0] // tile[0]), -(-matrix.shape[1] // tile[1]))
    padded = np.zeros((rows * m, columns * n))
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(rows, m, columns, n).transpose(2, 0, 1, 3)


def _factored(tiles: Float64, rank: int | None, method: str, share: float, rng: np.random.Generator) -> TileFactors:
    if method == "svd":
        u, s, vt = np.linalg.svd(tiles, full_matrices=False)
        return _cropped(TileFactors(u, s, vt, np.zeros(len(tiles))), rank)
    if rank is not None:
        return _cropped(_sketched(tiles, rank + _OVERSAMPLING, rng), rank)
    return _sketched_within(tiles, share, rng)


def _cropped(factors: TileFactors, rank: int | None) -> TileFactors:
    """With ``rank`` values at most, if one is given."""
    return TileFactors(factors.u[:, :, :rank], factors.s[:, :rank], factors.vt[:, :rank], factors.missed)


def _sketched(tiles: Float64, columns: int, rng: np.random.Generator) -> TileFactors:
    """Decompositions on the range that random vectors show. Source: Halko, Martinsson and Tropp (2011), §4.4, §5.1."""
    columns = min(columns, *tiles.shape[1:])
    basis = np.linalg.qr(tiles @ rng.standard_normal((tiles.shape[2], columns)))[0]
    for _ in range(_POWER_ITERATIONS):
        # Factorisations between the products keep small singular values from drowning in rounding.
        basis = np.linalg.qr(tiles @ np.linalg.qr(tiles.transpose(0, 2, 1) @ basis)[0])[0]
    small = basis.transpose(0, 2, 1) @ tiles
    u, s, vt = np.linalg.svd(small, full_matrices=False)
    missed = np.square(tiles - basis @ small).sum((1, 2))
    return TileFactors(basis @ u, s, vt, missed)


def _sketched_within(tiles: Float64, share: float, rng: np.random.Generator) -> TileFactors:
    """Sketches that double until each misses no more than ``share``; whole decompositions where that is the tile."""
    side = min(tiles.shape[1:])
    u = np.zeros((*tiles.shape[:2], side))
    s, vt = np.zeros((len(tiles), side)), np.zeros((len(tiles), side, tiles.shape[2]))
    missed, open_tiles, columns = np.zeros(len(tiles)), np.arange(len(tiles)), _SKETCH
    while len(open_tiles):
        whole = columns >= side // 2
        part = tiles[open_tiles]
        found = _factored(part, None, "svd", share, rng) if whole else _sketched(part, columns, rng)
        r = found.s.shape[1]
        u[open_tiles, :, :r], s[open_tiles, :r], vt[open_tiles, :r] = found.u, found.s, found.vt
        missed[open_tiles] = found.missed
        # What the whole decomposition misses is rounding, which the measurement at the end looks after.
        open_tiles = open_tiles[:0] if whole else open_tiles[found.missed > share]
        columns *= 2
    return TileFactors(u, s, vt, missed)


def _ranks(found: list[TileFactors], rank: int | None, budget: float) -> Int64:
    """Rank of each tile, int64[I, J]: the given one, or what is left when the smallest values of all are dropped."""
    values = np.stack([f.s for f in found])
    if rank is not None:
        return np.full(values.shape[1::-1], rank, np.int64)
    squares = np.sort(np.square(values).reshape(-1))
    left = budget - sum(float(f.missed.sum()) for f in found)
    count = int(np.searchsorted(np.cumsum(squares), left, side="right"))
    threshold = squares[count - 1] if count else -1.0
    return np.ascontiguousarray((np.square(values) > max(threshold, 0.0)).sum(2).T).astype(np.int64)


def _stacked(found: list[TileFactors], tiles: Float64, ranks: Int64, is_dense: npt.NDArray[np.bool_]) -> TileLowRank:
    """The blocks of one size, edges filled up, with these ranks."""
    low: Int64 = np.where(is_dense, 0, ranks)
    u, v = [], []
    for j, factors in enumerate(found):
        chosen = np.arange(factors.s.shape[1]) < low[:, j, None]
        root = np.sqrt(factors.s[chosen])[:, None]
        u.append(factors.u.transpose(0, 2, 1)[chosen] * root)
        v.append(factors.vt[chosen] * root)
    (columns, rows, m, n) = tiles.shape
    stacks = np.concatenate(u), np.concatenate(v), tiles[is_dense.T]
    return TileLowRank((rows * m, columns * n), (m, n), low, is_dense, *stacks, norm=0.0, error=0.0)


def _lost(made: TileLowRank, tiles: Float64) -> Float64:
    """Squared error of each tile, float64[I, J]."""
    return np.stack([np.square(made.tile_column(j) - tiles[j]).sum((1, 2)) for j in range(len(tiles))], 1)


def _worst(lost: Float64, budget: float) -> npt.NDArray[np.bool_]:
    """The tiles with the largest errors, without which the sum is within the budget."""
    order = np.argsort(lost, axis=None)
    within = np.cumsum(lost.reshape(-1)[order]) <= budget
    worst = np.zeros(lost.size, np.bool_)
    worst[order[~within]] = True
    return worst.reshape(lost.shape)


def _matrix(matrix: npt.ArrayLike) -> Float64:
    given: npt.NDArray[Any] = np.asarray(matrix)
    if given.dtype.kind not in "fiub":
        raise TypeMismatchError(
            f"compress takes real numbers, got {given.dtype}",
            remedy="np.block([[a.real, -a.imag], [a.imag, a.real]]) is a complex matrix in real numbers"
            if given.dtype.kind == "c"
            else None,
        )
    if given.ndim != 2 or given.size == 0:
        raise TensorError(f"compress takes a matrix [rows, columns], got shape {list(given.shape)}")
    given = given.astype(np.float64)
    bad = int(given.size - np.isfinite(given).sum())
    if bad:
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(given))[0])
        raise TensorError(f"compress takes finite numbers, {bad} of {given.size} are not, the first at {first}")
    return given


def _tile(tile_size: int | tuple[int, int], shape: tuple[int, ...]) -> tuple[int, int]:
    pair = tile_size if isinstance(tile_size, tuple) else (tile_size, tile_size)
    whole = len(pair) == 2 and all(is_whole(n) for n in pair)
    if not whole or min(pair) < 1:
        raise InvalidOptionError(f"tile_size is a whole number or two, from 1 on, got {tile_size!r}")
    if pair[0] > shape[0] or pair[1] > shape[1]:
        raise InvalidOptionError(
            f"tiles of {pair[0]} × {pair[1]} are larger than the matrix of {shape[0]} × {shape[1]}",
            remedy=f"tile_size=({min(pair[0], shape[0])}, {min(pair[1], shape[1])}) at most",
        )
    return int(pair[0]), int(pair[1])


def _check(tile: tuple[int, int], tolerance: float | None, rank: int | None, method: str) -> None:
    if method not in METHODS:
        guess = nearest(str(method), METHODS)
        raise InvalidOptionError(
            f"compress knows no method {method!r}", remedy=f"did you mean {guess!r}?" if guess else " or ".join(METHODS)
        )
    if (tolerance is None) == (rank is None):
        raise InvalidOptionError("compress takes either tolerance or rank", remedy="tolerance=1e-4, or rank=16")
    real = isinstance(tolerance, int | float | np.floating) and not isinstance(tolerance, bool)
    if tolerance is not None and (not real or not 0 < tolerance < math.inf):
        raise InvalidOptionError(f"tolerance is a number above 0, got {tolerance!r}", remedy="tolerance=1e-4")
    if rank is not None and (not is_whole(rank) or not 1 <= rank <= min(tile)):
        raise InvalidOptionError(
            f"rank is a whole number from 1 to {min(tile)}, got {rank!r}",
            because=f"a tile of {tile[0]} × {tile[1]} has no higher rank",
        )
