"""Register tiles of products with a sparse matrix: rows of a block times a panel of dense columns.

A tile is as many rows as a block has (up to eight) and ``width`` columns of the result. While the blocks of a row go
by, the tile stays in registers; each column of a block takes one row of the panel, ``width`` elements side by side, and
a number for each row of the tile. A multiply-add ends some cycles after it began, so a small tile is there ``sets``
times: blocks take turns, and the sets are added up at the end of the row.

Example: blocks of 4 × 4 and panels of 64 columns are 16 vectors of 512 bits. A block is 4 steps of 4 loads of the
panel's row, 4 numbers and 16 multiply-adds, which take 8 cycles where two are done at a time; 8 loads take 4. With
blocks of one element the tile is 4 vectors, twice, and each multiply-add waits for a load: half the rate.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.numerics import ElementType, f32, i64, u32


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
def _panel(self, held, how, kind, n, j, stride, base, W, there, sets):
    """The columns from ``j`` on of all rows."""
    for row in range(i64(len(self.starts)) - 1):
        begin = i64(self.starts[row])
        end = i64(self.starts[row + 1])
        for tile in range(how.tiles):
            _tile(self, held, how, begin, end, inside=tile * how.rows, stride=stride, base=base, W=W, sets=sets)
            for r in range(how.rows):
                to = ((row * how.tiles + tile) * how.rows + r) * n + j
                for c in range(there):
                    self.out[to + c] = kind(self.s[W * r + c])


@macro
def all_panels(self, held, how, kind):
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
                all_panels(self, self.ordered, how, made)
            else:
                all_panels(self, self.values, how, made)

    return HostSparseProduct


# The transpose of a matrix of single values, without another order of them.


@cache
def scatter_codelet(held: ElementType, index: ElementType, width: int) -> type:
    """Some rows of Sᵀ·G, by values in the order of S's rows.

    A row of G stays in registers while it is added, times a value each, to the rows of the result that the values'
    columns name.

    Args:
        held: Element type of the values.
        index: Of the columns, counted from the first that the vertex has.
        width: Columns of G and of the result.
    """

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
                at = row * width
                begin = i64(self.starts[row])
                first = i64(self.firsts[row]) - begin
                for p in range(begin, i64(self.starts[row + 1])):
                    a = f32(self.values[first + p])
                    to = i64(self.columns[p]) * width
                    for c in range(width):
                        self.out[to + c] += a * self.x[at + c]

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
