"""Residence: which tiles hold a set of regions, as pieces that are contiguous in a tile's memory.

A vertex can use a region in place exactly when the region is one piece of its own tile's memory. Pieces are cut by the
layout and joined again where they adjoin in packed addresses, so that holds for a region if one piece is left and its
tile is the vertex's. All else is a *pair* of a tile and a region, and pairs are made distinct before their pieces are
listed: a weight that a thousand vertices of a tile share is planned once, not a thousand times.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from abele.arrays import Int32, Int64
from abele.compiler.layout import Layout, TilePieces
from abele.graph.intervals import distinct
from abele.graph.regions import Regions

SCATTERED = -1
EMPTY = -2


@dataclass(frozen=True, eq=False, slots=True)
class Residence:
    """Regions as pieces of tile memory, in the order of their elements.

    Attributes:
        ptr: Pieces of region r are ``ptr[r]`` to ``ptr[r + 1]``, int64[num + 1].
        begin: First packed address of each piece, int64[k].
        length: Elements of each, int64[k].
        tile: Tile of each, int32[k].
        share: First packed address of the share that the piece lies in, int64[k].
        home: Per region the tile that holds all of it in one piece, ``SCATTERED`` or ``EMPTY``, int32[num].
        width: Bytes of an element.
    """

    ptr: Int64
    begin: Int64
    length: Int64
    tile: Int32
    share: Int64
    home: Int32
    width: int

    @property
    def counts(self) -> Int64:
        """Pieces of each region, int64[num]."""
        return np.diff(self.ptr)

    def pieces_of(self, region: Int64) -> tuple[Int64, Int64]:
        """The pieces of some regions, one region after the other, and which entry of ``region`` each is of."""
        first, count = self.ptr[:-1][region], self.counts[region]
        number = np.repeat(np.arange(len(region), dtype=np.int64), count)
        ends = np.cumsum(count)
        total = int(ends[-1]) if len(ends) else 0
        if bool((first[1:] == first[:-1] + count[:-1]).all()):  # As the regions of most fields: all pieces in a row.
            begin = int(first[0]) if len(first) else 0
            return np.arange(begin, begin + total, dtype=np.int64), number
        return np.arange(total, dtype=np.int64) + (first - (ends - count))[number], number


class PairPieces(NamedTuple):
    """Pieces of (tile, region) pairs: the tile that needs each, and its place.

    Attributes:
        needer: Tile of the pair, int32[k].
        begin: First packed address, int64[k].
        length: Elements, int64[k].
        holder: Tile that holds the piece, int32[k].
        share: First packed address of the holder's share, int64[k].
        alone: True where the region is one piece, bool[k].
    """

    needer: Int32
    begin: Int64
    length: Int64
    holder: Int32
    share: Int64
    alone: np.ndarray[tuple[int], np.dtype[np.bool_]]


def residence_of(regions: Regions, layout: Layout) -> Residence:
    """Tiles and pieces of ``regions`` under ``layout``."""
    count, width = len(regions.begin), regions.tensor.dtype.bytes
    if count < 2 * PORTION:
        return _residence(regions.ptr, regions.begin, regions.length, layout, width)
    ends = np.searchsorted(regions.ptr, np.arange(PORTION, count, PORTION))
    rows = distinct(np.concatenate([[0], ends, [regions.num]]))
    found = []
    for first, stop in pairwise(rows.tolist()):
        bounds = regions.ptr[first : stop + 1]
        here = slice(int(bounds[0]), int(bounds[-1]))
        found.append(_residence(bounds - bounds[0], regions.begin[here], regions.length[here], layout, width))
    return _joined(found)


PORTION = 1 << 17
"""Intervals or pieces that are handled together. Chosen: columns of this many fit in the second cache."""


def _joined(parts: list[Residence]) -> Residence:
    """The residences of some regions and of those after them, as one; the list is emptied."""
    width, names = parts[0].width, ("counts", "begin", "length", "tile", "share", "home")
    columns = {name: [getattr(part, name) for part in parts] for name in names}
    parts.clear()
    # Each column lets go of its parts, so that no two of them are there twice.
    count, begin, length, tile, share, home = (np.concatenate(columns.pop(name)) for name in names)
    ptr = np.concatenate([[0], np.cumsum(count)])
    return Residence(ptr=ptr, begin=begin, length=length, tile=tile, share=share, home=home, width=width)


def _residence(ptr: Int64, begin: Int64, length: Int64, layout: Layout, width: int) -> Residence:
    """Tiles and pieces of regions of intervals ``begin`` and ``length``, those of region r from ``ptr[r]`` on."""
    pieces, num = layout.cut(begin, length), len(ptr) - 1
    counts = np.diff(ptr)
    if len(pieces.begin) == num and bool((counts == 1).all()):
        return _with_home(ptr, pieces, pieces.tile, width)
    region = np.repeat(np.arange(num, dtype=np.int64), counts)
    if len(pieces.begin) != len(region):
        region = region[pieces.source]
    # A piece starts afresh where it does not adjoin the one before in packed memory, or where share or region changes.
    fresh = np.empty(len(region), dtype=bool)
    fresh[:1] = True
    np.not_equal(pieces.begin[1:], pieces.begin[:-1] + pieces.length[:-1], out=fresh[1:])
    fresh[1:] |= (pieces.share[1:] != pieces.share[:-1]) | (region[1:] != region[:-1])
    if not fresh.all():
        first = np.flatnonzero(fresh)
        size = np.add.reduceat(pieces.length, first)
        region = region[first]
        tile, share, source = pieces.tile[first], pieces.share[first], pieces.source[first]
        pieces = TilePieces(pieces.begin[first], size, tile, share, source)
    count = np.bincount(region, minlength=num)
    ptr = np.concatenate([[0], np.cumsum(count)])
    home = np.full(num, EMPTY, dtype=np.int32)
    home[count > 1] = SCATTERED
    home[count == 1] = pieces.tile[ptr[:-1][count == 1]]
    return _with_home(ptr, pieces, home, width)


def _with_home(ptr: Int64, pieces: TilePieces, home: Int32, width: int) -> Residence:
    begin, length, tile, share = pieces.begin, pieces.length, pieces.tile, pieces.share
    return Residence(ptr=ptr, begin=begin, length=length, tile=tile, share=share, home=home, width=width)


def foreign_pairs(residence: Residence, tile: Int32, index: Int64) -> tuple[Int32, Int64]:
    """Distinct (tile, region) pairs whose region is not in one piece on that tile.

    Args:
        residence: Tiles and pieces of the regions.
        tile: Tile of each row, int32[rows].
        index: Region of each row, int64[rows].
    """
    home = residence.home[index]
    busy = np.flatnonzero((home != tile) & (home != EMPTY))
    if len(busy) == 0:
        return tile[busy], index[busy]
    num_regions = len(residence.home)
    key = tile[busy].astype(np.int64) * num_regions + index[busy]
    # Rows come by tile and then region in most fields; only others are sorted.
    if not bool((key[1:] > key[:-1]).all()):
        key = distinct(key)
    return (key // num_regions).astype(np.int32), key % num_regions


def pair_pieces(residence: Residence, tile: Int32, region: Int64) -> PairPieces:
    """Pieces of pairs of a tile and a region."""
    # Each pair repeats the pieces of its region.
    source, pair = residence.pieces_of(region)
    return PairPieces(
        tile[pair],
        residence.begin[source],
        residence.length[source],
        residence.tile[source],
        residence.share[source],
        (residence.counts[region] == 1)[pair],
    )
