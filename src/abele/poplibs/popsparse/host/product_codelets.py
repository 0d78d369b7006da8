"""Register tiles of products with a sparse matrix: rows of a block times a panel of dense columns.

A tile is as many rows as a block has (up to eight) and ``width`` columns of the result. While the blocks of a row go
by, the tile stays in registers; each column of a block takes one row of the panel, ``width`` elements side by side, and
a number for each row of the tile. A multiply-add ends some cycles after it began, so a small tile is there ``sets``
times: blocks take turns, and the sets are added up at the end of the row.

Example: blocks of 4 × 4 and panels of 64 columns are 16 vectors of 512 bits. A block is 4 steps of 4 loads of the
panel's row, 4 numbers and 16 multiply-adds, which take 8 cycles where two are done at a time; 8 loads take 4. With
blocks of one element the tile is 4 vectors, twice, and each multiply-add waits for a load: half the rate.

Times a vector, rows of the sparse matrix are dot products: vectors run along the rows of blocks, whose lanes are added
up at the end. Single values are multiplied four at a time; the elements of the vector are loaded one by one, which
takes less time than an instruction that gathers them.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.numerics import ElementType, f32, i64, u32
from abele.poplibs.popsparse.host.tiling import Panels, tile_rows, tile_sets
from abele.poplibs.popsparse.host.walks import BlockSteps

MOST_STREAMED = 4
"""Columns up to which blocks from beyond the second-level cache are done one by one: few enough to take no time."""


@dataclass(frozen=True)
class Tiling:
    """A register tile, and what is around it.

    Attributes:
        rows: Rows of the tile.
        tiles: Tiles of a block's rows.
        depth: Columns of a block.
        row_step: Distance of a block's rows in its values.
        column_step: Distance of its columns.
        values: ``plain`` if blocks follow each other; ``placed`` if each has its place; ``gathered`` if such values of
            one element are put in order first.
        width: Columns of a panel.
        rest: Columns of the last panel, with those that are not there; 0 for none.
        there: Columns of the last panel that are there.
        sets: Tiles between which blocks take turns.
        rest_sets: The same in the last panel.
        dots: ``values`` or ``blocks`` if the dense matrix is a vector, and rows of either are dot products with it; or
            ``no``.
        streams: True if a block is done with before the next one, and its tiles go through the cache. Memory brings
            whole blocks in turn sooner than every fourth part of each.
    """

    rows: int
    tiles: int
    depth: int
    row_step: int
    column_step: int
    values: str
    width: int
    rest: int
    there: int
    sets: int
    rest_sets: int
    dots: str
    streams: bool

    @property
    def room(self) -> int:
        """Numbers of all tiles at once."""
        lanes = {"values": 4, "blocks": self.depth, "no": 0}[self.dots]
        widest = max(self.width * self.sets, self.rest * self.rest_sets, lanes)
        return self.rows * widest * (self.tiles if self.streams else 1)


def tiling_of(block: tuple[int, int], steps: BlockSteps, panels: Panels, values: str, *, far: bool = False) -> Tiling:
    """The register tile for blocks times panels.

    Args:
        block: Rows and columns of a block.
        steps: Distances in its values.
        panels: Panels of the dense matrix.
        values: As in :class:`Tiling`.
        far: True if values come from beyond the second-level cache.
    """
    height, depth = block
    rows = tile_rows(height, depth, panels.width, steps.row)
    dots = "no"
    if panels.columns == 1 and values != "placed" and steps.column == 1:
        dots = "values" if height * depth == 1 else "blocks" if depth in (4, 8, 16) else "no"
    if dots == "blocks":
        # Sums of a block row fill eight vectors at most.
        rows = min(rows, 4 if depth == 16 else 8)
    streams = far and panels.columns <= MOST_STREAMED and steps.column == 1 and values == "plain"
    streams = streams and rows < height and height % 4 == depth % 4 == 0
    # A loop of a streamed block does four rows.
    rows = 4 if streams else rows
    return Tiling(
        rows=rows,
        tiles=height // rows,
        depth=depth,
        row_step=steps.row,
        column_step=steps.column,
        values=values,
        width=panels.width,
        rest=panels.rest,
        there=panels.there,
        sets=tile_sets(rows, panels.width),
        rest_sets=tile_sets(rows, panels.rest),
        dots=dots,
        streams=streams,
    )


@macro
def _rows1(self, held, v, step, at, to, W):
    a0 = f32(held[v])
    for c in range(W):
        self.s[to + c] += a0 * self.x[at + c]


@macro
def _rows2(self, held, v, step, at, to, W):
    a0 = f32(held[v])
    a1 = f32(held[v + step])
    for c in range(W):
        t = self.x[at + c]
        self.s[to + c] += a0 * t
        self.s[to + W + c] += a1 * t


@macro
def _rows4(self, held, v, step, at, to, W):
    a0 = f32(held[v])
    a1 = f32(held[v + step])
    a2 = f32(held[v + 2 * step])
    a3 = f32(held[v + 3 * step])
    for c in range(W):
        t = self.x[at + c]
        self.s[to + c] += a0 * t
        self.s[to + W + c] += a1 * t
        self.s[to + 2 * W + c] += a2 * t
        self.s[to + 3 * W + c] += a3 * t


@macro
def _rows8(self, held, v, step, at, to, W):
    a0 = f32(held[v])
    a1 = f32(held[v + step])
    a2 = f32(held[v + 2 * step])
    a3 = f32(held[v + 3 * step])
    a4 = f32(held[v + 4 * step])
    a5 = f32(held[v + 5 * step])
    a6 = f32(held[v + 6 * step])
    a7 = f32(held[v + 7 * step])
    for c in range(W):
        t = self.x[at + c]
        self.s[to + c] += a0 * t
        self.s[to + W + c] += a1 * t
        self.s[to + 2 * W + c] += a2 * t
        self.s[to + 3 * W + c] += a3 * t
        self.s[to + 4 * W + c] += a4 * t
        self.s[to + 5 * W + c] += a5 * t
        self.s[to + 6 * W + c] += a6 * t
        self.s[to + 7 * W + c] += a7 * t


@macro
def _block(self, held, how, p, inside, stride, base, to, W):
    """Add one block, its rows from ``inside`` on, times a panel to the tile at ``to``."""
    at = i64(self.columns[p]) * stride + base
    first = i64(self.places[p]) if how.values == "placed" else p * (how.rows * how.tiles * how.depth)
    v = first + inside * how.row_step
    for k in range(how.depth):
        if how.rows == 1:
            _rows1(self, held, v + k * how.column_step, how.row_step, at=at + k * stride, to=to, W=W)
        elif how.rows == 2:
            _rows2(self, held, v + k * how.column_step, how.row_step, at=at + k * stride, to=to, W=W)
        elif how.rows == 4:
            _rows4(self, held, v + k * how.column_step, how.row_step, at=at + k * stride, to=to, W=W)
        else:
            _rows8(self, held, v + k * how.column_step, how.row_step, at=at + k * stride, to=to, W=W)


@macro
def _tile(self, held, how, begin, end, inside, stride, base, W, sets):
    """Fill the register tile with the rows from ``inside`` on of the blocks ``begin`` to ``end`` times a panel."""
    size = how.rows * W
    for c in range(sets * size):
        self.s[c] = f32(0.0)
    whole = begin + (end - begin) // sets * sets
    for p in range(begin, whole, sets):
        _block(self, held, how, p, inside=inside, stride=stride, base=base, to=0, W=W)
        if sets > 1:
            _block(self, held, how, p + 1, inside=inside, stride=stride, base=base, to=size, W=W)
        if sets > 2:
            _block(self, held, how, p + 2, inside=inside, stride=stride, base=base, to=2 * size, W=W)
            _block(self, held, how, p + 3, inside=inside, stride=stride, base=base, to=3 * size, W=W)
    if sets > 1:
        for p in range(whole, end):
            _block(self, held, how, p, inside=inside, stride=stride, base=base, to=0, W=W)
    if sets > 2:
        for c in range(2 * size):
            self.s[c] += self.s[2 * size + c]
    if sets > 1:
        for c in range(size):
            self.s[c] += self.s[size + c]


@macro
def _square(self, held, made, v, at, to, down, across, stride, W):
    """Add 4 x 4 values, from ``v`` on, times four rows of the dense matrix to as many rows of the result.

    Values of one row of the dense matrix are ``across`` apart, those of one row of the result ``down``.
    """
    a00 = f32(held[v])
    a01 = f32(held[v + down])
    a02 = f32(held[v + 2 * down])
    a03 = f32(held[v + 3 * down])
    a10 = f32(held[v + across])
    a11 = f32(held[v + down + across])
    a12 = f32(held[v + 2 * down + across])
    a13 = f32(held[v + 3 * down + across])
    a20 = f32(held[v + 2 * across])
    a21 = f32(held[v + down + 2 * across])
    a22 = f32(held[v + 2 * down + 2 * across])
    a23 = f32(held[v + 3 * down + 2 * across])
    a30 = f32(held[v + 3 * across])
    a31 = f32(held[v + down + 3 * across])
    a32 = f32(held[v + 2 * down + 3 * across])
    a33 = f32(held[v + 3 * down + 3 * across])
    for c in range(W):
        x0 = self.x[at + c]
        x1 = self.x[at + stride + c]
        x2 = self.x[at + 2 * stride + c]
        x3 = self.x[at + 3 * stride + c]
        made[to + c] += (a00 * x0 + a01 * x1) + (a02 * x2 + a03 * x3)
        made[to + W + c] += (a10 * x0 + a11 * x1) + (a12 * x2 + a13 * x3)
        made[to + 2 * W + c] += (a20 * x0 + a21 * x1) + (a22 * x2 + a23 * x3)
        made[to + 3 * W + c] += (a30 * x0 + a31 * x1) + (a32 * x2 + a33 * x3)


@macro
def _panel(self, held, how, kind, n, j, stride, base, W, there, sets):
    """The columns from ``j`` on of all rows."""
    for row in range(i64(len(self.starts)) - 1):
        begin = i64(self.starts[row])
        end = i64(self.starts[row + 1])
        if how.streams:
            for c in range(how.tiles * how.rows * W):
                self.s[c] = f32(0.0)
            for p in range(begin, end):
                first, at = p * (how.tiles * how.rows * how.depth), i64(self.columns[p]) * stride + base
                for r in range(0, how.tiles * how.rows, 4):
                    for k in range(0, how.depth, 4):
                        v, x = first + r * how.depth + k, at + k * stride
                        _square(self, held, self.s, v, x, r * W, down=1, across=how.depth, stride=stride, W=W)
        for tile in range(how.tiles):
            at = tile * how.rows * W
            if not how.streams:
                at = i64(0)
                _tile(self, held, how, begin, end, inside=tile * how.rows, stride=stride, base=base, W=W, sets=sets)
            for r in range(how.rows):
                to = ((row * how.tiles + tile) * how.rows + r) * n + j
                for c in range(there):
                    self.out[to + c] = kind(self.s[at + W * r + c])


@macro
def _value_dots(self, held, kind):
    """Rows of single values times a vector: a sum each."""
    for row in range(i64(len(self.starts)) - 1):
        begin = i64(self.starts[row])
        end = i64(self.starts[row + 1])
        whole = begin + (end - begin) // 4 * 4
        for c in range(4):
            self.s[c] = f32(0.0)
        for p in range(begin, whole, 4):
            self.s[0] += f32(held[p]) * self.x[i64(self.columns[p])]
            self.s[1] += f32(held[p + 1]) * self.x[i64(self.columns[p + 1])]
            self.s[2] += f32(held[p + 2]) * self.x[i64(self.columns[p + 2])]
            self.s[3] += f32(held[p + 3]) * self.x[i64(self.columns[p + 3])]
        self.s[0] = _lanes_sum(self, 0, 4)
        for p in range(whole, end):
            self.s[0] += f32(held[p]) * self.x[i64(self.columns[p])]
        self.out[row] = kind(self.s[0])


@macro
def _lanes_sum(self, at, lanes):
    """The sum of 4, 8 or 16 lanes."""
    if lanes == 16:
        for c in range(8):
            self.s[at + c] += self.s[at + 8 + c]
    if lanes >= 8:
        for c in range(4):
            self.s[at + c] += self.s[at + 4 + c]
    for c in range(2):
        self.s[at + c] += self.s[at + 2 + c]
    return self.s[at] + self.s[at + 1]


@macro
def _add_lanes(self, held, how, v, at, first):
    """Add up to four rows of a block, times a stretch of the vector, to their lanes."""
    for r in range(min(4, how.rows)):
        for c in range(how.depth):
            self.s[(first + r) * how.depth + c] += f32(held[v + r * how.depth + c]) * self.x[at + c]


@macro
def _put_sums(self, how, kind, to, first):
    """The results of up to four rows of a block."""
    for r in range(min(4, how.rows)):
        self.out[to + r] = kind(_lanes_sum(self, (first + r) * how.depth, how.depth))


@macro
def _block_dots(self, held, how, kind):
    """Rows of blocks times a vector: vectors run along the rows of a block, and their lanes are added up at the end.

    Loops over more than four rows are not unrolled, so eight are two of four.
    """
    for row in range(i64(len(self.starts)) - 1):
        for tile in range(how.tiles):
            for i in range(how.rows * how.depth):
                self.s[i] = f32(0.0)
            for p in range(i64(self.starts[row]), i64(self.starts[row + 1])):
                at = i64(self.columns[p])
                v = (p * how.tiles + tile) * (how.rows * how.depth)
                _add_lanes(self, held, how, v, at, first=0)
                if how.rows == 8:
                    _add_lanes(self, held, how, v + 4 * how.depth, at, first=4)
            to = (row * how.tiles + tile) * how.rows
            _put_sums(self, how, kind, to, first=0)
            if how.rows == 8:
                _put_sums(self, how, kind, to + 4, first=4)


@macro
def _streamed_dots(self, held, how, kind):
    """As :func:`_block_dots`, block by block."""
    size = how.tiles * how.rows * how.depth
    for row in range(i64(len(self.starts)) - 1):
        for i in range(how.tiles * how.rows * how.depth):
            self.s[i] = f32(0.0)
        for p in range(i64(self.starts[row]), i64(self.starts[row + 1])):
            at = i64(self.columns[p])
            for first in range(0, how.tiles * how.rows, how.rows):
                _add_lanes(self, held, how, p * size + first * how.depth, at, first=first)
        for first in range(0, how.tiles * how.rows, how.rows):
            _put_sums(self, how, kind, row * (how.tiles * how.rows) + first, first=first)


@macro
def all_products(self, held, how, kind):
    """All columns of all rows."""
    if how.dots == "values":
        _value_dots(self, held, kind)
    elif how.dots == "blocks":
        if how.streams:
            _streamed_dots(self, held, how, kind)
        else:
            _block_dots(self, held, how, kind)
    else:
        _all_panels(self, held, how, kind)


@macro
def _all_panels(self, held, how, kind):
    """All columns of all rows, panel by panel."""
    n = i64(self.n)
    whole = n // how.width
    if how.rest > 0:
        whole = (n - how.there) // how.width
    for panel in range(whole):
        j = panel * how.width
        base = panel * i64(self.jump)
        _panel(
            self,
            held,
            how,
            kind,
            n=n,
            j=j,
            stride=i64(self.stride),
            base=base,
            W=how.width,
            there=how.width,
            sets=how.sets,
        )
    if how.rest > 0:
        last = n - how.there
        behind = whole * i64(self.jump)
        _panel(
            self,
            held,
            how,
            kind,
            n=n,
            j=last,
            stride=i64(self.last),
            base=behind,
            W=how.rest,
            there=how.there,
            sets=how.rest_sets,
        )


@cache
def product_codelet(how: Tiling, held: ElementType, made: ElementType, index: ElementType) -> type:
    """Rows of a sparse matrix times panels of a dense one.

    Args:
        how: The register tile.
        held: Element type of the sparse matrix's values.
        made: Of the result.
        index: Of the columns, which are counted in elements.
    """

    @codelet(name="HostSparseProduct")
    class HostSparseProduct(Vertex):
        starts: Vector[u32]
        columns: Vector[index]
        if how.values != "plain":
            places: Vector[u32]
        values: Input[Vector[held]]
        if how.values == "gathered":
            ordered: InOut[Vector[f32]]
        x: Input[Vector[f32]]
        out: Output[Vector[made]]
        s: InOut[Vector[f32]]
        n: u32
        stride: u32
        last: u32
        jump: u32

        def compute(self):
            if how.values == "gathered":
                for p in range(i64(len(self.places))):
                    self.ordered[p] = f32(self.values[i64(self.places[p])])
                all_products(self, self.ordered, how, made)
            else:
                all_products(self, self.values, how, made)

    return HostSparseProduct


# The transpose, without another order of its values.


@macro
def _spread_values(self, row, first, width):
    """Add a row of G, times each value of a row of S, to the rows of the result that the values' columns are."""
    begin = i64(self.starts[row])
    end = i64(self.starts[row + 1])
    whole = begin
    if width == 1:
        whole += (end - begin) // 4 * 4
        a = self.x[row]
        for p in range(begin, whole, 4):
            # Columns of a row differ, so none of these sums waits for another.
            t0 = self.out[i64(self.columns[p])] + f32(self.values[first + p]) * a
            t1 = self.out[i64(self.columns[p + 1])] + f32(self.values[first + p + 1]) * a
            t2 = self.out[i64(self.columns[p + 2])] + f32(self.values[first + p + 2]) * a
            t3 = self.out[i64(self.columns[p + 3])] + f32(self.values[first + p + 3]) * a
            self.out[i64(self.columns[p])] = t0
            self.out[i64(self.columns[p + 1])] = t1
            self.out[i64(self.columns[p + 2])] = t2
            self.out[i64(self.columns[p + 3])] = t3
    for p in range(whole, end):
        a = f32(self.values[first + p])
        to = i64(self.columns[p]) * width
        for c in range(width):
            self.out[to + c] += a * self.x[row * width + c]


@macro
def _spread_vector(self, v, at, to, wide):
    """Add four rows of a block, from the value ``v`` on, times as many elements of G to its part of the result."""
    for k in range(wide):
        low = f32(self.values[v + k]) * self.x[at] + f32(self.values[v + wide + k]) * self.x[at + 1]
        high = f32(self.values[v + 2 * wide + k]) * self.x[at + 2]
        self.out[to + k] += low + (high + f32(self.values[v + 3 * wide + k]) * self.x[at + 3])


@macro
def _spread_block(self, v, at, to, high, wide, W):
    """Add a block of fours times rows of G to the block's rows of the result."""
    if W == 1:
        for r in range(0, high, 4):
            _spread_vector(self, v + r * wide, at + r, to, wide=wide)
    else:
        for k in range(0, wide, 4):
            for r in range(0, high, 4):
                first, row = v + r * wide + k, at + r * W
                _square(self, self.values, self.out, first, row, to + k * W, down=wide, across=1, stride=W, W=W)


@cache
def scatter_codelet(held: ElementType, index: ElementType, width: int, block: tuple[int, int]) -> type:
    """Some block rows of Sᵀ·G, by values in the order of S's rows.

    Rows of G stay in registers while they are added, times values, to the rows of the result that the values' columns
    name.

    Args:
        held: Element type of the values.
        index: Of the columns, counted from the first that the vertex has, in blocks.
        width: Columns of G and of the result.
        block: Rows and columns of a block: one, or a multiple of four.
    """
    high, wide = block
    area = high * wide

    @codelet(name="HostSparseScatter")
    class HostSparseScatter(Vertex):
        starts: Vector[u32]
        firsts: Vector[u32]
        columns: Vector[index]
        values: Input[Vector[held]]
        x: Input[Vector[f32]]
        out: InOut[Vector[f32]]

        def compute(self):
            for i in range(i64(len(self.out))):
                self.out[i] = f32(0.0)
            for row in range(i64(len(self.firsts))):
                first = i64(self.firsts[row]) - i64(self.starts[row])
                if area == 1:
                    _spread_values(self, row, first, width=width)
                else:
                    for p in range(i64(self.starts[row]), i64(self.starts[row + 1])):
                        to = i64(self.columns[p]) * (wide * width)
                        at = row * (high * width)
                        _spread_block(self, (first + p) * area, at, to, high=high, wide=wide, W=width)

    return HostSparseScatter


@cache
def total_codelet(parts: int) -> type:
    """The sum of ``parts`` matrices that lie one after the other, each ``apart`` elements long."""

    @codelet(name="HostSparseTotal")
    class HostSparseTotal(Vertex):
        x: Input[Vector[f32]]
        out: Output[Vector[f32]]
        first: u32
        apart: u32

        def compute(self):
            first = i64(self.first)
            apart = i64(self.apart)
            for i in range(i64(len(self.out))):
                total = self.x[first + i]
                for part in range(1, parts):
                    total += self.x[first + part * apart + i]
                self.out[i] = total

    return HostSparseTotal
