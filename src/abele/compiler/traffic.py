"""Traffic: what an exchange phase moves between tiles, each element once to a receiving tile and once from its sender.

Wishes for pieces of memory overlap: vertices of one tile want the same elements, and so do tiles. Both are settled by
a sweep over sorted intervals. Sorted by (receiver, address), the part of an interval beyond the furthest end so far is
what no earlier wish of that tile has brought, and the sum of these parts is the union exactly; nothing is compared
pair by pair. Sorted by address alone, the same sweep over what arrives gives what leaves, since packed addresses
belong to one tile: each element leaves once, and the fabric delivers it to all that listen. A third one, by (receiving
IPU, address), gives the bytes that cross between IPUs, which also cross once for all tiles behind the link. Wishes that
are content with any arrangement come before the others at the same address; only the others pay for a copy where their
elements have come already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.compiler.tile_vector import TileSet, TileVector
from abele.graph.intervals import Int64
from abele.graph.mapping import Int32

Bool = npt.NDArray[np.bool_]
Column = npt.NDArray[Any]
Int8 = npt.NDArray[np.int8]

WORD_BYTES = 4
PAIR_BYTES = 8
"""What a pair of tiles receives at once. Source: machine.md §2.2 (64-bit items)."""


class Transfers(NamedTuple):
    """Pieces of memory that tiles want from other tiles.

    Attributes:
        receiver: Tile that wants the piece, int32[k].
        sender: Tile that holds it, int32[k].
        begin: First packed address, int64[k].
        length: Elements, int64[k].
        share: Packed address from which the piece is laid out without a gap, int64[k].
        width: Bytes of an element, int8[k].
        alone: True where whoever wants the piece is content with it wherever it arrives, bool[k]; otherwise a second
            wish for the same element on a tile costs a copy there.
    """

    receiver: Int32
    sender: Int32
    begin: Int64
    length: Int64
    share: Int64
    width: Int8
    alone: Bool

    @staticmethod
    def joined(parts: Sequence[Transfers]) -> Transfers:
        """All pieces of several sets."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            empty, tiles = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
            return Transfers(
                receiver=tiles,
                sender=tiles,
                begin=empty,
                length=empty,
                share=empty,
                width=empty.astype(np.int8),
                alone=empty > 0,
            )
        return Transfers(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class Moves(NamedTuple):
    """Copies within tiles.

    Attributes:
        tile: Tile of each copy, int32[k].
        bytes: Bytes that it moves, int64[k].
        granule: Largest power of two up to 8 that divides its size and offset in bytes, int64[k].
    """

    tile: Int32
    bytes: Int64
    granule: Int64

    @staticmethod
    def joined(parts: Sequence[Moves]) -> Moves:
        """All copies of several sets."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            empty = np.empty(0, dtype=np.int64)
            return Moves(empty.astype(np.int32), empty, empty)
        return Moves(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def bytes_by_tile(self, num_tiles: int) -> TileVector:
        """Bytes copied on each tile."""
        return TileVector.sum_of(self.tile, self.bytes, num_tiles)


class LinkBytes(NamedTuple):
    """Bytes between IPUs, for the pairs that send any.

    Attributes:
        source: Sending IPU of each pair, int64[n].
        target: Receiving IPU, int64[n]; pairs are distinct and in order of (source, target).
        bytes: What crosses from one to the other, int64[n].
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
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        return LinkBytes(key[first] // base, key[first] % base, np.add.reduceat(amount[far][order], first))

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
        paired_bytes: Bytes of what arrives that arrives at the neighbour on the exchange bus too.
        link_bytes: Bytes between IPUs.
    """

    received_bytes: TileVector
    sent_bytes: TileVector
    received_fragments: TileVector
    sent_fragments: TileVector
    paired_bytes: TileVector
    link_bytes: LinkBytes

    @property
    def total_bytes(self) -> int:
        """Bytes that all tiles receive."""
        return self.received_bytes.sum()


class _Fragments(NamedTuple):
    tile: Int32
    peer: Int32
    begin: Int64
    length: Int64
    share: Int64
    width: Int8
    alone: Bool


def granules(offset_bytes: Int64, length_bytes: Int64) -> Int64:
    """Largest power of two up to 8 that divides both, int64[k]."""
    bits = offset_bytes | length_bytes | 8
    return bits & -bits


def phase_of(transfers: Transfers, num_tiles: int, tiles_per_ipu: int) -> tuple[ExchangePhase, Moves]:
    """The exchange phase that serves ``transfers``, and the copies within tiles that finish its work.

    Copies are needed where a tile wants an element a second time in another arrangement, and where pieces of less than
    a word, or not aligned to one, arrive.
    """
    fragments, repeated = _received(transfers)
    size = fragments.length * fragments.width
    words = (size + WORD_BYTES - 1) // WORD_BYTES * WORD_BYTES
    sent = _sent(fragments)
    sent_size = (sent.length * sent.width + WORD_BYTES - 1) // WORD_BYTES * WORD_BYTES
    tiles = TileSet.of([fragments.tile, sent.tile], num_tiles)
    receiver, sender = tiles.positions(fragments.tile), tiles.positions(sent.tile)
    phase = ExchangePhase(
        TileVector(tiles, tiles.sum(receiver, words)),
        TileVector(tiles, tiles.sum(sender, sent_size)),
        TileVector(tiles, tiles.count(receiver)),
        TileVector(tiles, tiles.count(sender)),
        TileVector(tiles, _paired_bytes(fragments, tiles)),
        _link_bytes(fragments, num_tiles, tiles_per_ipu),
    )
    return phase, Moves.joined([repeated, _unaligned(fragments, size)])


def _received(transfers: Transfers) -> tuple[_Fragments, Moves]:
    """What arrives at each tile once, and the copies for what it wanted again."""
    span = int((transfers.begin + transfers.length).max(initial=0)) + 1
    key = transfers.receiver.astype(np.int64) * span + transfers.begin
    # The lowest bit puts wishes without an arrangement of their own first (see the top of the module).
    order = _order(key * 2 + ~transfers.alone)
    wanted, key = _Fragments(*_taken(transfers, order)), key[order]
    fresh, length = _news(key, wanted.length)
    again = np.flatnonzero((length < wanted.length) & ~wanted.alone)
    size = (wanted.length[again] - length[again]) * wanted.width[again]
    offset = (wanted.begin[again] - wanted.share[again]) * wanted.width[again]
    # The sort key is shifted by a multiple of the span, so the difference of keys is that of addresses.
    found = _without_empty(wanted._replace(begin=wanted.begin + (fresh - key), length=length))
    return _merged(found, found.peer, found.alone), Moves(wanted.tile[again], size, granules(offset, size))


def _sent(received: _Fragments) -> _Fragments:
    """What leaves each sending tile: one multicast for all that want it."""
    # Packed addresses belong to one tile: in order of address, wishes for the same data are neighbours whoever wants
    # them.
    f = _Fragments(*_taken(received, _order(received.begin)))
    begin, length = _news(f.begin, f.length)
    found = _without_empty(f._replace(tile=f.peer, peer=f.tile, begin=begin, length=length))
    return _merged(found, found.tile, np.ones(len(found.begin), dtype=bool))


def _order(key: Int64) -> Int64 | slice:
    """What sorts ``key``: everything as it is where it is sorted."""
    return slice(None) if bool((key[1:] >= key[:-1]).all()) else np.argsort(key, kind="stable")


def _taken(columns: Iterable[Column], which: Int64 | slice) -> Iterator[Column]:
    return (column[which] for column in columns)


def _without_empty(f: _Fragments) -> _Fragments:
    return f if f.length.all() else _Fragments(*_taken(f, np.flatnonzero(f.length)))


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


def _merged(f: _Fragments, peer: Int32, joinable: Bool) -> _Fragments:
    """Join neighbours that lie in one piece of memory, come from one peer and may arrive as one."""
    if len(f.begin) == 0:
        return f
    # A fragment starts where memory, tile, arrangement or peer changes, or where either neighbour must arrive by
    # itself.
    starts = np.append(True, f.begin[1:] != f.begin[:-1] + f.length[:-1]) | ~joinable
    starts[1:] |= (f.tile[1:] != f.tile[:-1]) | (f.share[1:] != f.share[:-1])
    starts[1:] |= (peer[1:] != peer[:-1]) | ~joinable[:-1]
    first = np.flatnonzero(starts)
    if len(first) == len(f.begin):
        return f
    return _Fragments(
        tile=f.tile[first],
        peer=f.peer[first],
        begin=f.begin[first],
        length=np.add.reduceat(f.length, first),
        share=f.share[first],
        width=f.width[first],
        alone=f.alone[first],
    )


def _unaligned(f: _Fragments, size: Int64) -> Moves:
    """Copies that put arriving pieces of odd half-words or bytes in place."""
    odd = np.flatnonzero(f.width < WORD_BYTES)
    granule = granules((f.begin[odd] - f.share[odd]) * f.width[odd], size[odd])
    bad = granule < WORD_BYTES
    return Moves(f.tile[odd][bad], size[odd][bad], granule[bad])


def _paired_bytes(f: _Fragments, tiles: TileSet) -> Int64:
    """Bytes that each tile receives and its neighbour, the other one of tiles 2k and 2k + 1, receives too."""
    even = f.tile % 2 == 0
    mine, theirs = np.flatnonzero(even), np.flatnonzero(~even)
    if len(mine) == 0 or len(theirs) == 0:
        return tiles.zeros()
    span = int((f.begin + f.length).max()) + 1
    # Both tiles of a pair get the same axis, so what both receive overlaps on it.
    key = (f.tile // 2).astype(np.int64) * span + f.begin
    common = _overlap(key[mine], f.length[mine], key[theirs], f.length[theirs]) * f.width[mine]
    common = common // PAIR_BYTES * PAIR_BYTES
    some = np.flatnonzero(common)
    left = f.tile[mine[some]]
    pair = tiles.positions(np.concatenate([left, left + np.int32(1)]))
    return tiles.sum(pair, np.concatenate([common[some], common[some]]))


def _overlap(begin: Int64, length: Int64, other_begin: Int64, other_length: Int64) -> Int64:
    """How much of each interval others cover, int64[n]; the others are in order and apart."""
    # Elements covered up to an address, so that what is covered between two is a difference.
    before = np.concatenate([[0], np.cumsum(other_length)])

    def covered(upto: Int64) -> Int64:
        i = np.searchsorted(other_begin, upto, side="right") - 1
        inside = np.minimum(upto - other_begin[np.maximum(i, 0)], other_length[np.maximum(i, 0)])
        return np.where(i < 0, 0, before[np.maximum(i, 0)] + inside)

    return np.asarray(covered(begin + length) - covered(begin))


def _link_bytes(f: _Fragments, num_tiles: int, tiles_per_ipu: int) -> LinkBytes:
    """Bytes between IPUs; what several tiles of an IPU want crosses once."""
    if num_tiles <= tiles_per_ipu:
        return LinkBytes.none()
    source, target = f.peer // tiles_per_ipu, f.tile // tiles_per_ipu
    far = np.flatnonzero(source != target)
    span = int((f.begin + f.length).max(initial=0)) + 1
    # Per receiving IPU instead of per tile: what is new to the IPU crosses, the rest is there already.
    key = target[far].astype(np.int64) * span + f.begin[far]
    order = _order(key)
    crossing = _news(key[order], f.length[far][order])[1] * f.width[far][order]
    return LinkBytes.of(source[far][order].astype(np.int64), target[far][order].astype(np.int64), crossing)
