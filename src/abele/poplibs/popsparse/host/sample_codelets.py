"""Products of two dense matrices at the places of a sparse one: sums over the dense matrices' columns.

Blocks are register tiles like those of products. Both matrices are there by their columns: all columns of the rows that
belong to a block, one after the other, so that each step is an outer product of a few numbers of each.

Single values are dot products of two rows. Their elements lie side by side, so vectors run along the sum, and what is
left at the end is a vector whose lanes have to be added up. Four values of one row of G are made at a time. Sums of up
to 16 columns have four lanes, and those of a whole row of the matrix are added up together, as the values then fill
the lanes.

Example: 64 columns and four values are 4 loads of G, 16 of X and 16 multiply-adds of 512 bits; adding up 32 lanes of
each takes about as many instructions again. Eight columns are two multiply-adds of four lanes.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, macro
from abele.numerics import ElementType, f32, i64, u32

LANES = 32
"""Lanes of long sums."""
TOGETHER = 4
"""Values whose long sums are made at the same time: they share a row of G, and none waits for another."""
FEW = 4
"""Lanes of short sums."""


@dataclass(frozen=True)
class Sampling:
    """Blocks of a sampled product.

    Attributes:
        rows: Rows of a register tile.
        tiles: Tiles of a block's rows.
        width: Columns of a block.
        strips: Strips of a block's columns that a tile has one of.
        sets: Tiles between which columns of the dense matrices take turns: 1 or 4.
        is_plain: True if blocks follow each other without gaps; others have zeros between them.
    """

    rows: int
    tiles: int
    width: int
    strips: int
    sets: int
    is_plain: bool


@macro
def _outer1(self, g, x, to, W):
    a0 = self.g[g]
    for c in range(W):
        self.s[to + c] += a0 * self.x[x + c]


@macro
def _outer2(self, g, x, to, W):
    a0 = self.g[g]
    a1 = self.g[g + 1]
    for c in range(W):
        t = self.x[x + c]
        self.s[to + c] += a0 * t
        self.s[to + W + c] += a1 * t


@macro
def _outer4(self, g, x, to, W):
    a0 = self.g[g]
    a1 = self.g[g + 1]
    a2 = self.g[g + 2]
    a3 = self.g[g + 3]
    for c in range(W):
        t = self.x[x + c]
        self.s[to + c] += a0 * t
        self.s[to + W + c] += a1 * t
        self.s[to + 2 * W + c] += a2 * t
        self.s[to + 3 * W + c] += a3 * t


@macro
def _outer8(self, g, x, to, W):
    a0 = self.g[g]
    a1 = self.g[g + 1]
    a2 = self.g[g + 2]
    a3 = self.g[g + 3]
    a4 = self.g[g + 4]
    a5 = self.g[g + 5]
    a6 = self.g[g + 6]
    a7 = self.g[g + 7]
    for c in range(W):
        t = self.x[x + c]
        self.s[to + c] += a0 * t
        self.s[to + W + c] += a1 * t
        self.s[to + 2 * W + c] += a2 * t
        self.s[to + 3 * W + c] += a3 * t
        self.s[to + 4 * W + c] += a4 * t
        self.s[to + 5 * W + c] += a5 * t
        self.s[to + 6 * W + c] += a6 * t
        self.s[to + 7 * W + c] += a7 * t


@macro
def _outer(self, how, g, x, to, W):
    if how.rows == 1:
        _outer1(self, g, x, to, W=W)
    elif how.rows == 2:
        _outer2(self, g, x, to, W=W)
    elif how.rows == 4:
        _outer4(self, g, x, to, W=W)
    else:
        _outer8(self, g, x, to, W=W)


@macro
def _block(self, how, g, x, n, whole, height, W):
    """A register tile: the sum over all columns."""
    for c in range(how.sets * how.rows * W):
        self.s[c] = f32(0.0)
    for j in range(0, whole, how.sets):
        _outer(self, how, g + j * height, x + j * how.width, to=0, W=W)
        if how.sets > 1:
            _outer(self, how, g + (j + 1) * height, x + (j + 1) * how.width, to=how.rows * W, W=W)
            _outer(self, how, g + (j + 2) * height, x + (j + 2) * how.width, to=2 * how.rows * W, W=W)
            _outer(self, how, g + (j + 3) * height, x + (j + 3) * how.width, to=3 * how.rows * W, W=W)
    if how.sets > 1:
        for j in range(whole, n):
            _outer(self, how, g + j * height, x + j * how.width, to=0, W=W)
        for c in range(how.rows * W):
            low = self.s[c] + self.s[how.rows * W + c]
            self.s[c] = low + (self.s[2 * how.rows * W + c] + self.s[3 * how.rows * W + c])


@cache
def sample_blocks_codelet(how: Sampling, made: ElementType) -> type:
    """Blocks of G·Xᵀ, in runs of one block row; both matrices in panels as wide as a block.

    Args:
        how: The blocks.
        made: Element type of the result.
    """

    @codelet(name="HostSampleBlocks")
    class HostSampleBlocks(Vertex):
        rows: Vector[u32]
        starts: Vector[u32]
        columns: Vector[u32]
        if not how.is_plain:
            places: Vector[u32]
        g: Input[Vector[f32]]
        x: Input[Vector[f32]]
        out: Output[Vector[made]]
        s: InOut[Vector[f32]]
        n: u32

        def compute(self):
            n = i64(self.n)
            width = how.width // how.strips
            height = how.rows * how.tiles
            whole = n // how.sets * how.sets
            if not how.is_plain:
                for i in range(i64(len(self.out))):
                    self.out[i] = made(0.0)
            for run in range(i64(len(self.rows))):
                left = i64(self.rows[run]) * n
                for p in range(i64(self.starts[run]), i64(self.starts[run + 1])):
                    right = i64(self.columns[p]) * n
                    first = p * (height * how.width) if how.is_plain else i64(self.places[p])
                    for tile in range(how.tiles):
                        for strip in range(how.strips):
                            g = left + tile * how.rows
                            x = right + strip * width
                            _block(self, how, g, x, n, whole=whole, height=height, W=how.width // how.strips)
                            for r in range(how.rows):
                                to = first + (tile * how.rows + r) * how.width + strip * width
                                for c in range(how.width // how.strips):
                                    self.out[to + c] = made(self.s[r * width + c])

    return HostSampleBlocks


@macro
def _few_lanes(self, left, right, to, n, lanes):
    """Partial sums of one value, over ``n`` columns, at ``to``."""
    for c in range(lanes):
        self.lanes[c] = self.g[left + c] * self.x[right + c]
    for j in range(lanes, n, lanes):
        for c in range(lanes):
            self.lanes[c] += self.g[left + j + c] * self.x[right + j + c]
    for c in range(lanes):
        self.s[to + c] = self.lanes[c]


@macro
def _lanes_sum(self, at, lanes):
    """The sum of one, two or four lanes."""
    if lanes == 1:
        total = self.s[at]
    elif lanes == 2:
        total = self.s[at] + self.s[at + 1]
    else:
        total = (self.s[at] + self.s[at + 2]) + (self.s[at + 1] + self.s[at + 3])
    return total


@macro
def one_value(self, left, right, n):
    """The product of a row of G and a row of X, from ``left`` and ``right`` on."""
    total = f32(0.0)
    for j in range(n):
        total += self.g[left + j] * self.x[right + j]
    return total


@macro
def four_values(self, left, x0, x1, x2, x3, n):
    """Products of a row of G and four rows of X, from ``left``, ``x0`` to ``x3`` on."""
    t0 = f32(0.0)
    t1 = f32(0.0)
    t2 = f32(0.0)
    t3 = f32(0.0)
    for j in range(n):
        t = self.g[left + j]
        t0 += t * self.x[x0 + j]
        t1 += t * self.x[x1 + j]
        t2 += t * self.x[x2 + j]
        t3 += t * self.x[x3 + j]
    return t0, t1, t2, t3


@macro
def square(self, left, right, n):
    """Products of two rows of G, from ``left`` on, and two of X, from ``right`` on: row by row."""
    t0 = f32(0.0)
    t1 = f32(0.0)
    t2 = f32(0.0)
    t3 = f32(0.0)
    for j in range(n):
        t0 += self.g[left + j] * self.x[right + j]
        t1 += self.g[left + j] * self.x[right + n + j]
        t2 += self.g[left + n + j] * self.x[right + j]
        t3 += self.g[left + n + j] * self.x[right + n + j]
    return t0, t1, t2, t3


@cache
def sample_values_codelet(few: int, is_plain: bool, made: ElementType) -> type:
    """Single values of G·Xᵀ, in runs of one row; both matrices row-major, rows whole vectors long.

    Args:
        few: Columns of both if these are few: one, two or a multiple of four; 0 if they are many.
        is_plain: True if values follow each other without gaps.
        made: Element type of the result.
    """

    lanes = min(few, FEW)

    @codelet(name="HostSampleValues")
    class HostSampleValues(Vertex):
        rows: Vector[u32]
        starts: Vector[u32]
        columns: Vector[u32]
        if not is_plain:
            places: Vector[u32]
        g: Input[Vector[f32]]
        x: Input[Vector[f32]]
        out: Output[Vector[made]]
        s: InOut[Vector[f32]]
        lanes: InOut[Vector[f32]]
        n: u32

        def compute(self):
            n = i64(self.n)
            if not is_plain:
                for i in range(i64(len(self.out))):
                    self.out[i] = made(0.0)
            for run in range(i64(len(self.rows))):
                left = i64(self.rows[run]) * n
                begin = i64(self.starts[run])
                end = i64(self.starts[run + 1])
                if few > 0:
                    for p in range(begin, end):
                        _few_lanes(self, left, i64(self.columns[p]) * few, (p - begin) * lanes, n=few, lanes=lanes)
                    for e in range(end - begin):
                        if is_plain:
                            self.out[begin + e] = made(_lanes_sum(self, lanes * e, lanes))
                        else:
                            self.out[i64(self.places[begin + e])] = made(_lanes_sum(self, lanes * e, lanes))
                else:
                    whole = begin + (end - begin) // TOGETHER * TOGETHER
                    for p in range(begin, whole, TOGETHER):
                        x0, x1 = i64(self.columns[p]) * n, i64(self.columns[p + 1]) * n
                        x2, x3 = i64(self.columns[p + 2]) * n, i64(self.columns[p + 3]) * n
                        t0, t1, t2, t3 = four_values(self, left, x0, x1, x2=x2, x3=x3, n=n)
                        self.out[p if is_plain else i64(self.places[p])] = made(t0)
                        self.out[p + 1 if is_plain else i64(self.places[p + 1])] = made(t1)
                        self.out[p + 2 if is_plain else i64(self.places[p + 2])] = made(t2)
                        self.out[p + 3 if is_plain else i64(self.places[p + 3])] = made(t3)
                    for p in range(whole, end):
                        total = one_value(self, left, i64(self.columns[p]) * n, n)
                        self.out[p if is_plain else i64(self.places[p])] = made(total)

    return HostSampleValues


@cache
def sample_squares_codelet(how: Sampling, made: ElementType) -> type:
    """Blocks of G·Xᵀ, in runs of one block row; both matrices row-major, rows whole vectors long.

    Four values at a time, of two rows and two columns, share what they load.

    Args:
        how: The blocks, of even rows and columns.
        made: Element type of the result.
    """

    @codelet(name="HostSampleSquares")
    class HostSampleSquares(Vertex):
        rows: Vector[u32]
        starts: Vector[u32]
        columns: Vector[u32]
        if not how.is_plain:
            places: Vector[u32]
        g: Input[Vector[f32]]
        x: Input[Vector[f32]]
        out: Output[Vector[made]]
        n: u32

        def compute(self):
            n = i64(self.n)
            height = how.rows * how.tiles
            if not how.is_plain:
                for i in range(i64(len(self.out))):
                    self.out[i] = made(0.0)
            for run in range(i64(len(self.rows))):
                for p in range(i64(self.starts[run]), i64(self.starts[run + 1])):
                    first = p * (height * how.width) if how.is_plain else i64(self.places[p])
                    for r in range(0, height, 2):
                        left = (i64(self.rows[run]) + r) * n
                        for c in range(0, how.width, 2):
                            right = (i64(self.columns[p]) + c) * n
                            t0, t1, t2, t3 = square(self, left, right, n)
                            to = first + r * how.width + c
                            self.out[to] = made(t0)
                            self.out[to + 1] = made(t1)
                            self.out[to + how.width] = made(t2)
                            self.out[to + how.width + 1] = made(t3)

    return HostSampleSquares
