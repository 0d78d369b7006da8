"""Exchange plan: data that a superstep moves between tiles, and copies on them for its arrangement.

Everything is found in packed addresses (``layout``), in which two elements are neighbours exactly when they are
neighbours in the memory of one tile. So "this field lies in one piece here" is one comparison, what is sent is an
interval, and neighbouring intervals of one sender merge. Vertices of a tile that are wired to the same region are one
(tile, region) pair: a region that a thousand vertices share is planned once per tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from abele.arrays import Bool, Int32, Int64
from abele.compiler.exchange_blocks import TileBlocks
from abele.compiler.layout import Layout
from abele.compiler.moves import Moves, granules
from abele.compiler.multicast_groups import Audiences, WantedRegions, find_audiences, is_shared
from abele.compiler.region_tiles import PORTION, PairPieces, Residence, foreign_pairs, pair_pieces, residence_of
from abele.compiler.tile_vector import TileSet, TileVector, added
from abele.compiler.traffic import PAIR_BYTES, WORD_BYTES, ExchangePhase, LinkBytes, Transfers, phase_of
from abele.compiler.uses import FieldUse
from abele.graph.intervals import cut_alike, distinct
from abele.graph.paired import paired_runs
from abele.graph.replica_copies import CrossReplicaCopy
from abele.graph.tensor import Tensor, concat

# Requests of a compute set's fields on tiles that do not hold the data in one piece, sorted into domains.
#
# Tiles are found to want the same domain by domain (``audiences``), so domains should be as small as they can be.
# Pieces of two variables never overlap nor join, so each variable could be one; those that the same fields touch are
# taken together, which leaves a few. It matters where an operand is padded: the zeros at its border are a variable
# that both operands of a convolution may touch, and that lies far from either.


class FieldWish(NamedTuple):
    """Regions of a field, or of a part of it, that a tile lacks in one piece.

    Attributes:
        residence: Tiles and pieces of its regions, or of those pieces of them that are in the domain.
        tile: Tile of each pair of a tile and a region that is not in one piece there, int32[n].
        region: Its region, int64[n]; pairs are in order of tile and region.
        alone: True for the regions that are one piece, bool[regions].
        domain: Number of the domain.
    """

    residence: Residence
    tile: Int32
    region: Int64
    alone: Bool
    domain: int = 0

    @property
    def wanted(self) -> WantedRegions:
        """Request in the form in which tiles are compared."""
        return WantedRegions(self.tile, self.region, self.domain)


def in_domains(wishes: Sequence[FieldWish], layout: Layout) -> list[FieldWish]:
    """Requests of fields, split by domain; all are in one where no two tiles want a region."""
    if not any(is_shared(wish.region) for wish in wishes):
        return list(wishes)
    touched = [_variables(wish.residence, layout) for wish in wishes]
    # Which fields touch a variable, as the bits of a number: variables of one number are a domain.
    fields: dict[int, int] = {}
    for number, (variables, _) in enumerate(touched):
        for variable in variables.tolist():
            fields[variable] = fields.get(variable, 0) | 1 << number
    domains = {bits: number for number, bits in enumerate(dict.fromkeys(fields.values()))}
    found: list[FieldWish] = []
    for wish, (variables, which) in zip(wishes, touched, strict=True):
        domain_of = np.array([domains[fields[v]] for v in variables.tolist()], dtype=np.int64)
        found += _parts(wish, distinct(domain_of), domain_of[which])
    return found


def _variables(residence: Residence, layout: Layout) -> tuple[Int64, Int64]:
    """Variables of pieces, ascending, and the number of each piece's; or 0 for all where it is one."""
    ends = layout.variables_at(np.array([residence.begin.min(), residence.begin.max()]))
    if ends[0] == ends[1]:
        return ends[:1], np.zeros(1, dtype=np.int64)
    each = layout.variables_at(residence.begin)
    variables = distinct(each)
    return variables, np.searchsorted(variables, each)


def _parts(wish: FieldWish, domains: Int64, domain: Int64) -> Iterator[FieldWish]:
    """Request domain by domain; ``domain`` is that of each piece."""
    if len(domains) == 1:
        yield wish._replace(domain=int(domains[0]))
        return
    residence = wish.residence
    row = np.repeat(np.arange(len(residence.home)), residence.counts)
    for number in domains.tolist():
        kept = np.flatnonzero(domain == number)
        count = np.bincount(row[kept], minlength=len(residence.home))
        part = replace(
            residence,
            ptr=np.concatenate([[0], np.cumsum(count)]),
            begin=residence.begin[kept],
            length=residence.length[kept],
            tile=residence.tile[kept],
            share=residence.share[kept],
        )
        some = np.flatnonzero(count[wish.region])
        if len(some):
            yield FieldWish(part, wish.tile[some], wish.region[some], wish.alone, number)


@dataclass(frozen=True, eq=False, slots=True)
class ExchangePlan:
    """The data movement of one superstep.

    Attributes:
        before: Exchange that brings the inputs, or None when all are where they are needed.
        after: Exchange that sends outputs home, or None.
        gather: Copies on tiles that arrange inputs before the vertices run.
        scatter: Copies on tiles that put outputs in place after they ran.
        buffer_bytes: Memory for arriving, gathered and not yet scattered data on each tile.
    """

    before: ExchangePhase | None
    after: ExchangePhase | None
    gather: Moves
    scatter: Moves
    buffer_bytes: TileVector

    @property
    def is_still(self) -> bool:
        """True if all inputs are used where they lie."""
        return self.before is None and len(self.gather.tile) == 0


def plan_exchange(
    uses: Sequence[FieldUse],
    layout: Layout,
    tiles_per_ipu: int,
    blocks: TileBlocks | None = None,
    known: dict[int, Residence] | None = None,
) -> ExchangePlan:
    """The exchange plan of one compute set.

    Args:
        uses: Its field uses.
        layout: Tile and address of the graph's elements.
        tiles_per_ipu: Tiles of one IPU.
        blocks: Blocks of tiles between which bytes are counted, or None.
        known: Takes the residences of regions, by their identity.

    Model: a field whose region is one piece of its tile's memory is used in place. Otherwise the tile gets a buffer:
    parts from other tiles arrive where they are wanted, parts of its own are copied in. An element crosses to a tile
    once per phase; requests for it in another arrangement are copies on the tile. Outputs go the other way.
    """
    known = {} if known is None else known
    inputs: list[FieldWish] = []
    outputs: list[tuple[PairPieces, int]] = []
    buffers: list[TileVector | None] = []
    for use in uses:
        regions = use.edge.regions
        # Fields of several groups are often wired to the same regions object: where it lies is found once.
        if id(regions) not in known:
            known[id(regions)] = residence_of(regions, layout)
        residence = known[id(regions)]
        tile, region = foreign_pairs(residence, use.row_tile, use.edge.index)
        if len(tile) == 0:
            continue
        if use.reads:
            inputs.append(FieldWish(residence, tile, region, residence.counts == 1))
        if use.writes:
            pieces = pair_pieces(residence, tile, region)
            outputs.append((pieces, residence.width))
            # What is read was counted with what arrives or is gathered; its buffer serves for the way back as well.
            if not use.reads:
                buffers.append(TileVector.sum_of(pieces.needer, pieces.length * residence.width, layout.num_tiles))
    before, gather = _inward(in_domains(inputs, layout), layout.num_tiles, tiles_per_ipu, blocks)
    after, scatter = _outward(outputs, layout.num_tiles, tiles_per_ipu, blocks)
    if len(gather.tile):
        buffers.append(gather.bytes_by_tile(layout.num_tiles))
    buffers.append(None if before is None else before.received_bytes)
    return ExchangePlan(before, after, gather, scatter, added(buffers, layout.num_tiles))


class _Pieces(NamedTuple):
    """Pieces of tiles' memory: first packed address, elements and share of each, and bytes of an element."""

    begin: Int64
    length: Int64
    share: Int64
    width: int

    def copied(self, tile: Int32) -> Moves:
        """A copy of each piece on its tile."""
        size = self.length * self.width
        # Alignment counts from where the tile's memory of the variable starts, not from the address.
        return Moves.single(tile, size, granules((self.begin - self.share) * self.width, size))

    def transferred(self, receiver: Int64 | Int32, sender: Int32, alone: Bool) -> Transfers:
        """Each piece as a transfer."""
        return Transfers(
            receiver=receiver.astype(np.int64, copy=False),
            sender=sender,
            begin=self.begin,
            length=self.length,
            share=self.share,
            width=np.full(len(self.begin), self.width, dtype=np.int8),
            alone=alone,
        )


def _inward(
    wishes: Sequence[FieldWish], num_tiles: int, tiles_per_ipu: int, blocks: TileBlocks | None
) -> tuple[ExchangePhase | None, Moves]:
    """Exchange that brings requested data, and the copies for its arrangement, copies of own data among them."""
    if not wishes:
        return None, Moves.joined([])
    audiences, pairs = find_audiences([wish.wanted for wish in wishes], num_tiles)
    wanted = [_Wanted.of(wish, audience, region) for wish, (audience, region) in zip(wishes, pairs, strict=True)]
    found = [_inward_part(part, audiences, tiles_per_ipu, blocks) for part in _portions(wanted, num_tiles)]
    phases = [phase for phase, _ in found if phase is not None]
    return ExchangePhase.joined(phases) if phases else None, Moves.joined([moves for _, moves in found])


class _Wanted(NamedTuple):
    """Pieces that audiences want, of one field.

    Attributes:
        wish: The field.
        at: Each piece, as its place in the residence, int64[k].
        number: The pair of an audience and a region that it is of, int64[k].
        audience: The audience of each pair, int64[n].
        region: The region of each pair, int64[n].
    """

    wish: FieldWish
    at: Int64
    number: Int64
    audience: Int64
    region: Int64

    @staticmethod
    def of(wish: FieldWish, audience: Int64, region: Int64) -> _Wanted:
        """All pieces of the regions of pairs."""
        return _Wanted(wish, *wish.residence.pieces_of(region), audience, region)


def _portions(wanted: Sequence[_Wanted], num_tiles: int) -> Iterator[Sequence[_Wanted]]:
    """Requests of audiences, split by the tiles of the data into portions for the processor's caches.

    Pieces of different holders never overlap nor join, so the results of portions add up.
    """
    if sum(len(w.at) for w in wanted) < 2 * PORTION:
        yield wanted
        return
    holders = [w.wish.residence.tile[w.at] for w in wanted]
    each = sum(np.bincount(holder, minlength=num_tiles) for holder in holders)
    portion_of = ((np.cumsum(each) - each) // PORTION).astype(np.uint16)
    count = int(portion_of.max()) + 1
    sorted_: list[tuple[_Wanted, Int64, Int64]] = []
    for field, holder in zip(wanted, holders, strict=True):
        portion = portion_of[holder]
        bounds = np.concatenate([[0], np.cumsum(np.bincount(portion, minlength=count))])
        sorted_.append((field, np.argsort(portion, kind="stable"), bounds))
    # The columns need not be there while portions are planned.
    del holders, holder, portion
    for number in range(count):
        parts = ((w, order[bounds[number] : bounds[number + 1]]) for w, order, bounds in sorted_)
        yield [w._replace(at=w.at[kept], number=w.number[kept]) for w, kept in parts if len(kept)]


def _inward_part(
    wanted: Sequence[_Wanted], audiences: Audiences, tiles_per_ipu: int, blocks: TileBlocks | None
) -> tuple[ExchangePhase | None, Moves]:
    """Exchange of some requested data, and its copies."""
    moves, transfers = [], []
    for wish, at, number, audience, region in wanted:
        residence = wish.residence
        receiver, sender = audience[number], residence.tile[at]
        own = audiences.members(receiver, sender)
        if len(own):
            moves.append(_pieces(residence, at[own], residence.width).copied(sender[own]))
            is_far = np.ones(len(at), dtype=bool)
            # What a member holds the others of its audience still want, if there are others.
            is_far[own[audiences.sizes[receiver[own]] == 1]] = False
            far = np.flatnonzero(is_far)
            at, number, receiver, sender = at[far], number[far], receiver[far], sender[far]
        if len(at):
            found = _pieces(residence, at, residence.width)
            transfers.append(found.transferred(receiver, sender, wish.alone[region[number]]))
    if not transfers:
        return None, Moves.joined(moves).summed()
    phase, finishing = phase_of(Transfers.joined(transfers), audiences.num_tiles, tiles_per_ipu, audiences, blocks)
    return phase, Moves.joined([*moves, finishing]).summed()


def _outward(
    outputs: Sequence[tuple[PairPieces, int]], num_tiles: int, tiles_per_ipu: int, blocks: TileBlocks | None
) -> tuple[ExchangePhase | None, Moves]:
    """Exchange that sends results home, and copies to put them in place, from pieces and widths of elements.

    Only one vertex writes a piece, so receivers have nothing in common, and each is looked at by itself.
    """
    moves, transfers = [], []
    for pieces, width in outputs:
        is_own = pieces.holder == pieces.needer
        own, far = np.flatnonzero(is_own), np.flatnonzero(~is_own)
        moves.append(_pieces(pieces, own, width).copied(pieces.needer[own]))
        if len(far):
            alone = np.ones(len(far), dtype=bool)
            transfers.append(_pieces(pieces, far, width).transferred(pieces.holder[far], pieces.needer[far], alone))
    if not transfers:
        return None, Moves.joined(moves)
    phase, finishing = phase_of(Transfers.joined(transfers), num_tiles, tiles_per_ipu, blocks=blocks)
    return phase, Moves.joined([*moves, finishing])


def _pieces(found: Residence | PairPieces, at: Int64, width: int) -> _Pieces:
    return _Pieces(found.begin[at], found.length[at], found.share[at], width)


class _Pairs(NamedTuple):
    """Two views side by side, cut where either changes its tile."""

    width: int
    length: Int64
    sender: Int32
    source_at: Int64
    source_share: Int64
    receiver: Int32
    target_at: Int64
    target_share: Int64

    @staticmethod
    def of(source: Tensor, destination: Tensor, layout: Layout) -> _Pairs:
        runs = paired_runs(source, destination)
        mine, theirs = layout.cut(runs.source, runs.length), layout.cut(runs.destination, runs.length)
        # Cut both sides at the union of their cuts: then each piece has one sender and one receiver.
        length, (from_, skipped), (to, passed) = cut_alike(mine.length, theirs.length)
        return _Pairs(
            width=source.dtype.bytes,
            length=length,
            sender=mine.tile[from_],
            source_at=mine.begin[from_] + skipped,
            source_share=mine.share[from_],
            receiver=theirs.tile[to],
            target_at=theirs.begin[to] + passed,
            target_share=theirs.share[to],
        )

    def wishes(self, far: Int64) -> Transfers:
        """The pairs of positions ``far`` as transfers."""
        pieces = _Pieces(self.source_at[far], self.length[far], self.source_share[far], self.width)
        return pieces.transferred(self.receiver[far], self.sender[far], np.zeros(len(far), dtype=bool))

    @property
    def granule(self) -> Int64:
        """Largest power of two that divides both offsets and the size, int64[k]."""
        offset = ((self.source_at - self.source_share) | (self.target_at - self.target_share)) * self.width
        return granules(offset, self.length * self.width)


def plan_copy(
    source: Tensor, destination: Tensor, layout: Layout, tiles_per_ipu: int, blocks: TileBlocks | None = None
) -> ExchangePlan:
    """Exchange plan of a copy between two views: an exchange for elements that change tile, copies for the rest.

    Views that overlap go through a buffer, as all reads come before the first write.
    """
    pairs = _Pairs.of(source, destination, layout)
    own, far = np.flatnonzero(pairs.sender == pairs.receiver), np.flatnonzero(pairs.sender != pairs.receiver)
    size, granule = pairs.length * pairs.width, pairs.granule
    moves = Moves.single(pairs.receiver[own], size[own], granule[own])
    before = None
    if len(far):
        before, finishing = phase_of(pairs.wishes(far), layout.num_tiles, tiles_per_ipu, blocks=blocks)
        moves = Moves.joined([moves, finishing])
    buffers = TileVector.zero(layout.num_tiles)
    # All reads come before the first write, so the whole view passes through a buffer.
    if source.overlaps(destination):
        buffers = TileVector.sum_of(pairs.receiver, size, layout.num_tiles)
        moves = Moves.joined([moves, Moves.single(pairs.receiver, size, granule)])
    return ExchangePlan(before, None, Moves.joined([]), moves, buffers)


def plan_replica_copies(copies: Sequence[CrossReplicaCopy], layout: Layout, tiles_per_ipu: int) -> ExchangePlan:
    """The exchange plan of copies between replicas in one exchange, as every replica sees it.

    Model: tiles send and receive what all copies ask of them, and links carry all copies side by side. A replica that
    sends to itself copies; the plan is that of the others, with the bytes between all IPUs of all replicas in
    ``before.link_bytes``.
    """
    # Copies that overwrite what any of them sends go through a buffer, since all reads come before the first write.
    sources = _by_type([copy.source for copy in copies])
    plans = []
    for copy in copies:
        moving = [(a, b) for a, b in copy.map.items() if a != b]
        buffered = any(copy.destination.overlaps(source) for source in sources)
        if moving:
            plans.append(_between_replicas(copy, moving, layout, tiles_per_ipu, buffered=buffered))
        else:
            plans.append(plan_copy(copy.source, copy.destination, layout, tiles_per_ipu))
    return plans[0] if len(plans) == 1 else _joined(plans, layout.num_tiles)


def _by_type(tensors: Sequence[Tensor]) -> list[Tensor]:
    """One view of all tensors of each element type."""
    groups: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype.name, []).append(tensor.flatten())
    return [group[0] if len(group) == 1 else concat(group) for group in groups.values()]


def _between_replicas(
    copy: CrossReplicaCopy, moving: Sequence[tuple[int, int]], layout: Layout, tiles_per_ipu: int, *, buffered: bool
) -> ExchangePlan:
    pairs = _Pairs.of(copy.source, copy.destination, layout)
    phase, finishing = phase_of(pairs.wishes(np.arange(len(pairs.length))), layout.num_tiles, tiles_per_ipu)
    # Replica r has IPUs r × each to (r + 1) × each − 1; every pair of replicas moves the same pieces, so these are
    # added up for each pair of IPUs before they are repeated for all replicas.
    each = -(-layout.num_tiles // tiles_per_ipu)
    sender, receiver = (side.astype(np.int64) // tiles_per_ipu for side in (pairs.sender, pairs.receiver))
    amount = np.bincount(sender * each + receiver, weights=pairs.length * pairs.width, minlength=each * each)
    used = np.flatnonzero(amount)
    from_, to = (np.array(side, dtype=np.int64)[:, None] * each for side in zip(*moving, strict=True))
    many = np.tile(amount[used].astype(np.int64), len(moving))
    links = LinkBytes.of((from_ + used // each).reshape(-1), (to + used % each).reshape(-1), many)
    buffers = TileVector.zero(layout.num_tiles)
    if buffered:
        buffers = phase.received_bytes
        size = pairs.length * pairs.width
        finishing = Moves.joined([finishing, Moves.single(pairs.receiver, size, pairs.granule)])
    # Between replicas nothing stays on a chip, though both ends have the same tile number.
    phase = replace(phase, link_bytes=links, is_local=False)
    return ExchangePlan(phase, None, Moves.joined([]), finishing, buffers)


def _joined(plans: Sequence[ExchangePlan], num_tiles: int) -> ExchangePlan:
    """Plans of copies that happen at the same time, as one."""
    phases = [plan.before for plan in plans if plan.before is not None]
    return ExchangePlan(
        before=ExchangePhase.joined(phases) if phases else None,
        after=None,
        gather=Moves.joined([]),
        scatter=Moves.joined([plan.scatter for plan in plans]),
        buffer_bytes=added((plan.buffer_bytes for plan in plans), num_tiles),
    )


def nothing_moves(layout: Layout) -> ExchangePlan:
    """The exchange plan of a step that moves nothing."""
    none = Moves.joined([])
    return ExchangePlan(None, None, none, none, TileVector.zero(layout.num_tiles))


def plan_broadcast(tensor: Tensor, layout: Layout, tiles_per_ipu: int) -> ExchangePlan:
    """The exchange plan of a control decision: every tile gets the one element that decides.

    All tiles but the sender do the same, so one entry of each column stands for them, and a decision costs no more on
    a Pod than on one IPU. The element leaves its tile once, arrives as whole words, and crosses to each other IPU once.
    A tile and its neighbour on the exchange bus receive it together, unless the neighbour sends it or is missing.
    """
    num_tiles, size = layout.num_tiles, tensor.dtype.bytes
    if num_tiles == 1:
        return nothing_moves(layout)
    holder = int(layout.cut(*tensor.intervals()).tile[0])
    # Only the sender, its neighbour and the last tile (which may lack a neighbour) differ from all others.
    unlike = {holder, min(holder ^ 1, num_tiles - 1), num_tiles - 1}
    tiles = TileSet(np.array(sorted(unlike), dtype=np.int32), num_tiles)
    others = 0 if tiles.is_all else 1
    receives = TileVector(tiles, np.append(tiles.tiles != holder, others))
    sends = TileVector(tiles, np.append(tiles.tiles == holder, 0))
    alone = (tiles.tiles | 1 == holder | 1) | (tiles.tiles ^ 1 >= num_tiles)
    num_ipus, home = -(-num_tiles // tiles_per_ipu), holder // tiles_per_ipu
    ipus = np.delete(np.arange(num_ipus, dtype=np.int64), home)
    words = -(-size // WORD_BYTES) * WORD_BYTES
    phase = ExchangePhase(
        received_bytes=receives.times(words),
        sent_bytes=sends.times(words),
        received_fragments=receives,
        sent_fragments=sends,
        paired_bytes=TileVector(tiles, np.append(~alone, others)).times(size // PAIR_BYTES * PAIR_BYTES),
        link_bytes=LinkBytes(np.full_like(ipus, home), ipus, np.full_like(ipus, size)),
    )
    return replace(nothing_moves(layout), before=phase)


def plan_delivery(
    tensor: Tensor, tile: Int32, layout: Layout, tiles_per_ipu: int, *, outward: bool = False
) -> ExchangePlan:
    """The exchange plan of a step in which each element of a view is wanted on a tile, or made there.

    Args:
        tensor: The view.
        tile: Tile of each element, in flattened order, int32[size].
        layout: Tile and address of the graph's elements.
        tiles_per_ipu: Tiles of one IPU.
        outward: The tiles send the elements home instead of getting them.
    """
    held = layout.cut(*tensor.intervals())
    ends = np.cumsum(held.length)
    # Cut at the ends of the view's pieces and wherever the wanted tile changes.
    cuts = distinct(np.concatenate([ends, np.flatnonzero(tile[1:] != tile[:-1]) + 1]))
    length = np.diff(cuts, prepend=0)
    start = cuts - length
    source = np.searchsorted(ends, start, side="right")
    begin = held.begin[source] + start - (ends - held.length)[source]
    needer, holder = tile[start], held.tile[source]
    far = np.flatnonzero(needer != holder)
    if len(far) == 0:
        return nothing_moves(layout)
    here, there = (needer, holder) if not outward else (holder, needer)
    pieces = _Pieces(begin[far], length[far], held.share[source][far], tensor.dtype.bytes)
    wishes = pieces.transferred(here[far], there[far], np.ones(len(far), dtype=bool))
    phase, moves = phase_of(wishes, layout.num_tiles, tiles_per_ipu)
    buffers = TileVector.zero(layout.num_tiles) if outward else phase.received_bytes
    return ExchangePlan(phase, None, Moves.joined([]), moves, buffers)
