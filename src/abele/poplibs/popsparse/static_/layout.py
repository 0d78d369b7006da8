"""Placement of a static sparse product: values and dense rows of each tile.

Tile ``i · tiles + t`` is tile t of part i of the dense columns; all parts cut the pattern alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph, Regions, Tensor, boxes, concat
from abele.numerics import ElementType
from abele.poplibs.popsparse.float8 import result_type
from abele.poplibs.popsparse.static_.cut import Cut
from abele.poplibs.popsparse.static_.plan import StaticPlan
from abele.sparsity import Pattern


@dataclass(frozen=True)
class StaticLayout:
    """Placement of a product on its tiles.

    Attributes:
        pattern: The sparse operand's pattern.
        plan: Parts and bands.
        cut: Blocks of each tile of a part.
        dense: Columns of the dense operand.
        dtype: Type of the operand that it was made for.
    """

    pattern: Pattern
    plan: StaticPlan
    cut: Cut
    dense: int
    dtype: ElementType

    @property
    def side(self) -> int:
        """Side of a block."""
        return self.pattern.block[0]

    @property
    def result(self) -> ElementType:
        """Type of sums and of the result."""
        return result_type(self.dtype)

    @property
    def widths(self) -> Int64:
        """Dense columns of each part, int64[parts]."""
        start = np.arange(self.plan.splits) * self.plan.columns
        return np.minimum(self.plan.columns, self.dense - start)

    @property
    def tile(self) -> Int64:
        """Tile of each share of each part, int64[parts · shares]."""
        return (np.arange(self.plan.splits)[:, None] * self.plan.tiles + self.cut.tile).reshape(-1)

    def value_regions(self, values: Tensor, bounds: Int64) -> Regions:
        """Values of stretches of the cut's order; stretch i ends at place ``bounds[i + 1]``."""
        order, area = self.cut.order, self.side**2
        breaks = np.append(True, order[1:] != order[:-1] + 1)
        breaks[bounds[:-1][bounds[:-1] < len(order)]] = True
        first = np.flatnonzero(breaks)
        length = np.diff(np.append(first, len(order)))
        pieces = boxes(values.flatten(), (order[first] * area)[:, None], (length * area)[:, None])
        row = np.searchsorted(bounds, first, side="right") - 1
        return Regions.from_intervals(pieces.tensor, row[pieces.row], pieces.begin, pieces.length, len(bounds) - 1)

    def place_values(self, graph: Graph, values: Tensor) -> None:
        """Put the values of a share on its tiles, a stretch on each part's."""
        parts, ptr = self.plan.splits, self.cut.ptr
        cuts = ptr[:-1, None] + np.diff(ptr)[:, None] * np.arange(parts) // parts
        bounds = np.append(cuts.reshape(-1), ptr[-1])
        tile = self.cut.tile[:, None] + np.arange(parts) * self.plan.tiles
        graph.map_regions(self.value_regions(values, bounds), tile.reshape(-1))

    def dense_regions(self, dense: Tensor) -> tuple[Regions, Int64]:
        """Dense rows that tiles take, of a [k, n] view, and the region of each share of each part."""
        parts, cut, side = self.plan.splits, self.cut, self.side
        number = np.arange(self.pattern.grid[1])
        start = np.stack(
            [np.tile(number * side, parts), np.repeat(np.arange(parts) * self.plan.columns, len(number))], axis=1
        )
        size = np.stack([np.full(len(start), side), np.repeat(self.widths, len(number))], axis=1)
        rows = boxes(dense, start, size)
        lists = len(cut.needed_ptr) - 1
        index = (np.arange(parts)[:, None] * len(number) + cut.needed).reshape(-1)
        owner = np.repeat(np.arange(lists), np.diff(cut.needed_ptr))
        owner = (np.arange(parts)[:, None] * lists + owner).reshape(-1)
        taken = rows.take(index)
        regions = Regions.from_intervals(
            taken.tensor, np.repeat(owner, taken.counts), taken.begin, taken.length, lists * parts
        )
        return regions, (np.arange(parts)[:, None] * lists + cut.taken).reshape(-1)


def new_values(graph: Graph, layout: StaticLayout, name: str) -> Tensor:
    """The values of the sparse operand, in the pattern's order, where their products are made."""
    values = graph.variable(layout.dtype, layout.pattern.num_values, name=name)
    if layout.pattern.num_blocks:
        layout.place_values(graph, values)
    return values


def new_dense(graph: Graph, layout: StaticLayout, name: str, dtype: ElementType | None = None) -> Tensor:
    """The dense operand [k, n], by default of the layout's type: parts after each other, spread over all tiles."""
    depth = layout.pattern.shape[1]
    stored = graph.variable(dtype or layout.dtype, depth * layout.dense, name=name, map="linear")
    return in_columns(stored, depth, layout)


def in_columns(stored: Tensor, rows: int, layout: StaticLayout) -> Tensor:
    """Parts [rows, columns of the part], which are stored after each other, as [rows, columns]."""
    ends = np.cumsum(layout.widths) * rows
    parts = [
        stored[end - rows * width : end].reshape((rows, width))
        for end, width in zip(ends.tolist(), layout.widths.tolist(), strict=True)
    ]
    return concat(parts, 1) if len(parts) > 1 else parts[0]
