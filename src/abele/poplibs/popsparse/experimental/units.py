"""Units of work: products of one block of the sparse matrix with a piece of a dense one.

A product dense × sparse → dense cuts the left operand's rows into *strips*; a unit is a block of the right operand
times one strip. A product dense × dense → sparse cuts the inner dimension into *chunks*; a unit is a block of the
result over one chunk. A *vertex* has the units of one output, which are summed, or those that read the same weights,
which are swept one after the other.

Example: 64 × 128 · 128 × 96 in blocks of 16 with 12 blocks held and two strips are 24 units of 32 positions; three of
them in one column of one strip, on one tile, are a vertex of 48 in-channels, 16 out-channels and 32 positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.arrays import Int64
from abele.poplibs.popsparse.experimental.params import BSMatMulParams


def even_parts(total: int, parts: int) -> Int64:
    """Bounds of ``parts`` nearly equal ranges of ``total``, int64[parts + 1]."""
    return np.arange(parts + 1, dtype=np.int64) * total // parts


@dataclass(frozen=True)
class BlockUnits:
    """Units of a product, as arrays; all are int64[units].

    Attributes:
        params: The product.
        parts: Strips of rows, or chunks of the inner dimension, in each group.
        block: Held block of each, in the order of the sparse tensor.
        group: Its group.
        part: Its strip or chunk.
        down: Block row in its group: of the inner dimension, or of the result's rows.
        across: Block column of the result.
    """

    params: BSMatMulParams
    parts: int
    block: Int64
    group: Int64
    part: Int64
    down: Int64
    across: Int64

    @staticmethod
    def of(params: BSMatMulParams, parts: int) -> BlockUnits:
        """All units of a product, held blocks in order and the parts of each after each other."""
        rows, columns = block_places(params)
        per_group = params.pattern.grid[0] // params.numGroups
        # A block's group follows from its stored row, before the matrix is turned.
        group = params.pattern.rows // per_group
        n = params.pattern.num_blocks
        part = np.tile(np.arange(parts, dtype=np.int64), n)
        block = np.repeat(np.arange(n, dtype=np.int64), parts)
        return BlockUnits(params, parts, block, group=group[block], part=part, down=rows[block], across=columns[block])

    def take(self, chosen: Int64) -> BlockUnits:
        """Some units."""
        columns = (self.block, self.group, self.part, self.down, self.across)
        return BlockUnits(self.params, self.parts, *(c[chosen] for c in columns))

    @property
    def num(self) -> int:
        """Number of units."""
        return len(self.block)

    @cached_property
    def grid(self) -> tuple[int, int, int]:
        """Blocks of a group along m, k and n."""
        (m, k, n), (bm, bk, bn) = self.params.dim, self.params.blockSize
        return m // bm, k // bk, n // bn

    @cached_property
    def bounds(self) -> Int64:
        """First block of each strip or chunk, and the end of the last, int64[parts + 1]."""
        down, inner, _ = self.grid
        return even_parts(inner if self.params.isResultSparse else down, self.parts)

    @cached_property
    def extent(self) -> Int64:
        """Elements of each unit's part: rows of its strip, or its share of the inner dimension."""
        size = self.params.blockSize[1 if self.params.isResultSparse else 0]
        return np.asarray(np.diff(self.bounds)[self.part] * size, np.int64)

    @cached_property
    def x(self) -> Int64:
        """Number of the piece of the left operand that each reads."""
        height = self.grid[0] if self.params.isResultSparse else self.grid[1]
        return (self.group * height + self.down) * self.parts + self.part

    @cached_property
    def w(self) -> Int64:
        """Number of the piece of the right operand that each reads."""
        if not self.params.isResultSparse:
            return self.block
        return (self.group * self.grid[2] + self.across) * self.parts + self.part

    @cached_property
    def out(self) -> Int64:
        """Number of the output that each adds to: a strip of a block column, or a held block."""
        if self.params.isResultSparse:
            return self.block
        return (self.group * self.grid[2] + self.across) * self.parts + self.part

    @cached_property
    def together(self) -> Int64:
        """Units of one number become one vertex where they are on one tile: those of one output, or of one w."""
        return self.w if self.params.isResultSparse else self.out

    @cached_property
    def x_elements(self) -> Int64:
        """Elements of each unit's piece of the left operand."""
        return self.extent * self.params.blockSize[0 if self.params.isResultSparse else 1]

    @cached_property
    def w_elements(self) -> Int64:
        """Elements of each unit's piece of the right operand."""
        _, bk, bn = self.params.blockSize
        return self.extent * bn if self.params.isResultSparse else np.full(self.num, bk * bn, np.int64)

    @cached_property
    def out_elements(self) -> Int64:
        """Elements of the output that each adds to."""
        bm, _, bn = self.params.blockSize
        return np.full(self.num, bm * bn, np.int64) if self.params.isResultSparse else self.extent * bn


def block_places(params: BSMatMulParams) -> tuple[Int64, Int64]:
    """Row and column of each held block in its group, as the product reads the matrix; int64[blocks] each."""
    per_group = params.pattern.grid[0] // params.numGroups
    rows, columns = params.pattern.rows % per_group, params.pattern.columns
    return (columns, rows) if params.rhsNeedTranspose else (rows, columns)
