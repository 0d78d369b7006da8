"""Cut of a pattern over the tiles of one part of the dense columns: which values each tile has, and what they need.

Block columns are ranked, those with few blocks last, and cut into bands of about as many blocks each. Tiles of a band
take equal numbers of blocks, also from the middle of a row, whose sums then come from two tiles. With a single band,
shares end with rows, and nothing is summed between tiles.

Example: 1,000 blocks of 50 rows, 2 bands and 10 tiles. Each band has 5 tiles, each tile 100 blocks of 10 rows or so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from abele.arrays import Array, Bool, Int64
from abele.sparsity import Pattern

WHOLE_BAND_PROPORTION = 0.95
"""Mean share of a band's columns from which on tiles take the whole band, in one piece. Chosen."""


@dataclass(frozen=True)
class Cut:
    """Blocks of every tile that has some, tile by tile.

    Attributes:
        tile: Tile of each share, among those of a part of the dense columns, int64[shares].
        order: Block of the pattern for each place, share by share, int64[blocks].
        ptr: First place of each share, int64[shares + 1].
        place: Dense block row of each block, among those that its share takes, int64[blocks].
        entry_row: Rank of the block row of each entry: rows of shares, one after the other, int64[entries].
        entry_count: Blocks of each entry, int64[entries].
        entry_ptr: First entry of each share, int64[shares + 1].
        taken: List of dense block rows of each share, int64[shares].
        needed: Block columns of the lists, one after the other, int64[k].
        needed_ptr: First place of each list, int64[lists + 1].
        row_order: Block row of each rank; rows without blocks are last, int64[block rows].
        held_rows: Block rows with blocks.
    """

    tile: Int64
    order: Int64
    ptr: Int64
    place: Int64
    entry_row: Int64
    entry_count: Int64
    entry_ptr: Int64
    taken: Int64
    needed: Int64
    needed_ptr: Int64
    row_order: Int64
    held_rows: int

    @property
    def shares(self) -> int:
        """Tiles that have blocks."""
        return len(self.tile)


@lru_cache(maxsize=1)
def cut_pattern(pattern: Pattern, bands: int, tiles: int, *, preprocesses: bool = True, whole_rows: bool = True) -> Cut:
    """Blocks of each of ``tiles`` tiles. The last is kept: both operands and the partitioner ask for the same.

    Args:
        pattern: The pattern.
        bands: Bands of block columns; fewer where there are no more tiles.
        tiles: Tiles of one part of the dense columns.
        preprocesses: True to rank rows and columns with few blocks last.
    """
    row_order = _ranked(pattern.rows, pattern.grid[0], preprocesses=preprocesses)
    column_order = _ranked(pattern.columns, pattern.grid[1], preprocesses=preprocesses)
    row_rank, column_rank = _inverse(row_order), _inverse(column_order)
    rows, columns = _taken(row_rank, pattern.rows), _taken(column_rank, pattern.columns)
    count = np.bincount(columns, minlength=pattern.grid[1])
    band_of = _bands(count, min(bands, tiles, max(int((count > 0).sum()), 1)))
    band = band_of[columns]
    order = _sorted_by(band, rows)
    band, rows = band[order], rows[order]
    share = _shares(band, rows, tiles)
    first = np.flatnonzero(_changes(share))
    tile = share[first]
    ptr = np.append(first, len(share))
    starts = np.flatnonzero(_changes(share) | _changes(rows))
    number = np.repeat(np.arange(len(tile)), np.diff(ptr))
    taken, needed, needed_ptr, place = _needed(columns[order], number, band[first], band_of, len(tile))
    return Cut(
        tile=tile,
        order=order,
        ptr=ptr,
        place=place,
        entry_row=rows[starts],
        entry_count=np.diff(np.append(starts, len(rows))),
        entry_ptr=np.append(np.searchsorted(starts, ptr[:-1]), len(starts)),
        taken=taken,
        needed=column_order[needed],
        needed_ptr=needed_ptr,
        row_order=row_order,
        held_rows=int((np.diff(pattern.row_starts) > 0).sum()),
    )


def _changes(values: Int64) -> Bool:
    """True where a value differs from the one before it, and for the first."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def _ranked(lines: Int64, size: int, *, preprocesses: bool) -> Int64:
    """Lines in their order, those with few blocks behind the others, those without any last, int64[size]."""
    count = np.bincount(lines, minlength=size)
    kind = (count == 0).astype(np.int8)
    if preprocesses:
        kind += count < 0.1 * len(lines) / max(size, 1)
    return np.argsort(kind, kind="stable")


def _inverse(order: Int64) -> Int64:
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank


def _taken(rank: Int64, lines: Int64) -> Int64:
    return lines if bool((rank == np.arange(len(rank))).all()) else rank[lines]


def _bands(count: Int64, bands: int) -> Int64:
    """Band of each ranked column, by equal numbers of blocks; every band has some, int64[columns]."""
    held = np.flatnonzero(count)
    before = np.cumsum(count) - count
    found = (before * bands // max(int(count.sum()), 1))[held]
    # No two bands may share all of their columns, nor one be empty: later ones step up by one column at least.
    found = np.minimum(found, bands - 1)
    _, found = np.unique(found, return_inverse=True)
    band = np.zeros(len(count), np.int64)
    band[held] = found.reshape(-1)
    # Columns without blocks go with the one before them.
    last = np.maximum.accumulate(np.where(count > 0, np.arange(len(count)), 0))
    return band[last]


def _sorted_by(band: Int64, rows: Int64) -> Int64:
    """Places of blocks in order of band, row and column; patterns are in order of row and column already."""
    if bool((rows[1:] >= rows[:-1]).all()):
        return np.argsort(band.astype(np.uint8 if band.max(initial=0) < 256 else np.uint16), kind="stable")
    return np.lexsort((rows, band))


def _shares(band: Int64, rows: Int64, tiles: int) -> Int64:
    """Tile of each block; ``band`` and ``rows`` are sorted, int64[blocks]."""
    count = np.bincount(band)
    of_band = _dealt(count, tiles)
    tile_start = np.cumsum(of_band) - of_band
    if len(count) > 1:
        position = np.arange(len(band)) - (np.cumsum(count) - count)[band]
        return tile_start[band] + position * of_band[band] // count[band]
    # A row goes as a whole where its middle lies.
    first = np.flatnonzero(_changes(rows))
    sizes = np.diff(np.append(first, len(rows)))
    return np.repeat((2 * first + sizes) * tiles // (2 * max(len(rows), 1)), sizes)


def _dealt(count: Int64, tiles: int) -> Int64:
    """Tiles of each band in proportion to its blocks: one at least, all together at most ``tiles``."""
    exact = count / max(int(count.sum()), 1) * tiles
    dealt = np.maximum(np.floor(exact).astype(np.int64), 1)
    spare = tiles - int(dealt.sum())
    if spare > 0:
        dealt[np.argsort(-(exact - dealt), kind="stable")[:spare]] += 1
    while spare < 0:
        dealt[np.argmax(dealt)] -= 1
        spare += 1
    return dealt


def _needed(
    columns: Int64, share: Int64, band_of_share: Int64, band_of: Int64, shares: int
) -> tuple[Int64, Int64, Int64, Int64]:
    """List of each share, ranked columns of the lists, their starts, and the place of each block's column."""
    width = len(band_of)
    flags: Bool = np.zeros((shares, width), bool)
    flags.reshape(-1)[share * width + columns] = True
    band_start = np.searchsorted(band_of, np.arange(int(band_of.max(initial=0)) + 2))
    sizes = np.diff(band_start)
    if flags.sum() >= WHOLE_BAND_PROPORTION * sizes[band_of_share].sum():
        return band_of_share, np.arange(width), band_start, columns - band_start[band_of[columns]]
    place: Array = np.cumsum(flags, axis=1, dtype=np.int32)
    needed_ptr = np.append(0, np.cumsum(place[:, -1].astype(np.int64)))
    at = place.reshape(-1)[share * width + columns].astype(np.int64) - 1
    return np.arange(shares), np.nonzero(flags)[1], needed_ptr, at
