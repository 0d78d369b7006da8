"""Tile vectors: one number per tile, stored for the tiles that a step touches.

A superstep of five tiles on a Pod of 376,832 has five numbers that are not zero. Whatever the compiler finds of a step
tile by tile is therefore a column over a ``TileSet``, the tiles that take part, with one entry more for all tiles that
do not: 0 nearly always, and what each of them receives when a decision is sent to every tile. Formulas work on whole
columns, that last entry included, so none of them knows whether the set is five tiles or all of them.

Where a step touches an eighth of all tiles or more, its set is simply all tiles: then a tile's number is its position,
nothing is sorted or looked up, and sums are those of a dense array. That is as fast as dense arrays were on one IPU.
Tried before: dense arrays everywhere (a step cost 70 ms and 8 MB on a Pod256); ``scipy.sparse`` (its construction costs
more than the whole analysis of a small step, and it has no entry for all other tiles).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int32, Int64
from abele.graph.intervals import distinct

Positions = npt.NDArray[np.integer[Any]]

_DENSE_PART = 8
"""A set that is given as so large a part of all tiles (1 / 8) is taken as all of them."""
_INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False, slots=True)
class TileSet:
    """Some tiles of a machine, as the axis of columns.

    Attributes:
        tiles: Their numbers, ascending int32[k].
        num_tiles: Tiles of the machine.
    """

    tiles: Int32
    num_tiles: int

    def __post_init__(self) -> None:
        # A view, since the tiles may be those of vertices that somebody goes on to build with.
        view = self.tiles.view()
        view.setflags(write=False)
        object.__setattr__(self, "tiles", view)

    @staticmethod
    def of(columns: Sequence[Int32], num_tiles: int) -> TileSet:
        """The tiles in some columns; all tiles where the columns are long enough for that to be cheaper.

        Args:
            columns: Tile numbers in any order, int32[n] each.
            num_tiles: Tiles of the machine.
        """
        if sum(map(len, columns)) * _DENSE_PART >= num_tiles:
            return TileSet.all(num_tiles)
        joined = columns[0] if len(columns) == 1 else np.concatenate([np.empty(0, np.int32), *columns])
        # Most columns are ascending without repeats already: a set as it is.
        step = joined[1:] > joined[:-1]
        if bool(step.all()):
            return TileSet(joined, num_tiles)
        ordered = np.sort(joined)
        return TileSet(ordered[np.append(True, ordered[1:] != ordered[:-1])], num_tiles)

    @staticmethod
    def all(num_tiles: int) -> TileSet:
        """All tiles of a machine; the same object each time."""
        return _all_tiles(num_tiles)

    def __len__(self) -> int:
        return len(self.tiles)

    @property
    def is_all(self) -> bool:
        """True if it has every tile of the machine."""
        return len(self.tiles) == self.num_tiles

    def positions(self, tile: Int32) -> Positions:
        """Position in the set of each of some of its tiles, int[n]."""
        return tile if self.is_all else np.searchsorted(self.tiles, tile)

    def count(self, positions: Positions) -> Int64:
        """Number of times that each position comes up, int64[k + 1]."""
        return np.bincount(positions, minlength=len(self.tiles) + 1)

    def sum(self, positions: Positions, amount: npt.NDArray[Any]) -> Int64:
        """Sum of ``amount`` at each position, int64[k + 1]; exact up to 2**53."""
        return np.bincount(positions, weights=amount, minlength=len(self.tiles) + 1).astype(np.int64)

    def zeros(self) -> Int64:
        """A column of zeros, int64[k + 1]."""
        return np.zeros(len(self.tiles) + 1, dtype=np.int64)

    def shifted(self, by: int) -> TileSet:
        """The tiles that lie ``by`` further on; all tiles stay all tiles."""
        return self if by == 0 or self.is_all else TileSet(self.tiles + np.int32(by), self.num_tiles)


@lru_cache(maxsize=8)
def _all_tiles(num_tiles: int) -> TileSet:
    tiles = np.arange(num_tiles, dtype=np.int32)
    tiles.flags.writeable = False
    return TileSet(tiles, num_tiles)


class TileRows(NamedTuple):
    """Tile vectors of several steps in compressed sparse rows.

    Attributes:
        ptr: Entries of step i are ``ptr[i]`` to ``ptr[i + 1]``, int64[n + 1].
        tile: Tile of each entry, int32[m]; ascending within a step.
        value: Its number, int64[m].
        elsewhere: Number of every tile of a step that has no entry, int64[n].
    """

    ptr: Int64
    tile: Int32
    value: Int64
    elsewhere: Int64

    @staticmethod
    def of(vectors: Sequence[TileVector | None]) -> TileRows:
        """Rows of vectors in order; None has no entries. Numbers that equal ``elsewhere`` have none either."""
        kept = [_EMPTY if v is None else v._entries() for v in vectors]
        ptr = np.concatenate([[0], np.cumsum([len(k[0]) for k in kept], dtype=np.int64)])
        tile = np.concatenate([np.empty(0, np.int32), *(k[0] for k in kept)])
        value = np.concatenate([np.empty(0, np.int64), *(k[1] for k in kept)])
        return TileRows(ptr, tile, value, np.array([0 if v is None else v.elsewhere for v in vectors], dtype=np.int64))


_EMPTY = (np.empty(0, np.int32), np.empty(0, np.int64))


@dataclass(frozen=True, eq=False, slots=True)
class TileVector:
    """One whole number per tile.

    Attributes:
        tile_set: The tiles whose numbers are listed.
        values: Their numbers, and last that of every other tile of the machine, int[k + 1].
    """

    tile_set: TileSet
    values: npt.NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    @staticmethod
    def zero(num_tiles: int) -> TileVector:
        """Zero on every tile."""
        return TileVector(TileSet(np.empty(0, dtype=np.int32), num_tiles), np.zeros(1, dtype=np.int64))

    @staticmethod
    def one(num_tiles: int) -> TileVector:
        """One on every tile."""
        return TileVector(TileSet(np.empty(0, dtype=np.int32), num_tiles), np.ones(1, dtype=np.int64))

    @staticmethod
    def of_dense(values: npt.ArrayLike) -> TileVector:
        """The vector of an array with one entry per tile."""
        array = np.asarray(values, dtype=np.int64)
        return TileVector(TileSet.all(len(array)), np.append(array, 0)).packed()

    @staticmethod
    def sum_of(tile: Int32, amount: npt.NDArray[Any], num_tiles: int) -> TileVector:
        """Sum of ``amount`` for each tile.

        Args:
            tile: Tile of each entry, int32[n], in any order.
            amount: Its number, [n].
            num_tiles: Tiles of the machine.
        """
        tiles = TileSet.of([tile], num_tiles)
        return TileVector(tiles, tiles.sum(tiles.positions(tile), amount))

    @property
    def num_tiles(self) -> int:
        """Tiles of the machine."""
        return self.tile_set.num_tiles

    @property
    def elsewhere(self) -> int:
        """The number of every tile that is not listed."""
        return int(self.values[-1])

    @property
    def first_tile(self) -> int:
        """The first tile that is listed; −1 where none is."""
        return int(self.tile_set.tiles[0]) if len(self.tile_set) else -1

    def __len__(self) -> int:
        return self.num_tiles

    def at(self, tiles: npt.NDArray[np.integer[Any]]) -> Int64:
        """The numbers of some tiles, int64[n].

        Args:
            tiles: Their numbers, int[n], in any order.
        """
        listed = self.tile_set.tiles
        place = np.searchsorted(listed, tiles)
        found = listed[np.minimum(place, len(listed) - 1)] == tiles if len(listed) else np.zeros(len(tiles), dtype=bool)
        return np.where(found, self.values[place], self.values[-1]).astype(np.int64)

    def __getitem__(self, tile: int) -> int:
        """The number of one tile."""
        if not 0 <= tile < self.num_tiles:
            raise IndexError(f"tile {tile} of {self.num_tiles}")
        tiles = self.tile_set.tiles
        at = int(np.searchsorted(tiles, tile))
        return int(self.values[at]) if at < len(tiles) and tiles[at] == tile else self.elsewhere

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """As :meth:`dense`, for NumPy."""
        return self.dense() if dtype is None else self.dense().astype(dtype)

    def dense(self) -> Int64:
        """The numbers of all tiles, int64[num_tiles]."""
        result = np.full(self.num_tiles, self.elsewhere, dtype=np.int64)
        result[self.tile_set.tiles] = self.values[:-1]
        return result

    def tolist(self) -> list[int]:
        """The numbers of all tiles."""
        return [int(n) for n in self.dense()]

    def any(self) -> bool:
        """True if some tile's number is not zero."""
        return bool(self.values.any())

    def max(self) -> int:
        """The largest number of any tile; no number may be below zero."""
        return int(self.values.max())

    def sum(self) -> int:
        """The sum over all tiles."""
        listed = len(self.tile_set)
        return int(self.values[:-1].sum(dtype=np.int64)) + self.elsewhere * (self.num_tiles - listed)

    def count_nonzero(self) -> int:
        """Tiles whose number is not zero."""
        others = self.num_tiles - len(self.tile_set) if self.elsewhere else 0
        return int(np.count_nonzero(self.values[:-1])) + others

    def nonzero(self) -> Int32:
        """Tiles whose number is not zero, ascending int32[n]."""
        if self.elsewhere:
            return np.flatnonzero(self.dense()).astype(np.int32)
        found: Int32 = self.tile_set.tiles[self.values[:-1] != 0]
        return found

    def largest(self, count: int) -> list[tuple[int, int]]:
        """The tiles with the largest numbers above zero, as (tile, number); of equals the lower tile first."""
        if self.elsewhere:
            return TileVector.of_dense(self.dense()).largest(count)
        listed = self.values[:-1]
        order = np.argsort(-listed, kind="stable")[:count]
        return [(int(self.tile_set.tiles[i]), int(listed[i])) for i in order if listed[i] > 0]

    def times(self, factor: int) -> TileVector:
        """Each number multiplied."""
        return TileVector(self.tile_set, self.values.astype(np.int64) * factor)

    def shifted(self, by: int) -> TileVector:
        """Vector moved ``by`` tiles; no value may fall off the ends."""
        if by == 0:
            return self
        if self.tile_set.is_all:
            return TileVector(self.tile_set, np.append(np.roll(self.values[:-1], by), self.values[-1:]))
        return TileVector(self.tile_set.shifted(by), self.values)

    def packed(self) -> TileVector:
        """The same vector in the least memory: without zeros where they are most, in 32 bits where they suffice."""
        tiles, values = self.tile_set, self.values
        if not values[-1]:
            # Two entries of 4 bytes per listed tile against one of 8 per tile of the set: half is where listing starts
            # to pay.
            kept = values[:-1] != 0
            if int(np.count_nonzero(kept)) * 2 < len(tiles):
                tiles, values = TileSet(tiles.tiles[kept], tiles.num_tiles), np.append(values[:-1][kept], 0)
        if values.dtype != np.int32 and int(values.max()) <= _INT32_MAX:
            values = values.astype(np.int32)
        return TileVector(tiles, values)

    def over(self, tiles: TileSet) -> npt.NDArray[np.integer[Any]]:
        """The numbers as a column over a set that has all of the vector's tiles."""
        if self.tile_set is tiles:
            return self.values
        column = np.full(len(tiles) + 1, self.elsewhere, dtype=np.int64)
        column[tiles.positions(self.tile_set.tiles)] = self.values[:-1]
        # No tile is left for the last entry to speak of; zero keeps sums over whole columns right.
        if tiles.is_all:
            column[-1] = 0
        return column

    def add_to(self, total: Int64, times: int = 1) -> None:
        """Add ``times`` the numbers to an array with one entry per tile, int64[num_tiles]."""
        if self.elsewhere:
            total += times * self.elsewhere
        total[self.tile_set.tiles] += times * (self.values[:-1].astype(np.int64) - self.elsewhere)

    def _entries(self) -> tuple[Int32, Int64]:
        """Tiles whose number differs from that of all others, and their numbers."""
        kept = self.values[:-1] != self.values[-1]
        return self.tile_set.tiles[kept], self.values[:-1][kept].astype(np.int64)


def added(vectors: Iterable[TileVector | None], num_tiles: int) -> TileVector:
    """The sum of some vectors of one machine, zero where there are none; None counts as zero."""
    found = [v for v in vectors if v is not None and v.any()]
    if not found:
        return TileVector.zero(num_tiles)
    if len(found) == 1:
        return found[0]
    tiles = found[0].tile_set
    if any(v.tile_set is not tiles for v in found):
        tiles = TileSet.of([v.tile_set.tiles for v in found], num_tiles)
    return TileVector(tiles, sum((v.over(tiles) for v in found), tiles.zeros()))


class TileTotal:
    """Sum, or maximum, of many tile vectors, in time and memory that follow the listed tiles.

    What is taken in is kept as it is until all of it lists an eighth of the tiles. Then it is combined: into fewer
    entries where the same tiles come again and again, and else into an array over all tiles, which further vectors are
    taken into at their places.

    Args:
        num_tiles: Tiles of the machine.
        combine: ``np.add`` or ``np.maximum``.
    """

    def __init__(self, num_tiles: int, combine: np.ufunc = np.add) -> None:
        self._num_tiles, self._combine = num_tiles, combine
        self._everywhere = 0
        self._kept: list[tuple[Int32, Int64]] = []
        self._num_kept = 0
        self._dense: Int64 | None = None

    def add(self, vector: TileVector, times: int = 1) -> None:
        """Take in ``times`` a vector."""
        elsewhere = vector.elsewhere
        assert self._combine is np.add or not elsewhere
        self._everywhere += times * elsewhere
        values = vector.values[:-1].astype(np.int64)
        values = times * (values - elsewhere) if elsewhere or times != 1 else values
        tiles = vector.tile_set.tiles
        if self._dense is not None:
            self._dense[tiles] = self._combine(self._dense[tiles], values)
            return
        self._kept.append((tiles, values))
        self._num_kept += len(tiles)
        if self._num_kept * _DENSE_PART >= self._num_tiles:
            self._combine_kept()

    def _combine_kept(self) -> None:
        """One entry for each tile; all tiles where they are many."""
        tile, values = (np.concatenate(side) for side in zip(*self._kept, strict=True))
        tiles = distinct(tile.astype(np.int64)).astype(np.int32)
        total = np.zeros(len(tiles), dtype=np.int64)
        self._combine.at(total, np.searchsorted(tiles, tile), values)
        self._kept, self._num_kept = [(tiles, total)], len(tiles)
        if len(tiles) * _DENSE_PART * 2 >= self._num_tiles:
            self._dense = np.zeros(self._num_tiles, dtype=np.int64)
            self._dense[tiles] = total
            self._kept = []

    def vector(self) -> TileVector:
        """Sum of all vectors."""
        if self._dense is not None:
            return TileVector(TileSet.all(self._num_tiles), np.append(self._dense + self._everywhere, 0)).packed()
        if not self._kept:
            return TileVector(TileSet(np.empty(0, dtype=np.int32), self._num_tiles), np.array([self._everywhere]))
        self._combine_kept()
        if self._dense is not None:
            return self.vector()
        tiles, total = self._kept[0]
        values = np.append(total, 0) + self._everywhere
        return TileVector(TileSet(tiles, self._num_tiles), values).packed()
