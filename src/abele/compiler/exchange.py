"""Exchange plan: what a superstep moves between tiles, and the copies that arrange it on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.compiler.layout import Layout
from abele.compiler.residence import PairPieces, Residence, foreign_pairs, pair_pieces, residence_of
from abele.compiler.traffic import Moves, Phase, Transfers, granules, phase_of, sum_by_tile
from abele.compiler.uses import FieldUse
from abele.graph.intervals import Int64, distinct
from abele.graph.tensor import Tensor


@dataclass(frozen=True, eq=False, slots=True)
class ExchangePlan:
    """The data movement of one superstep.

    Attributes:
        before: Exchange that brings the inputs, or None when all are where they are needed.
        after: Exchange that sends outputs home, or None.
        gather: Copies on tiles that arrange inputs before the vertices run.
        scatter: Copies on tiles that put outputs in place after they ran.
        buffer_bytes: Memory for arriving, gathered and not yet scattered data, int64[tiles].
    """

    before: Phase | None
    after: Phase | None
    gather: Moves
    scatter: Moves
    buffer_bytes: Int64


class _Collector:
    """Transfers and moves of one direction."""

    def __init__(self) -> None:
        self.transfers: list[Transfers] = []
        self.moves: list[Moves] = []

    def phase(self, layout: Layout, tiles_per_ipu: int) -> tuple[Phase | None, Moves]:
        """The phase of all transfers and all copies of this direction."""
        if not self.transfers:
            return None, Moves.joined(self.moves)
        transfers = Transfers.joined(self.transfers)
        self.transfers.clear()
        phase, finishing = phase_of(transfers, layout.num_tiles, tiles_per_ipu)
        return phase, Moves.joined([*self.moves, finishing])


def plan_exchange(uses: Sequence[FieldUse], layout: Layout, tiles_per_ipu: int) -> ExchangePlan:
    """The exchange plan of one compute set.

    Args:
        uses: Its field uses.
        layout: Where the graph's elements live.
        tiles_per_ipu: Tiles of one IPU.

    Model: a field whose region is one piece of its tile's memory is used in place. Otherwise the tile gets a buffer:
    parts from other tiles arrive where they are wanted, parts of its own are copied in. An element crosses to a tile
    once per phase; wishes for it in another arrangement are copies on the tile. Outputs go the other way.
    """
    incoming, outgoing = _Collector(), _Collector()
    known: dict[int, Residence] = {}
    out_buffers = np.zeros(layout.num_tiles, dtype=np.int64)
    for use in uses:
        regions = use.edge.regions
        if id(regions) not in known:
            known[id(regions)] = residence_of(regions, layout)
        residence = known[id(regions)]
        tile, region = foreign_pairs(residence, use.row_tile, use.edge.index)
        if len(tile) == 0:
            continue
        pieces = pair_pieces(residence, tile, region)
        if use.reads:
            _collect(incoming, pieces, residence.width, outward=False)
        if use.writes:
            _collect(outgoing, pieces, residence.width, outward=True)
            if not use.reads:
                out_buffers += sum_by_tile(pieces.needer, pieces.length * residence.width, layout.num_tiles)
    before, gather = incoming.phase(layout, tiles_per_ipu)
    after, scatter = outgoing.phase(layout, tiles_per_ipu)
    buffers = out_buffers + gather.bytes_by_tile(layout.num_tiles)
    if before is not None:
        buffers += before.received_bytes
    return ExchangePlan(before, after, gather, scatter, buffers)


def _collect(collector: _Collector, pieces: PairPieces, width: int, *, outward: bool) -> None:
    """Add the pieces of pairs: own parts as copies, others as transfers (from the needing tile when ``outward``)."""
    is_own = pieces.holder == pieces.needer
    own, far = np.flatnonzero(is_own), np.flatnonzero(~is_own)
    size = pieces.length[own] * width
    offset = (pieces.begin[own] - pieces.share[own]) * width
    collector.moves.append(Moves(pieces.needer[own], size, granules(offset, size)))
    if len(far) == 0:
        return
    needer, holder = pieces.needer[far], pieces.holder[far]
    widths = np.full(len(needer), width, dtype=np.int8)
    collector.transfers.append(
        Transfers(
            holder if outward else needer,
            needer if outward else holder,
            pieces.begin[far],
            pieces.length[far],
            pieces.share[far],
            widths,
            np.ones(len(needer), dtype=bool) if outward else pieces.alone[far],
        )
    )


def plan_copy(source: Tensor, destination: Tensor, layout: Layout, tiles_per_ipu: int) -> ExchangePlan:
    """The exchange plan of a copy between two views: an exchange for what changes tile, copies for the rest.

    Views that overlap go through a buffer, as all reads come before the first write.
    """
    mine, theirs = layout.cut(*source.intervals()), layout.cut(*destination.intervals())
    ends = [np.cumsum(p.length) for p in (mine, theirs)]
    cuts = distinct(np.concatenate(ends))
    length = np.diff(cuts, prepend=0)
    start = cuts - length
    from_, to = (np.searchsorted(e, start, side="right") for e in ends)
    source_at = mine.begin[from_] + start - (ends[0] - mine.length)[from_]
    target_at = theirs.begin[to] + start - (ends[1] - theirs.length)[to]
    width = source.dtype.bytes
    sender, receiver = mine.tile[from_], theirs.tile[to]
    own = np.flatnonzero(sender == receiver)
    offset = ((source_at - mine.share[from_]) | (target_at - theirs.share[to])) * width
    size = length * width
    moves = Moves(receiver[own], size[own], granules(offset[own], size[own]))
    far = np.flatnonzero(sender != receiver)
    before = None
    if len(far):
        wishes = Transfers(
            receiver[far],
            sender[far],
            source_at[far],
            length[far],
            mine.share[from_][far],
            np.full(len(far), width, dtype=np.int8),
            np.zeros(len(far), dtype=bool),
        )
        before, finishing = phase_of(wishes, layout.num_tiles, tiles_per_ipu)
        moves = Moves.joined([moves, finishing])
    buffers = np.zeros(layout.num_tiles, dtype=np.int64)
    if source.overlaps(destination):
        buffers = sum_by_tile(receiver, size, layout.num_tiles)
        moves = Moves.joined([moves, Moves(receiver, size, granules(offset, size))])
    return ExchangePlan(before, None, Moves.joined([]), moves, buffers)


def plan_broadcast(tensor: Tensor, layout: Layout, tiles_per_ipu: int) -> ExchangePlan:
    """The exchange plan of a control decision: every tile gets the one element that decides."""
    piece = layout.cut(*tensor.intervals())
    tiles = np.arange(layout.num_tiles, dtype=np.int32)
    tiles = tiles[tiles != piece.tile[0]]
    n = len(tiles)
    none = Moves.joined([])
    if n == 0:
        return ExchangePlan(None, None, none, none, np.zeros(layout.num_tiles, dtype=np.int64))
    ones, flags = np.ones(n, dtype=np.int64), np.ones(n, dtype=bool)
    wishes = Transfers(
        tiles,
        np.full(n, piece.tile[0], dtype=np.int32),
        ones * piece.begin[0],
        ones,
        ones * piece.begin[0],
        np.full(n, tensor.dtype.bytes, dtype=np.int8),
        flags,
    )
    phase, _ = phase_of(wishes, layout.num_tiles, tiles_per_ipu)
    return ExchangePlan(phase, None, none, none, np.zeros(layout.num_tiles, dtype=np.int64))
