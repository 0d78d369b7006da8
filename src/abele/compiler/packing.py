"""Packing: places of variables' elements on their tiles.

Map pieces sorted by (variable, tile, address) lie in the order of the packed space, and running sums of their lengths
are packed addresses. What a variable has there is its own affair: its packed elements take up the same addresses as
itself, in another order, which its tile mapping alone decides. So of variables that are mapped alike, or alike but for
one distance between their tiles, one is sorted, and the others are what that one is, further on. A model built for each
of 64 IPUs has a few mappings, 64 times each, and sorting all of their 9 million pieces took longer than its analysis.

Mappings of few pieces are sorted without being compared: for them looking costs more than sorting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from abele.arrays import Int32, Int64
from abele.graph.intervals import order_of

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
