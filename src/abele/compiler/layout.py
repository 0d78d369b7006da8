"""Layout: the tile of every element, and its place in that tile's memory.

A tile keeps its share of a variable packed, in order of address. The *packed space* renumbers the elements of the
graph so that every such share is one interval of it: two elements are neighbours in a tile's memory exactly when they
are neighbours in it and on the same tile.

Why it is worth the sort: a vertex often wants many intervals of a variable that lie in one piece on its tile, because
the elements between them are mapped elsewhere. In packed addresses that is one interval, and every question about
memory ("in one piece?", "aligned?", "already brought?") is a comparison of numbers.

Example: of 8 elements, 0, 1, 4 and 5 lie on tile 0 and the others on tile 1. Their packed addresses, in order, are 0,
1, 4, 5, 2, 3, 6 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph.interval_map import IntervalMap
from abele.graph.intervals import order_of
from abele.graph.variable import Variable

# Packing: places of variables' elements on their tiles.
#
# Map pieces sorted by (variable, tile, address) lie in the order of the packed space, and running sums of their
# lengths are packed addresses. What a variable has there is its own affair: its packed elements take up the same
# addresses as itself, in another order, which its tile mapping alone decides. So of variables that are mapped alike,
# or alike but for one distance between their tiles, one is sorted, and the others are what that one is, further on. A
# model built for each of 64 IPUs has a few mappings, 64 times each, and sorting all of their 9 million pieces took
# longer than its analysis.
#
# Mappings of few pieces are sorted without being compared: for them looking costs more than sorting.

_LEAST_COMPARED = 256
"""Pieces of a mapping from which it is compared with others."""
_MOST_ALIKE = 4
"""Mappings of equal look with which one is compared."""


class TileShares(NamedTuple):
    """Elements of each variable on each tile.

    Attributes:
        ptr: Shares of variable v are ``ptr[v]`` to ``ptr[v + 1]``, int64[variables + 1].
        tile: Tile of each share, int32[k]; ascending within a variable.
        elements: Elements of each share, int64[k].
    """

    ptr: Int64
    tile: Int32
    elements: Int64


class Packing(NamedTuple):
    """Packed addresses of map pieces; equally mapped variables share a row of them.

    Attributes:
        packed: Packed address of the first element of each piece of a row, int64[n].
        share: Packed address of the first element of its tile's share of its variable, int64[n].
        shares: These shares.
        like: The variable whose row each variable has, itself where it is the first, int64[variables].
        lag: Difference between the number of a variable's piece and its place in the rows, int64[variables].
        shift: Distance of its elements from those of the row, int64[variables].
        is_shared: True if some row is that of several variables; otherwise the rows are all pieces in order.
    """

    packed: Int64
    share: Int64
    shares: TileShares
    like: Int64
    lag: Int64
    shift: Int64
    is_shared: bool

    def at(self, piece: Int64, variable: Int64 | np.int64) -> tuple[Int64, Int64]:
        """Packed address and share of some pieces, int64[k] each.

        Args:
            piece: Their numbers, int64[k].
            variable: The variable of each, int64[k], or that of all.
        """
        row, shift = piece - self.lag[variable], self.shift[variable]
        return self.packed[row] + shift, self.share[row] + shift


def pack(begin: Int64, end: Int64, tile: Int32, ptr: Int64, num_tiles: int) -> Packing:
    """The packing of variables.

    Args:
        begin: First address of each map piece, int64[m], ascending; pieces fill the address space.
        end: One past the last address of each, int64[m].
        tile: Tile of each, int32[m]; −1 where nothing is mapped.
        ptr: Pieces of variable v are ``ptr[v]`` to ``ptr[v + 1]``, int64[variables + 1].
        num_tiles: Tiles of the system.
    """
    pieces, like = np.diff(ptr), np.arange(len(ptr) - 1)
    alike = _alike(begin, end, tile, ptr)
    if not alike:
        packed, share, shares = _sorted(begin, end - begin, tile, ptr, num_tiles)
        return Packing(
            packed=packed,
            share=share,
            shares=shares,
            like=like,
            lag=np.zeros_like(like),
            shift=np.zeros_like(like),
            is_shared=False,
        )
    others, firsts = (np.array(list(side), dtype=np.int64) for side in (alike, alike.values()))
    like[others] = firsts
    own = np.where(like == np.arange(len(like)), pieces, 0)
    rows = _bounds(own)
    kept = np.flatnonzero(np.repeat(own > 0, pieces))
    packed, share, first = _sorted(begin[kept], (end - begin)[kept], tile[kept], rows, num_tiles)
    shift, further = np.zeros_like(like), np.zeros_like(like)
    shift[others] = begin[ptr[others]] - begin[ptr[firsts]]
    further[others] = tile[ptr[others]] - tile[ptr[firsts]]
    return Packing(
        packed=packed,
        share=share,
        shares=_shares_of(first, like, further),
        like=like,
        lag=ptr[:-1] - rows[:-1][like],
        shift=shift,
        is_shared=True,
    )


def _shares_of(first: TileShares, like: Int64, further: Int64) -> TileShares:
    """The shares of all variables, from those that the first one of each row has."""
    count = np.diff(first.ptr)[like]
    ptr = _bounds(count)
    at = np.arange(int(ptr[-1])) + np.repeat(first.ptr[like] - ptr[:-1], count)
    return TileShares(ptr, first.tile[at] + np.repeat(further, count).astype(np.int32), first.elements[at])


def _alike(begin: Int64, end: Int64, tile: Int32, ptr: Int64) -> dict[int, int]:
    """Variables whose pieces lie as those of one before them, perhaps on tiles further on; and that one of each."""
    found: dict[int, int] = {}
    known: dict[tuple[int, ...], list[int]] = {}
    for variable in np.flatnonzero(np.diff(ptr) >= _LEAST_COMPARED).tolist():
        first, stop = int(ptr[variable]), int(ptr[variable + 1])
        if int(tile[first:stop].min()) < 0:
            continue  # What has no tile is no distance away from what has one.
        places = [first + (stop - 1 - first) * part // 7 for part in range(1, 8)]
        look = (stop - first, int(end[stop - 1] - begin[first]), *(tile[places] - tile[first]).tolist())
        candidates = known.setdefault(look, [])
        for other in candidates:
            there = slice(int(ptr[other]), int(ptr[other + 1]))
            if _at_one_distance(begin[first:stop], begin[there]) and _at_one_distance(tile[first:stop], tile[there]):
                found[variable] = other
                break
        else:
            if len(candidates) < _MOST_ALIKE:
                candidates.append(variable)
    return found


def _at_one_distance(one: Int64 | Int32, other: Int64 | Int32) -> bool:
    """True if the entries of two columns differ by one distance throughout."""
    return bool((one - other == one[0] - other[0]).all())


def _bounds(counts: Int64) -> Int64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _sorted(begin: Int64, length: Int64, tile: Int32, ptr: Int64, num_tiles: int) -> tuple[Int64, Int64, TileShares]:
    """Packed addresses, shares and their sizes, of variables that may leave addresses between them out."""
    pieces = np.diff(ptr)
    if len(begin) == 0:
        return begin, begin, TileShares(np.zeros(len(ptr), np.int64), tile, begin)
    owner = np.repeat(np.arange(len(pieces)), pieces)
    # Unmapped pieces have tile −1: adding 1 keeps their keys apart from those of the variable before.
    key = owner * (num_tiles + 1) + tile + 1
    is_sorted = bool((key[1:] >= key[:-1]).all())
    order = slice(None) if is_sorted else order_of(key)
    key, size = key[order], length[order]
    # A variable's packed elements begin where it does itself; within it they follow each other.
    before = np.cumsum(size) - size
    start = ptr[:-1][pieces > 0]
    place = before + np.repeat(begin[start] - before[start], pieces[pieces > 0])
    new = np.append(True, key[1:] != key[:-1])
    first = np.flatnonzero(new)
    packed, share = np.empty((2, len(begin)), dtype=np.int64)
    packed[order], share[order] = place, np.repeat(place[first], np.diff(np.append(first, len(key))))
    where, elements = key[first], np.add.reduceat(size, first)
    mapped = where % (num_tiles + 1) > 0
    variable, held = np.divmod(where[mapped], num_tiles + 1)
    bounds = _bounds(np.bincount(variable, minlength=len(pieces)))
    return packed, share, TileShares(bounds, (held - 1).astype(np.int32), elements[mapped])


class TilePieces(NamedTuple):
    """Intervals cut where the tile changes, in packed addresses.

    Attributes:
        begin: First packed address of each piece, int64[k].
        length: Elements of each, int64[k].
        tile: Tile of each, int32[k].
        share: First packed address of the tile's share of the variable, int64[k].
        source: Interval that each piece was cut from, int64[k], non-decreasing.
    """

    begin: Int64
    length: Int64
    tile: Int32
    share: Int64
    source: Int64


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """Tile and address of every element of a graph.

    Attributes:
        begin: First global address of each map piece, int64[m], ascending; a piece lies in one variable on one tile.
        end: One past its last address, int64[m].
        tile: Its tile, int32[m].
        packing: Packed addresses of the pieces.
        base: First global address of each variable, int64[v].
        size: Elements of each variable, int64[v].
        width: Bytes of one element of each variable, int64[v].
        num_tiles: Tiles of the system.
    """

    begin: Int64
    end: Int64
    tile: Int32
    packing: Packing
    base: Int64
    size: Int64
    width: Int64
    num_tiles: int

    @staticmethod
    def of(interval_map: IntervalMap, variables: Sequence[Variable], num_tiles: int) -> Layout:
        """The layout of ``variables``, all of a graph or some, which are in order of their base.

        Where it is of some, they are numbered through, and addresses of others must not be asked for.
        """
        base = np.array([v.base for v in variables], dtype=np.int64)
        size = np.array([v.size for v in variables], dtype=np.int64)
        width = np.array([v.dtype.bytes for v in variables], dtype=np.int64)
        begin = interval_map.begin
        # Pieces fill a variable, so each ends where the next begins, or with the variable.
        end = np.append(begin[1:], interval_map.size)[: len(begin)]
        ptr = np.append(np.searchsorted(begin, base), len(begin))
        some = np.flatnonzero(ptr[1:] > ptr[:-1])
        end[ptr[1:][some] - 1] = (base + size)[some]
        packing = pack(begin, end, interval_map.tile, ptr, num_tiles)
        return Layout(
            begin=begin,
            end=end,
            tile=interval_map.tile,
            packing=packing,
            base=base,
            size=size,
            width=width,
            num_tiles=num_tiles,
        )

    def cut(self, begin: Int64, length: Int64) -> TilePieces:
        """Cut intervals of the global space where the tile or the variable changes.

        Args:
            begin: First address of each interval, int64[k].
            length: Elements of each, int64[k], at least 1.
        """
        if len(begin) == 0:
            return self._pieces(begin, begin, length, begin)
        end = begin + length
        # Intervals of one variable lie in few pieces of the map: a search among these stays in the cache.
        low, high = np.searchsorted(self.begin, [begin.min(), end.max()], side="right") - [1, 0]
        first = np.searchsorted(self.begin[low:high], begin, side="right") + (low - 1)
        source = np.arange(len(begin), dtype=np.int64)
        # Nearly every field of a well placed program: each interval lies in one piece, and nothing is cut.
        cut = np.flatnonzero(end > self.end[first])
        if len(cut) == 0:
            return self._pieces(first, begin, length, source)
        count = np.ones(len(begin), dtype=np.int64)
        count[cut] = np.searchsorted(self.begin[low:high], end[cut], side="left") + low - first[cut]
        source = np.repeat(source, count)
        # All pieces of all intervals in one column: first[i], first[i] + 1, … up to last[i].
        piece = np.arange(len(source), dtype=np.int64) + np.repeat(first - np.cumsum(count) + count, count)
        low = np.maximum(self.begin[piece], begin[source])
        high = np.minimum(self.end[piece], end[source])
        return self._pieces(piece, low, high - low, source)

    def _pieces(self, piece: Int64, begin: Int64, length: Int64, source: Int64) -> TilePieces:
        packed, share = self.packed(piece)
        return TilePieces(packed + (begin - self.begin[piece]), length, self.tile[piece], share, source)

    def packed(self, piece: Int64) -> tuple[Int64, Int64]:
        """Packed address of the first element of some pieces, and of that of the share that each is in, int64[k]."""
        packing = self.packing
        if not packing.is_shared or len(piece) == 0:
            return packing.packed[piece], packing.share[piece]
        ends = self.variables_at(self.begin[np.array([piece.min(), piece.max()])])
        return packing.at(piece, ends[0] if ends[0] == ends[1] else self.variables_at(self.begin[piece]))

    @property
    def all_packed(self) -> tuple[Int64, Int64]:
        """Result of :meth:`packed` for all pieces."""
        return self.packed(np.arange(len(self.begin)))

    def variables_at(self, address: Int64) -> Int64:
        """Position of the variable that each global address belongs to, int64[k]."""
        return np.asarray(np.searchsorted(self.base, address, side="right") - 1, dtype=np.int64)

    def variables_in(self, begin: Int64, end: Int64) -> Int64:
        """Positions of the variables that the intervals touch, ascending and unique."""
        if len(begin) == 0:
            return np.empty(0, dtype=np.int64)
        low, high = self.variables_at(np.array([begin.min(), end.max() - 1]))
        if low == high:
            return np.array([low], dtype=np.int64)
        # Mark where intervals enter and leave the row of variables; the running sum is above zero inside them.
        touched = np.bincount(self.variables_at(begin), minlength=len(self.base) + 1)
        touched -= np.bincount(self.variables_at(end - 1) + 1, minlength=len(self.base) + 1)
        return np.flatnonzero(np.cumsum(touched)[:-1])
