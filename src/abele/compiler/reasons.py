"""Reasons: why a superstep moves data, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int32
from abele.compiler.layout import Layout
from abele.compiler.region_tiles import PairPieces, foreign_pairs, pair_pieces, residence_of
from abele.compiler.uses import FieldUse
from abele.graph.intervals import distinct


@dataclass(frozen=True, eq=False, slots=True)
class Reason:
    """A field whose data is not in one piece on the tiles of its vertices.

    Attributes:
        use: The field.
        outward: True if the vertices' results go home, instead of their inputs coming.
        tiles: Tiles that need such data, ascending int32[n].
        pieces: Pieces that they need, in packed addresses.
        width: Bytes of an element.
    """

    use: FieldUse
    outward: bool
    tiles: Int32
    pieces: PairPieces
    width: int

    @property
    def field(self) -> str:
        """Codelet and field."""
        return f"{self.use.group.codelet.name}.{self.use.field.name}"

    @property
    def bytes(self) -> int:
        """Bytes of all pieces."""
        return int(self.pieces.length.sum()) * self.width

    @property
    def is_arranged(self) -> bool:
        """True if some region is put together from, or taken apart into, several pieces."""
        return not bool(self.pieces.alone.all())

    def of_tile(self, tile: int) -> PairPieces:
        """The pieces of one tile."""
        here = np.flatnonzero(self.pieces.needer == tile)
        p = self.pieces
        return PairPieces(p.needer[here], p.begin[here], p.length[here], p.holder[here], p.share[here], p.alone[here])


def reasons_of(uses: Sequence[FieldUse], layout: Layout) -> Iterator[Reason]:
    """Why the compute set that has these fields moves data; a field that is read and written comes up twice."""
    for use in uses:
        residence = residence_of(use.edge.regions, layout)
        tile, region = foreign_pairs(residence, use.row_tile, use.edge.index)
        if len(tile) == 0:
            continue
        pieces = pair_pieces(residence, tile, region)
        tiles = distinct(tile.astype(np.int64)).astype(np.int32)
        for outward in (False, True):
            if use.writes if outward else use.reads:
                yield Reason(use, outward, tiles, pieces, residence.width)
