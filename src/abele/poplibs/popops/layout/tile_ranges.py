"""Each tile's share of a tensor, as stretches in storage order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int32, Int64
from abele.errors import TileMappingError
from abele.graph import Graph, Tensor
from abele.poplibs.poputil.order import storage_order


@dataclass(frozen=True)
class TileRanges:
    """Stretches of a flattened tensor, ordered by tile.

    Attributes:
        tensor: The tensor, flattened in storage order.
        begin: First element of each stretch, int64[n].
        length: Elements of each, int64[n].
        tile: Tile of each, int32[n], non-decreasing.
    """

    tensor: Tensor
    begin: Int64
    length: Int64
    tile: Int32

    @staticmethod
    def of(graph: Graph, tensor: Tensor, name: str) -> TileRanges:
        """The stretches of ``tensor``.

        Raises:
            TileMappingError: Some of its elements are on no tile.
        """
        flat = storage_order(tensor).apply(tensor).flatten()
        mapping = graph.mapping_of(flat)
        if not mapping.is_complete:
            raise TileMappingError(f"{name}: {tensor!r} is not mapped to tiles completely")
        order = np.argsort(mapping.tile, kind="stable")
        return TileRanges(flat, mapping.begin[order], mapping.length[order], mapping.tile[order])

    @property
    def row_begin(self) -> Int64:
        """First stretch of each tile, and the end of the last, int64[tiles + 1]."""
        first = np.flatnonzero(np.append(True, np.diff(self.tile) != 0))
        return np.append(first, len(self.tile)).astype(np.int64)
