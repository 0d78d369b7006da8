"""The supersteps of a product, as placed vertices: right factors, left factors, sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.graph import Execute, Graph, Regions, Sequence, Tensor, boxes
from abele.numerics import ElementType, f32
from abele.poplibs.lowrank.codelets import products_codelet, sums_codelet
from abele.poplibs.lowrank.cut import within
from abele.poplibs.lowrank.layout import LEAST_PIECE
from abele.poplibs.lowrank.operator import LowRankOperator, left_stretches, right_stretches, stretches, stride_of


@dataclass(frozen=True, eq=False)
class PartialResults:
    """Partial results [batch, height] in one variable, each of an item.

    Attributes:
        variable: The variable, f32.
        begin: First element of each, int64[n].
        item: Item of the sum that each belongs to, int64[n].
    """

    variable: Tensor
    begin: Int64
    item: Int64


@dataclass(frozen=True, eq=False)
class LowRankSteps:
    """One product that is being built.

    Attributes:
        graph: The graph.
        operator: The operator.
        x: Vectors [batch, N].
        y: Results [batch, M], mapped by the sums.
    """

    graph: Graph
    operator: LowRankOperator
    x: Tensor
    y: Tensor

    @property
    def batch(self) -> int:
        """Number of vectors."""
        return self.x.shape[0]

    @property
    def tiles_per_ipu(self) -> int:
        """Tiles of an IPU."""
        return self.graph.num_tiles // self.graph.system.num_ipus

    @cached_property
    def pieces_of_x(self) -> Regions:
        """The piece of x of each block column that is multiplied on an IPU, [batch, width] each."""
        matrix, column = self.operator.matrix, self.operator.right.column
        start = np.stack([np.zeros_like(column), column * matrix.tile[1]], 1)
        return boxes(self.x, start, np.stack([np.full_like(column, self.batch), matrix.widths[column]], 1))

    @cached_property
    def rows_of_y(self) -> tuple[Int64, Int64]:
        """First row of y and rows of each part of a block row; the items of the last sums."""
        matrix, parts = self.operator.matrix, self.operator.left.parts
        edges = np.arange(parts + 1) * matrix.heights[:, None] // parts
        first = np.arange(matrix.grid[0])[:, None] * matrix.tile[0] + edges[:, :-1]
        return first.reshape(-1), np.diff(edges, axis=1).reshape(-1)

    @cached_property
    def part_of(self) -> Int64:
        """Part of a block row that each item of the left shares is, by its number in :attr:`rows_of_y`."""
        left = self.operator.left
        return left.row * left.parts + np.arange(len(left.row)) % left.parts

    def emit(self, body: Sequence) -> None:
        """Append the supersteps."""
        operator, left = self.operator, self.operator.left
        z = self.variable("z", operator.dtype, len(operator.right.source))
        heights = left.height[left.shares.item]
        partials = self.variable("partials", f32, int(heights.sum()))
        self._right(body, z)
        first = operator.right.first * self.batch
        self._left(body, partials, self.operands(z, first, operator.right.first, operator.right.shares.size))
        begin = (np.cumsum(heights) - heights) * self.batch
        if operator.split == "rows" or self.graph.system.num_ipus == 1:
            self._sum_into_y(body, PartialResults(partials, begin, self.part_of[left.shares.item]))
        else:
            sums = self.variable("sums", f32, int(left.height.sum()))
            at = (np.cumsum(left.height) - left.height) * self.batch
            self._sum_on_ipus(body, PartialResults(partials, begin, left.shares.item), sums, at)
            self._sum_into_y(body, PartialResults(sums, at, self.part_of))

    def variable(self, name: str, dtype: ElementType, rows: int, **where: str) -> Tensor:
        """A variable of ``rows`` for each vector, mapped nowhere unless ``map`` is given."""
        return self.graph.variable(dtype, (rows * self.batch,), name=name, **where)

    # --- the first superstep -----------------------------------------------------------------------------------------

    def _right(self, body: Sequence, z: Tensor) -> None:
        """Products of the V rows with the pieces of x."""
        operator, right = self.operator, self.operator.right
        shares = right.shares
        if not shares.num:
            return
        out = stretches(z, right.first * self.batch, shares.size * self.batch)
        self.graph.map_regions(out, shares.tile)
        width = operator.matrix.widths[right.column[shares.item]]
        cs = self.graph.compute_set("right")
        cs.vertices(
            products_codelet(operator.dtype, operator.dtype),
            tile=shares.tile,
            m=stretches(operator.v, *right_stretches(operator.matrix, right, operator.dtype)),
            x=(self.pieces_of_x, shares.item),
            out=out,
            rows=shares.size,
            columns=width,
            stride=stride_of(width, operator.dtype),
            batch=self.batch,
        )
        body.add(Execute(cs))

    # --- the second superstep ----------------------------------------------------------------------------------------

    def operands(self, z: Tensor, begin: Int64, first: Int64, rows: Int64) -> Regions:
        """Operands [batch, columns] of each share of U columns: products of V rows, and elements of x.

        Args:
            z: Products of V rows, in arrays [batch, rows].
            begin: First element of each array in ``z``.
            first: Row of V that each array begins with, rising.
            rows: Rows of each.
        """
        left = self.operator.left
        size = left.shares.size
        inner, share = within(size * self.batch), np.repeat(np.arange(len(size)), size * self.batch)
        vector, place = inner // size[share], inner % size[share]
        column = left.starts[left.shares.item[share]] + left.shares.first[share] + place
        row, along = left.right[column], left.along[column]
        address = np.empty_like(row)
        of_x = row < 0
        address[of_x] = self.x.addresses()[vector[of_x], along[of_x]]
        row, vector = row[~of_x], vector[~of_x]
        array = np.searchsorted(first, row, side="right") - 1
        base = int(z.intervals()[0][0]) if z.size else 0
        address[~of_x] = base + begin[array] + vector * rows[array] + row - first[array]
        given = z if z.size else self.x
        return Regions.from_intervals(given, share, address, np.ones_like(address), len(size))

    def _left(self, body: Sequence, partials: Tensor, operands: Regions) -> None:
        """Products of the U columns, and of dense blocks, as partial results [batch, rows]."""
        if not self.operator.left.shares.num:
            return
        tile = self.operator.left.shares.tile
        cs = self.graph.compute_set("left")
        fields = self.left_fields(partials, operands)
        self.graph.map_regions(fields["out"], tile)
        cs.vertices(products_codelet(self.operator.dtype, f32), tile=tile, **fields)
        body.add(Execute(cs))

    def left_fields(self, partials: Tensor, operands: Regions) -> dict[str, Any]:
        """Fields of the vertices of the second superstep."""
        operator, shares = self.operator, self.operator.left.shares
        height = operator.left.height[shares.item]
        return {
            "m": stretches(operator.u, *left_stretches(operator.left, operator.dtype)),
            "x": operands,
            "out": stretches(partials, (np.cumsum(height) - height) * self.batch, height * self.batch),
            "rows": height,
            "columns": shares.size,
            "stride": stride_of(shares.size, operator.dtype),
            "batch": self.batch,
        }

    # --- sums --------------------------------------------------------------------------------------------------------

    def _sum_on_ipus(self, body: Sequence, arrays: PartialResults, sums: Tensor, begin: Int64) -> None:
        """Sums of each IPU's partial results, into arrays [batch, height] of ``sums``."""
        left = self.operator.left
        item, vector, first, size = self._pieces(left.height, np.bincount(left.ipu, left.height).max(initial=0))
        out = stretches(sums, begin[item] + vector * left.height[item] + first, size)
        tile = self._spread(left.ipu[item])
        self._emit_sums(body, arrays, left.height, (item, vector, first, size), out=out, tile=tile)

    def _sum_into_y(self, body: Sequence, arrays: PartialResults) -> None:
        """Sums of all partial results of each row of y."""
        start, height = self.rows_of_y
        by_rows = self.operator.split == "rows" and self.graph.system.num_ipus > 1
        ipu = np.zeros(len(height), np.int64)
        ipu[self.part_of] = self.operator.left.ipu
        ipus = self.graph.system.num_ipus
        total = np.bincount(ipu, height).max() if by_rows else -(-height.sum() // ipus)
        item, vector, first, size = self._pieces(height, int(total))
        out = stretches(self.y, vector * self.y.shape[1] + start[item] + first, size)
        if by_rows or ipus == 1:
            tile = self._spread(ipu[item])
        else:
            tile = np.arange(len(item)) * min(self.graph.num_tiles, len(item)) // len(item)
        self._emit_sums(body, arrays, height, (item, vector, first, size), out=out, tile=tile)

    def _pieces(self, height: Int64, rows_per_ipu: int) -> tuple[Int64, Int64, Int64, Int64]:
        """Cut every vector of every item: item, vector, first row within the item, rows."""
        each = max(LEAST_PIECE, -(-int(rows_per_ipu) * self.batch // self.tiles_per_ipu))
        each = -(-each // LEAST_PIECE) * LEAST_PIECE
        count = -(-height // each)
        item = np.repeat(np.arange(len(height)), count * self.batch)
        inner = within(count * self.batch)
        vector, number = inner // count[item], inner % count[item]
        return item, vector, number * each, np.minimum(each, height[item] - number * each)

    def _spread(self, ipu: Int64) -> Int64:
        """Tiles of pieces that lie IPU after IPU, over all tiles of each."""
        count = np.bincount(ipu, minlength=self.graph.system.num_ipus)
        order = np.argsort(ipu, kind="stable")
        number = np.empty_like(ipu)
        number[order] = within(count)
        tiles = np.minimum(count, self.tiles_per_ipu)
        return np.asarray(ipu * self.tiles_per_ipu + number * tiles[ipu] // np.maximum(count[ipu], 1), np.int64)

    def _emit_sums(
        self,
        body: Sequence,
        arrays: PartialResults,
        height: Int64,
        pieces: tuple[Int64, Int64, Int64, Int64],
        *,
        out: Regions,
        tile: Int64,
    ) -> None:
        item, vector, first, size = pieces
        order = np.argsort(arrays.item, kind="stable")
        counts = np.bincount(arrays.item, minlength=len(height))
        starts = np.cumsum(counts) - counts
        num = counts[item]
        piece = np.repeat(np.arange(len(item)), num)
        array = order[starts[item[piece]] + within(num)]
        begin = arrays.begin[array] + (vector * height[item] + first)[piece]
        rows = stretches(arrays.variable, begin, size[piece])
        ends = np.concatenate([[0], np.cumsum(num)])
        self.graph.map_regions(out, tile)
        cs = self.graph.compute_set("sum")
        codelet = sums_codelet(out.tensor.dtype)
        cs.vertices(codelet, tile=tile, x=(rows, np.arange(rows.num), ends), out=out)
        body.add(Execute(cs))
