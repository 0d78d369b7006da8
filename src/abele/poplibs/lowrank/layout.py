"""Layout of a tile low-rank operator: shares of its factors for the tiles of the machine, equal in work.

To tell them apart, a *block* is here a tile of the matrix, a *tile* one of the machine. A product has three supersteps:

1. Right factors. All V rows of a block column multiply one piece of x, which goes to their tiles at once. Rows are
   shared out in sixes, one for each worker, whatever the ranks of the blocks that they belong to.
2. Left factors. All U columns of a block row multiply the products, which are fetched from where the first superstep
   left them: that exchange is the turn from block columns to block rows. Dense blocks are further columns, which
   multiply x itself.
3. Sums of the partial results of a block row, in pieces over all tiles.

Shares are equal in cycles (:mod:`~abele.poplibs.lowrank.cut`).

On several IPUs, each has some block columns, and partial results of the whole y cross; or it has some block rows, and x
goes to all. What moves less is taken.

Example: MAVIS' 4,802 × 19,078 in blocks of 128 at mean rank 20 are 114,000 rows in each factor: 13 sixes for each of
1,472 tiles, 39 KB in f32, and as much of U.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from abele.arrays import Int64
from abele.numerics import ElementType, f32
from abele.poplibs.lowrank.codelets import product_cycles
from abele.poplibs.lowrank.compressed import TileLowRank
from abele.poplibs.lowrank.cut import ItemShares, best_cut, busiest, within
from abele.poplibs.poplin.vertices import cost

WORKERS = 6
"""Rows of a share are a multiple of it. Source: machine.md §1.1, workers of a tile."""
LEAST_PIECE = 4
"""Elements of y that a vertex sums at least: two accesses of 64 bits in f32, one in f16."""
_ROW_PARTS = (1, 2, 4, 8, 16)
"""Parts of a block row that are tried: each needs all products of the row, and makes as many fewer partial sums."""
_TILE_FRACTIONS = (1, 2, 4, 8)
"""Divisors of the number of tiles that are tried: fewer tiles, fewer partial sums."""
_FRAGMENT_CYCLES = 3
"""Cycles of a receiver for a piece. Source: ``machine.ipu.Exchange.fragment_cycles``."""
_MOST_SWAPS = 64
"""Tiles that one is tried to change places with."""


@dataclass(frozen=True, eq=False)
class PlacedItems:
    """The blocks of a matrix that hold anything, each with its place; arrays over them, IPU after IPU.

    Attributes:
        ipu: IPU, int64[b].
        row: Block row, int64[b].
        column: Block column, int64[b].
        rank: Rank, 0 for dense ones, int64[b].
        first: First row in ``u`` and ``v`` of the matrix, or number among the dense blocks, int64[b].
        is_dense: True for dense ones, bool[b].
    """

    ipu: Int64
    row: Int64
    column: Int64
    rank: Int64
    first: Int64
    is_dense: Int64

    def ordered(self, *keys: Int64) -> Int64:
        """Numbers of the blocks in the order of ``keys``, the first one outermost."""
        return np.lexsort(keys[::-1])


def place_blocks(matrix: TileLowRank, num_ipus: int, by: str) -> PlacedItems:
    """Give every block to an IPU: block columns (``columns``) or block rows (``rows``), as much work to each.

    Both supersteps should end at the same time everywhere, so lines are dealt out in the order of their work in the
    second one, to and fro: lines of like work, which mostly have like work in the first one too, go to different IPUs.
    """
    heights, widths = matrix.heights[:, None], matrix.widths
    axis = 0 if by == "columns" else 1
    first = (matrix.ranks * widths).sum(axis)
    second = (matrix.ranks * heights + matrix.is_dense * (heights * widths)).sum(axis)
    place = np.arange(len(first))
    lap, turn = place // num_ipus, place % num_ipus
    owner = np.empty(len(first), np.int64)
    owner[np.lexsort([first, second])] = np.where(lap % 2, num_ipus - 1 - turn, turn)
    row, column = np.nonzero((matrix.ranks > 0) | matrix.is_dense)
    ipu = owner[column if by == "columns" else row]
    dense = matrix.is_dense[row, column]
    by_column = matrix.is_dense.T.reshape(-1)
    numbers: Int64 = (np.cumsum(by_column) - by_column).reshape(matrix.is_dense.T.shape).T
    first = np.where(dense, numbers[row, column], matrix.starts[row, column])
    return PlacedItems(ipu, row, column, matrix.ranks[row, column], first, dense)


@dataclass(frozen=True, eq=False)
class RightShares:
    """The first superstep: shares of V rows.

    Attributes:
        shares: ItemShares of rows; items are those of ``ipu`` and ``column``.
        ipu: IPU of each item, int64[items].
        column: Block column of each item, int64[items].
        source: Row of the matrix's ``v`` that each row is, int64[rows].
        starts: First row of each item, int64[items].
    """

    shares: ItemShares
    ipu: Int64
    column: Int64
    source: Int64
    starts: Int64

    @cached_property
    def first(self) -> Int64:
        """First row of each share, int64[n]."""
        return self.starts[self.shares.item] + self.shares.first


@dataclass(frozen=True, eq=False)
class LeftShares:
    """The second superstep: shares of U columns.

    Attributes:
        parts: Parts that every block row is cut into.
        shares: ItemShares of columns; items are parts of block rows on an IPU.
        ipu: IPU of each item, int64[items].
        row: Block row of each item, int64[items].
        begin: First row of the part within the block row, int64[items].
        height: Rows of the part, int64[items].
        starts: First of the columns of each item, int64[items]; those of the parts of one block row are the same.
        source: Row of the matrix's ``u`` that each column is; of a dense block its number, int64[columns].
        right: Row of the first superstep whose product each column multiplies, int64[columns]; −1 for x.
        along: Column of x that it multiplies, if it is one of a dense block, int64[columns]; else −1.
    """

    parts: int
    shares: ItemShares
    ipu: Int64
    row: Int64
    begin: Int64
    height: Int64
    starts: Int64
    source: Int64
    right: Int64
    along: Int64

    def columns_of(self) -> Int64:
        """Column of each place of each share, one share after the other."""
        start = self.starts[self.shares.item] + self.shares.first
        return np.repeat(start, self.shares.size) + within(self.shares.size)


def _items(*keys: Int64) -> tuple[Int64, Int64]:
    """Positions at which sorted keys change, and the item of each position."""
    change = np.zeros(len(keys[0]), np.bool_)
    change[:1] = True
    for key in keys:
        change[1:] |= np.diff(key) != 0
    return np.flatnonzero(change), np.cumsum(change) - 1


def share_right(
    matrix: TileLowRank, blocks: PlacedItems, tiles_per_ipu: int, dtype: ElementType, batch: int
) -> RightShares:
    """Shares of the V rows of all blocks that are not dense."""
    order = blocks.ordered(blocks.ipu, blocks.column, blocks.row)
    order = order[blocks.rank[order] > 0]
    rank = blocks.rank[order]
    at, item = _items(blocks.ipu[order], blocks.column[order])
    rows = np.bincount(item, weights=rank, minlength=len(at)).astype(np.int64)
    source = np.repeat(blocks.first[order], rank) + within(rank)
    ipu, column = blocks.ipu[order][at], blocks.column[order][at]
    widths = matrix.widths[column]
    shares = best_cut(
        ipu, rows, WORKERS, tiles_per_ipu, lambda item, size: product_cycles(dtype, dtype, size, widths[item], batch)
    )
    return RightShares(shares, ipu, column, source, np.cumsum(rows) - rows)


def share_left(
    matrix: TileLowRank, blocks: PlacedItems, tiles_per_ipu: int, dtype: ElementType, batch: int
) -> LeftShares:
    """Shares of the U columns, and of the columns of dense blocks."""
    by_column = blocks.ordered(blocks.ipu, blocks.column, blocks.row)
    right_start = np.empty(len(by_column), np.int64)
    right_start[by_column] = np.cumsum(blocks.rank[by_column]) - blocks.rank[by_column]
    order = blocks.ordered(blocks.ipu, blocks.row, blocks.column)
    dense = blocks.is_dense[order]
    count = np.where(dense, matrix.widths[blocks.column[order]], blocks.rank[order])
    at, item = _items(blocks.ipu[order], blocks.row[order])
    columns = np.bincount(item, weights=count, minlength=len(at)).astype(np.int64)
    inner, is_dense = within(count), np.repeat(dense, count)
    whole = LeftShares(
        parts=1,
        shares=ItemShares(*(np.empty(0, np.int64),) * 4),
        ipu=blocks.ipu[order][at],
        row=blocks.row[order][at],
        begin=np.zeros(len(at), np.int64),
        height=matrix.heights[blocks.row[order][at]],
        starts=np.cumsum(columns) - columns,
        source=np.repeat(blocks.first[order], count) + np.where(is_dense, 0, inner),
        right=np.where(is_dense, -1, np.repeat(right_start[order], count) + inner),
        along=np.where(is_dense, np.repeat(blocks.column[order], count) * matrix.tile[1] + inner, -1),
    )
    if not len(at):
        return whole
    choices = LeftChoices(whole, columns, len(order), tiles_per_ipu, dtype=dtype, batch=batch)
    return choices.best()


@dataclass(frozen=True, eq=False)
class LeftChoices:
    """The ways to share U columns that are tried: parts of a block row, and tiles that take part.

    Attributes:
        whole: Block rows in one part, without shares.
        columns: Columns of each, int64[items].
        blocks: Number of blocks.
        tiles_per_ipu: Tiles of an IPU.
        dtype: Type of the factors.
        batch: Vectors.
    """

    whole: LeftShares
    columns: Int64
    blocks: int
    tiles_per_ipu: int
    dtype: ElementType
    batch: int

    def best(self) -> LeftShares:
        """The one with fewest cycles: products, the exchanges before and after, and sums."""
        parts = [p for p in _ROW_PARTS if p <= int(self.whole.height.min())]
        tiles = sorted({-(-self.tiles_per_ipu // n) for n in _TILE_FRACTIONS}, reverse=True)
        return min((self._shared(p, t) for p in parts for t in tiles), key=lambda pair: pair[0])[1]

    def _shared(self, parts: int, tiles: int) -> tuple[int, LeftShares]:
        """Shares of ``parts`` of each block row for ``tiles`` of the tiles, and what they cost."""
        whole, unit = self.whole, 8 // self.dtype.bytes
        edges = np.arange(parts + 1) * whole.height[:, None] // parts
        begin, height = edges[:, :-1].reshape(-1), np.diff(edges, axis=1).reshape(-1)
        ipu = np.repeat(whole.ipu, parts)

        def cycles(item: Int64, size: Int64) -> Int64:
            return product_cycles(self.dtype, None, height[item], size, self.batch)

        shares = best_cut(ipu, np.repeat(self.columns, parts), unit, tiles, cycles)
        # Tiles that take part are spread over the IPU.
        owner = ipu[shares.item]
        place = (shares.tile - owner * tiles) * self.tiles_per_ipu // tiles
        shares = replace(shares, tile=owner * self.tiles_per_ipu + place)
        made = replace(
            whole,
            parts=parts,
            shares=shares,
            ipu=ipu,
            row=np.repeat(whole.row, parts),
            begin=begin,
            height=height,
            starts=np.repeat(whole.starts, parts),
        )
        return busiest(shares, cycles(shares.item, shares.size)) + self._around(made), made

    def _around(self, left: LeftShares) -> int:
        """Cycles of the exchange of the operands, and of the sums with theirs, roughly.

        An exchange takes a cycle for each word that the busiest tile receives, or three for each piece.
        Source: machine.md §3.1, ``Exchange.fragment_cycles``.
        """
        shares = left.shares
        words = int(np.bincount(shares.tile, shares.size).max()) * self.batch * self.dtype.bytes // 4
        pieces = self.blocks * left.parts * self.batch // shares.num + 1
        depth = int(np.bincount(shares.item).max())
        rows = int(np.bincount(left.ipu, left.height).max()) * self.batch
        size = max(LEAST_PIECE, -(-rows // self.tiles_per_ipu))
        sums = int(cost.reduce_add_list(np.array(size), depth, f32, self.dtype)) + depth * max(size, _FRAGMENT_CYCLES)
        return max(words, _FRAGMENT_CYCLES * pieces) + sums


def homes_of_x(matrix: TileLowRank, right: RightShares, num_tiles: int) -> Int64:
    """Tile of the piece of x of each block column: that of its first V rows, int64[J]."""
    # Pieces of block columns without a rank lie on the first tiles.
    tile = np.arange(matrix.grid[1], dtype=np.int64) % num_tiles
    _, at = np.unique(right.shares.item, return_index=True)
    tile[right.column[::-1]] = right.shares.tile[at][::-1]
    return tile


def apart_from_sources(
    left: LeftShares, right: RightShares, homes: Int64, width: int, tiles_per_ipu: int
) -> LeftShares:
    """The same shares, on tiles that none of their operands come from.

    What comes from other tiles arrives in order, without a copy. A piece that lies on the tile already is copied
    beside them, which takes 300 cycles more than the exchange. So tiles change places until none has such a piece.
    """
    column = left.columns_of()
    share = np.repeat(np.arange(left.shares.num), left.shares.size)
    row, along = left.right[column], left.along[column]
    first, tiles = right.first, right.shares.tile
    source = homes[np.maximum(along, 0) // width]
    from_right = row >= 0
    source[from_right] = tiles[np.searchsorted(first, row[from_right], side="right") - 1]
    total = (
        int(max(left.shares.tile.max(initial=0), tiles.max(initial=0), homes.max())) // tiles_per_ipu + 1
    ) * tiles_per_ipu
    pairs = np.unique(left.shares.tile[share] * total + source)
    user, source = pairs // total, pairs % total
    place = np.arange(total)
    for step in range(1, min(tiles_per_ipu, _MOST_SWAPS)):
        bad = np.unique(user[place[user] == source])
        if not len(bad):
            break
        other = bad - bad % tiles_per_ipu + (bad + step) % tiles_per_ipu
        free = ~np.isin(other, bad) & (np.bincount(other, minlength=total)[other] == 1)
        one, two = bad[free], other[free]
        good = ~np.isin(one * total + place[two], pairs) & ~np.isin(two * total + place[one], pairs)
        one, two = one[good], two[good]
        place[one], place[two] = place[two], place[one].copy()
    return replace(left, shares=replace(left.shares, tile=place[left.shares.tile]))
