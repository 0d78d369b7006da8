"""Traffic: bytes of an exchange phase, each element once to a receiving tile and once from its sender.

Requests for pieces of memory overlap: vertices of one tile want the same elements, and so do tiles. Both are settled by
a sweep over sorted intervals. Sorted by (receiver, address), the part of an interval beyond the furthest end so far is
what no earlier request of that tile has brought, and the sum of these parts is the union exactly; nothing is compared
pair by pair. Sorted by address alone, the same sweep over what arrives gives what leaves, since packed addresses belong
to one tile: each element leaves once, and the fabric delivers it to all that listen. A third one, by (receiving IPU,
address), gives the bytes that cross between IPUs, which also cross once for all tiles behind the link. Requests without
a layout constraint are placed first at an address; the others pay for a copy where their elements have come already.

A receiver is an audience (``audiences``): tiles that want the same are swept once.

Example: two vertices of tile 5 want elements [0, 100) and [50, 150) that tile 3 holds. 150 elements leave tile 3 and
arrive at tile 5. If tile 6 wants the same, it receives 150 too, and tile 3 still sends 150.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Bool, Int32, Int64
from abele.compiler.exchange_blocks import BlockBytes, TileBlocks, block_bytes
from abele.compiler.moves import GRANULES, Moves, granules
from abele.compiler.multicast_groups import Audiences, Neighbours
from abele.compiler.tile_vector import TileSet, TileVector
from abele.graph.intervals import distinct, order_of

Column = npt.NDArray[Any]
Int8 = npt.NDArray[np.int8]

WORD_BYTES = 4
PAIR_BYTES = 8
"""Bytes that a pair of tiles receives at once. Source: machine.md §2.2 (64-bit items)."""
_MOST_COMPARED = 1 << 20
"""Pieces of neighbouring tiles that are compared at a time. Chosen: it bounds the memory for it."""


class Transfers(NamedTuple):
    """Pieces of memory that tiles want from other tiles.

    Attributes:
        receiver: Tile, or audience, that wants the piece, int64[k].
        sender: Tile that holds it, int32[k].
        begin: First packed address, int64[k].
        length: Elements, int64[k].
        share: Packed address from which the piece is laid out without a gap, int64[k].
        width: Bytes of an element, int8[k].
        alone: True where whoever wants the piece is content with it wherever it arrives, bool[k]; otherwise a second
            wish for the same element on a tile costs a copy there.
    """

    receiver: Int64
    sender: Int32
    begin: Int64
    length: Int64
    share: Int64
    width: Int8
    alone: Bool

    @staticmethod
    def joined(parts: Sequence[Transfers]) -> Transfers:
        """All pieces of several sets, of which there is one at least."""
        if len(parts) == 1:
            return parts[0]
        return Transfers(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class LinkBytes(NamedTuple):
    """Bytes between IPUs, for the pairs that send any.

    Attributes:
        source: Sending IPU of each pair, int64[n].
        target: Receiving IPU, int64[n]; pairs are distinct and in order of (source, target).
        bytes: Bytes that cross from one to the other, int64[n].
    """

    source: Int64
    target: Int64
    bytes: Int64

    @staticmethod
    def none() -> LinkBytes:
        """Nothing crosses."""
        empty = np.empty(0, dtype=np.int64)
        return LinkBytes(empty, empty, empty)

    @staticmethod
    def of(source: Int64, target: Int64, amount: Int64) -> LinkBytes:
        """The sums of ``amount``, int64[k], for each pair of IPUs that differ."""
        far = np.flatnonzero((source != target) & (amount > 0))
        if len(far) == 0:
            return LinkBytes.none()
        base = int(max(source.max(), target.max())) + 1
        key = source[far] * base + target[far]
        pairs = distinct(key)
        total = np.bincount(np.searchsorted(pairs, key), weights=amount[far], minlength=len(pairs))
        return LinkBytes(pairs // base, pairs % base, total.astype(np.int64))

    def dense(self, num_ipus: int) -> Int64:
        """Bytes from each IPU to each other, int64[num_ipus, num_ipus]."""
        result = np.zeros((num_ipus, num_ipus), dtype=np.int64)
        result[self.source, self.target] = self.bytes
        return result


@dataclass(frozen=True, eq=False, slots=True)
class ExchangePhase:
    """One exchange phase, tile by tile; its vectors are over one set of tiles, those that take part.

    Attributes:
        received_bytes: Bytes that arrive, whole words.
        sent_bytes: Bytes that leave; an element that several tiles want leaves once.
        received_fragments: Pieces that arrive.
        sent_fragments: Pieces that leave.
        paired_bytes: Bytes that arrive at the neighbour on the exchange bus too.
        link_bytes: Bytes between IPUs.
        is_local: True if some of what arrives comes from the same IPU.
        blocks: Bytes between blocks of tiles, where they were asked for.
    """

    received_bytes: TileVector
    sent_bytes: TileVector
    received_fragments: TileVector
    sent_fragments: TileVector
    paired_bytes: TileVector
    link_bytes: LinkBytes
    is_local: bool = True
    blocks: BlockBytes | None = None

    @staticmethod
    def joined(phases: Sequence[ExchangePhase]) -> ExchangePhase:
        """Several phases at the same time: tiles and links have all of their traffic to carry."""
        if len(phases) == 1:
            return phases[0]
        first = phases[0].received_bytes.tile_set
        alike = all(phase.received_bytes.tile_set is first for phase in phases)
        columns = [phase.received_bytes.tile_set.tiles for phase in phases]
        tiles = first if alike else TileSet.of(columns, first.num_tiles)

        def total(name: str) -> TileVector:
            return TileVector(tiles, sum((getattr(p, name).over(tiles) for p in phases), tiles.zeros()))

        blocks = [phase.blocks for phase in phases if phase.blocks is not None]
        crossing = (np.concatenate(side) for side in zip(*(p.link_bytes for p in phases), strict=True))
        return ExchangePhase(
            received_bytes=total("received_bytes"),
            sent_bytes=total("sent_bytes"),
            received_fragments=total("received_fragments"),
            sent_fragments=total("sent_fragments"),
            paired_bytes=total("paired_bytes"),
            link_bytes=LinkBytes.of(*crossing),
            is_local=any(phase.is_local for phase in phases),
            blocks=BlockBytes.joined(blocks) if blocks else None,
        )

    @property
    def total_bytes(self) -> int:
        """Bytes that all tiles receive."""
        return self.received_bytes.sum()

    @property
    def num_phases(self) -> int:
        """Number of exchanges, each after a barrier: one for traffic on chips, one for traffic between them."""
        return 2 if self.is_local and len(self.link_bytes.source) else 1


class _AudienceCopies(NamedTuple):
    """Copies that each audience makes, but for members with the data on them.

    Attributes:
        audience: Audience that copies, int64[k].
        holder: Tile of the data, int32[k].
        bytes: Bytes of each copy, int64[k].
        granule: As in ``Moves``, int64[k].
    """

    audience: Int64
    holder: Int32
    bytes: Int64
    granule: Int64

    def by_tile(self, tiles: TileSet, audiences: Audiences) -> Moves:
        """Copies of every tile; those of audiences are added up for their members."""
        if audiences.is_alone:
            return Moves.single(audiences.tile[self.audience], self.bytes, self.granule)
        found = []
        for granule in GRANULES:
            here = np.flatnonzero(self.granule == granule)
            if len(here) == 0:
                continue
            audience, holder = self.audience[here], self.holder[here]
            pieces, size = audiences.sums(tiles, audience, holder, (None, self.bytes[here]))
            some = np.flatnonzero(pieces[:-1])
            found.append(Moves(tiles.tiles[some], size[some], np.full(len(some), granule), pieces[some]))
        return Moves.joined(found)


def phase_of(
    transfers: Transfers,
    num_tiles: int,
    tiles_per_ipu: int,
    audiences: Audiences | None = None,
    blocks: TileBlocks | None = None,
) -> tuple[ExchangePhase, Moves]:
    """Exchange phase that serves ``transfers``, and the copies within tiles for the rest of its work.

    Copies are needed where a tile wants an element again in another arrangement, and where pieces of less than
    a word, or not aligned to one, arrive.

    Args:
        transfers: Requests to serve.
        num_tiles: Tiles of the machine.
        tiles_per_ipu: Tiles of one IPU.
        audiences: The receivers; None where these are tiles.
        blocks: Blocks of tiles between which bytes are counted, or None.
    """
    if audiences is None:
        audiences, receiver = Audiences.alone(transfers.receiver.astype(np.int32, copy=False), num_tiles)
        transfers = transfers._replace(receiver=receiver)
    transfers = _by_address(transfers)
    sent, is_apart = _sent(transfers)
    fragments, repeated = _received(transfers, audiences, is_apart=is_apart)
    del transfers
    size = fragments.length * fragments.width
    sent_size = _words(sent.length * sent.width)
    tiles = TileSet.of([audiences.tile, sent.sender], num_tiles)
    sender = tiles.positions(sent.sender)

    received, arriving = audiences.sums(tiles, fragments.receiver, fragments.sender, (_words(size), None))
    # If audiences receive no more than is sent, no two of them want the same.
    differ = int(fragments.length.sum()) == int(sent.length.sum())
    link_bytes, is_local = _link_bytes(fragments, audiences, tiles_per_ipu)
    phase = ExchangePhase(
        received_bytes=TileVector(tiles, received),
        sent_bytes=TileVector(tiles, tiles.sum(sender, sent_size)),
        received_fragments=TileVector(tiles, arriving),
        sent_fragments=TileVector(tiles, tiles.count(sender)),
        paired_bytes=TileVector(tiles, _paired_bytes(fragments, tiles, audiences, differ=differ)),
        link_bytes=link_bytes,
        is_local=is_local,
        blocks=None
        if blocks is None
        else block_bytes(fragments.receiver, fragments.sender, _words(size), audiences, blocks),
    )
    moves = [copies.by_tile(tiles, audiences) for copies in (repeated, _unaligned(fragments, size))]
    return phase, Moves.joined(moves)


def _words(size: Int64) -> Int64:
    """Bytes of whole words."""
    return (size + WORD_BYTES - 1) // WORD_BYTES * WORD_BYTES


def _by_address(transfers: Transfers) -> Transfers:
    """Requests in order of address, those without a layout constraint first (see the top of the module)."""
    return _taken(transfers, _order(transfers.begin * 2 + ~transfers.alone))


def _received(transfers: Transfers, audiences: Audiences, *, is_apart: bool) -> tuple[Transfers, _AudienceCopies]:
    """Pieces that arrive at each receiver once, and the copies of repeated requests, in order of address.

    Requests that are apart bring nothing twice, so they arrive as they are: only those that may join their neighbours
        are put side by side. Other requests are sorted by receiver, which keeps the order of each.
    """
    nothing = np.empty(0, dtype=np.int64)
    if is_apart and audiences.is_alone:
        joinable = np.flatnonzero(transfers.alone)
        joined = _taken(transfers, joinable)
        joined = _merged(_taken(joined, _by_receiver(joined.receiver, len(audiences))))
        others = transfers if len(joinable) == 0 else _taken(transfers, np.flatnonzero(~transfers.alone))
        parts = [part for part in (others, joined) if len(part.begin)]
        return Transfers.joined(parts), _AudienceCopies(nothing, nothing.astype(np.int32), nothing, nothing)
    wanted = _taken(transfers, _by_receiver(transfers.receiver, len(audiences)))
    span = int((wanted.begin + wanted.length).max(initial=0)) + 1
    key = wanted.receiver.astype(np.int64) * span + wanted.begin
    fresh, length = _news(key, wanted.length)
    again = np.flatnonzero((length < wanted.length) & ~wanted.alone)
    size = (wanted.length[again] - length[again]) * wanted.width[again]
    offset = (wanted.begin[again] - wanted.share[again]) * wanted.width[again]
    copies = _AudienceCopies(wanted.receiver[again], wanted.sender[again], size, granules(offset, size))
    # The sort key is shifted by a multiple of the span, so the difference of keys is that of addresses.
    found = _without_empty(wanted._replace(begin=wanted.begin + (fresh - key), length=length))
    return _merged(found), copies


def _sent(transfers: Transfers) -> tuple[Transfers, bool]:
    """Pieces that leave each sending tile once, and true if no element is wanted twice; requests are in order of
    address.

    Packed addresses belong to one tile, so requests for the same data are neighbours whoever makes them. Each new
    element among them leaves once, for all that want it.
    """
    begin, length = _news(transfers.begin, transfers.length)
    is_apart = bool((length == transfers.length).all())
    found = transfers._replace(
        receiver=np.broadcast_to(np.int64(0), len(begin)),
        begin=begin,
        length=length,
        alone=np.broadcast_to(np.bool_(True), len(begin)),
    )
    return _merged(found if is_apart else _without_empty(found)), is_apart


def _order(key: Int64) -> Int64 | slice:
    """Permutation that sorts ``key``, or a slice where it is sorted already."""
    return slice(None) if bool((key[1:] >= key[:-1]).all()) else order_of(key)


def _by_receiver(receiver: Int64, count: int) -> Int64 | slice:
    """Permutation that sorts receivers below ``count`` and keeps equal ones in order."""
    # Narrow numbers are sorted by their digits, without a comparison.
    narrow = receiver.astype(np.uint16) if count <= 1 << 16 else receiver
    return slice(None) if bool((narrow[1:] >= narrow[:-1]).all()) else order_of(narrow)


def _taken(transfers: Transfers, which: Int64 | slice) -> Transfers:
    if isinstance(which, slice):
        return transfers
    return Transfers._make(column[which] for column in transfers)


def _without_empty(f: Transfers) -> Transfers:
    return f if f.length.all() else _taken(f, np.flatnonzero(f.length))


def _news(begin: Int64, length: Int64) -> tuple[Int64, Int64]:
    """The part of each interval that none before it holds, as begin and length; intervals are in order."""
    end = begin + length
    fresh = np.maximum(begin, _reach_before(end))
    return fresh, np.maximum(end - fresh, 0)


def _reach_before(end: Int64) -> Int64:
    """Largest end before each interval; −1 before the first."""
    reach = np.empty_like(end)
    reach[:1] = -1
    np.maximum.accumulate(end[:-1], out=reach[1:])
    return reach


def _merged(f: Transfers) -> Transfers:
    """Join neighbours that lie in one piece of memory, go from one sender to one receiver and may arrive as one."""
    # A fragment starts where memory, receiver, arrangement or sender changes, or where either neighbour must arrive by
    # itself.
    joins = f.begin[1:] == f.begin[:-1] + f.length[:-1]
    joins &= f.alone[1:] & f.alone[:-1]
    if not joins.any():
        return f
    for column in (f.receiver, f.share, f.sender):
        joins &= column[1:] == column[:-1]
    first = np.flatnonzero(np.append(True, ~joins))
    if len(first) == len(f.begin):
        return f
    return _taken(f, first)._replace(length=np.add.reduceat(f.length, first))


def _unaligned(f: Transfers, size: Int64) -> _AudienceCopies:
    """Copies that put arriving pieces of odd half-words or bytes in place."""
    odd = np.flatnonzero(f.width < WORD_BYTES)
    granule = granules((f.begin[odd] - f.share[odd]) * f.width[odd], size[odd])
    bad = odd[granule < WORD_BYTES]
    return _AudienceCopies(f.receiver[bad], f.sender[bad], size[bad], granule[granule < WORD_BYTES])


def _paired_bytes(f: Transfers, tiles: TileSet, audiences: Audiences, *, differ: bool) -> Int64:
    """Bytes that each tile receives and its neighbour, the other one of tiles 2k and 2k + 1, receives too.

    Every piece that arrives at the even tile counts in whole items of the bus, as far as the odd one wants it. Pairs of
    the same two audiences have the same pieces in common, but for those that one of the two tiles holds itself, which
    are taken off pair by pair.
    """
    if differ and audiences.is_alone:
        return tiles.zeros()
    ptr = np.searchsorted(f.receiver, np.arange(len(audiences) + 1))
    pairs = _meeting(f, ptr, audiences.neighbours(), differ=differ)
    key = pairs.even * len(audiences) + pairs.odd
    kinds = distinct(key)
    kind = np.searchsorted(kinds, key)
    even, odd = np.divmod(kinds, len(audiences))
    total, own = np.zeros(len(kinds), dtype=np.int64), np.zeros(len(pairs.left), dtype=np.int64)
    # Which pair it is, by its kind and its place on the bus.
    half = audiences.num_tiles // 2 + 1
    order = order_of(kind * half + pairs.left // 2)
    place = (kind * half + pairs.left // 2)[order]
    for part in _portions((ptr[1:] - ptr[:-1])[even]):
        at, mine = _listed(ptr, even[part])
        common = _common(f, ptr, at, mine, odd[part]) * f.width[at] // PAIR_BYTES * PAIR_BYTES
        mine += part.start
        total += np.bincount(mine, weights=common, minlength=len(kinds)).astype(np.int64)
        if audiences.is_alone:  # Nobody's list has what its only member holds.
            continue
        asked = mine * half + f.sender[at] // 2
        found = np.minimum(np.searchsorted(place, asked), len(place) - 1)
        held = np.flatnonzero(place[found] == asked)
        own += np.bincount(order[found[held]], weights=common[held], minlength=len(own)).astype(np.int64)
    amount = total[kind] - own
    some = np.flatnonzero(amount)
    left = pairs.left[some]
    pair = tiles.positions(np.concatenate([left, left + np.int32(1)]))
    return tiles.sum(pair, np.concatenate([amount[some], amount[some]]))


def _meeting(f: Transfers, ptr: Int64, pairs: Neighbours, *, differ: bool) -> Neighbours:
    """Those pairs of tiles of which both may want some piece."""
    may = (ptr[pairs.even] < ptr[pairs.even + 1]) & (ptr[pairs.odd] < ptr[pairs.odd + 1])
    if differ:  # Then only tiles of one audience want the same.
        may &= pairs.even == pairs.odd
    pairs = pairs.where(may)
    first, last = f.begin[ptr[:-1] % max(len(f.begin), 1)], (f.begin + f.length)[ptr[1:] - 1]
    may = (first[pairs.even] < last[pairs.odd]) & (first[pairs.odd] < last[pairs.even])
    return pairs.where(may)


def _portions(sizes: Int64) -> Iterator[slice]:
    """Slices of a column of sizes, each of about the size that is compared at a time."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_COMPARED, side="right")))
        yield slice(start, stop)
        start = stop


def _listed(ptr: Int64, lists: Int64) -> tuple[Int64, Int64]:
    """Positions of the entries of some lists, and which of these lists each is of."""
    count = (ptr[1:] - ptr[:-1])[lists]
    number = np.repeat(np.arange(len(lists), dtype=np.int64), count)
    # An arange that starts afresh with each list: less where the list begins in the output.
    return np.arange(len(number), dtype=np.int64) + np.repeat(ptr[lists] - (np.cumsum(count) - count), count), number


def _common(f: Transfers, ptr: Int64, at: Int64, number: Int64, others: Int64) -> Int64:
    """Elements of fragments that other audiences want too.

    Args:
        f: All fragments.
        ptr: Those of audience a are ``ptr[a]`` to ``ptr[a + 1]``.
        at: The fragments, in order of ``number`` and address, int64[k].
        number: Entry of ``others`` that each is compared with, int64[k].
        others: Audiences, int64[n].
    """
    common = f.length[at]
    apart = np.flatnonzero(f.receiver[at] != others[number])
    if len(apart) == 0:
        return common
    theirs, which = _listed(ptr, others)
    span = int((f.begin + f.length).max()) + 1
    # Both sides of a comparison get the same axis, so what both want overlaps on it.
    mine = number[apart] * span + f.begin[at[apart]]
    common[apart] = _overlap(mine, common[apart], which * span + f.begin[theirs], f.length[theirs])
    return common


def _overlap(begin: Int64, length: Int64, other_begin: Int64, other_length: Int64) -> Int64:
    """Elements of each interval that others cover, int64[n]; the others are in order and apart."""
    # Elements covered up to an address, so that what is covered between two is a difference.
    before = np.cumsum(other_length) - other_length

    def covered(upto: Int64) -> Int64:
        i = np.maximum(np.searchsorted(other_begin, upto, side="right") - 1, 0)
        # Below the first interval nothing is covered, which is what a negative distance from it comes to.
        return np.asarray(before[i] + np.clip(upto - other_begin[i], 0, other_length[i]))

    return np.asarray(covered(begin + length) - covered(begin))


def _link_bytes(f: Transfers, audiences: Audiences, tiles_per_ipu: int) -> tuple[LinkBytes, bool]:
    """Bytes between IPUs, each element once per receiving IPU; and true if some stay on an IPU."""
    if audiences.num_tiles <= tiles_per_ipu:
        return LinkBytes.none(), True
    if audiences.is_alone:
        at, target = np.arange(len(f.begin)), (audiences.tile // tiles_per_ipu).astype(np.int64)[f.receiver]
    else:
        audience, ipu = audiences.ipus(tiles_per_ipu)
        at, number = _listed(np.searchsorted(f.receiver, np.arange(len(audiences) + 1)), audience)
        target = ipu[number]
    source = (f.sender // tiles_per_ipu).astype(np.int64)[at]
    far = np.flatnonzero(source != target)
    is_local = len(far) < len(source)
    at, target, source = at[far], target[far], source[far]
    span = int((f.begin + f.length).max(initial=0)) + 1
    # Per receiving IPU instead of per tile: what is new to the IPU crosses, the rest is there already.
    key = target * span + f.begin[at]
    order = _order(key)
    crossing = _news(key[order], f.length[at][order])[1] * f.width[at][order]
    return LinkBytes.of(source[order], target[order], crossing), is_local
