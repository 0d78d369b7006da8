"""Order of elements in which the rows of a collective lie on the tiles where the elements are.

A ring works on rows whose columns are spread over all tiles, all rows of a column on one tile. A sum over replicas does
not care which row an element is in. So elements are taken tile by tile: the first tile's share of the rows is filled
with what lies on the first tiles, and so on. Taking them as they come in the tensors would fill a row with some tensors
whole, and each tile with a few elements of every tensor from everywhere: of 161 parameters of ResNet-50, on 1,440 tiles
in 16 rows, a tile would receive 5,700 pieces of two elements.

Example: two tensors of 8 elements, each with 0 to 3 on tile 0 and the others on tile 1, in two rows of 8 columns. Tile
0 has the columns 0 to 3 of both rows: row 0 gets its four elements of the first tensor there, row 1 those of
the second. Nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.graph import Graph, Tensor, concat
from abele.graph.gather import gathered
from abele.graph.intervals import cut_at, order_of
from abele.poplibs.poputil.mapping import linear_mapping, map_tensor_linearly


@dataclass(frozen=True, eq=False)
class TileOrder:
    """Elements of a flattened tensor as rows of equal length, tile by tile.

    Attributes:
        graph: The graph.
        size: Elements.
        rows: Rows; what is missing in them are zeros.
        begin: First element of each range that stays together, in order of rows and columns, int64[k].
        length: Elements of each, int64[k].
    """

    graph: Graph
    size: int
    rows: int
    begin: Int64
    length: Int64

    @staticmethod
    def of(graph: Graph, tensor: Tensor, rows: int) -> TileOrder:
        """The order of a tensor's elements in ``rows`` rows, by its tile mapping."""
        mapping, width = graph.mapping_of(tensor), -(-tensor.size // rows)
        order = order_of(mapping.tile)
        missing = rows * width - tensor.size
        begin, length = np.append(mapping.begin[order], tensor.size), np.append(mapping.length[order], missing)
        begin, length = begin[length > 0], length[length > 0]
        # Tile by tile, and on a tile row by row, the elements go where these cells begin.
        columns = linear_mapping(graph, width, tensor.dtype)
        first, count = columns.begin, columns.length
        cells = (rows * first[:, None] + np.arange(rows) * count[:, None]).ravel()
        start = np.cumsum(length) - length
        place, length, source = cut_at(cells, start, length)
        begin = begin[source] + place - start[source]
        tile = np.searchsorted(rows * first, place, side="right") - 1
        row, column = np.divmod(place - rows * first[tile], count[tile])
        sequence = order_of(row * width + first[tile] + column)
        return TileOrder(graph, tensor.size, rows, begin[sequence], length[sequence])

    def arranged(self, tensor: Tensor) -> Tensor:
        """A tensor of as many elements as rows, [rows, width]."""
        flat, missing = tensor.flatten(), int(self.length.sum()) - self.size
        if missing:
            zeros = self.graph.constant(flat.dtype, (missing,), 0, name="padding")
            flat = concat([flat, map_tensor_linearly(self.graph, zeros)])
        return gathered(flat, self.begin, self.length).reshape((self.rows, -1))

    def paired(self, rows: Tensor, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Views of the elements of rows, and of a tensor in the same order."""
        place = np.cumsum(self.length) - self.length
        there = self.begin < self.size
        length = self.length[there]
        return gathered(rows.flatten(), place[there], length), gathered(tensor.flatten(), self.begin[there], length)
