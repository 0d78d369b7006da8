"""Traffic: what an exchange phase moves between tiles, each element once a receiving tile and once from its sender."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.graph.intervals import Int64
from abele.graph.mapping import Int32

Bool = npt.NDArray[np.bool_]
Column = npt.NDArray[Any]
Int8 = npt.NDArray[np.int8]

WORD_BYTES = 4
_PAIR_BYTES = 8
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
        alone: Whether whoever wants the piece is content with it wherever it arrives, bool[k]; otherwise a second
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
            return Transfers(tiles, tiles, empty, empty, empty, empty.astype(np.int8), empty > 0)
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

    def bytes_by_tile(self, num_tiles: int) -> Int64:
        """Bytes copied on each tile, int64[num_tiles]."""
        return sum_by_tile(self.tile, self.bytes, num_tiles)


@dataclass(frozen=True, eq=False, slots=True)
class Phase:
    """One exchange phase, tile by tile.

    Attributes:
        received_bytes: Bytes that arrive, whole words, int64[tiles].
        sent_bytes: Bytes that leave; an element that several tiles want leaves once, int64[tiles].
        received_fragments: Pieces that arrive, int64[tiles].
        sent_fragments: Pieces that leave, int64[tiles].
        paired_bytes: Bytes of what arrives that arrives at the neighbour on the exchange bus too, int64[tiles].
        link_bytes: Bytes from each IPU to each other, int64[ipus, ipus].
    """

    received_bytes: Int64
    sent_bytes: Int64
    received_fragments: Int64
    sent_fragments: Int64
    paired_bytes: Int64
    link_bytes: Int64

    @property
    def total_bytes(self) -> int:
        """Bytes that all tiles receive."""
        return int(self.received_bytes.sum())


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


def sum_by_tile(tile: npt.NDArray[np.integer], amount: Int64, num_tiles: int) -> Int64:
    """Sum of ``amount`` for each tile, int64[num_tiles]; exact up to 2**53."""
    return np.bincount(tile, weights=amount, minlength=num_tiles).astype(np.int64)


def phase_of(transfers: Transfers, num_tiles: int, tiles_per_ipu: int) -> tuple[Phase, Moves]:
    """The exchange phase that serves ``transfers``, and the copies within tiles that finish its work.

    Copies are needed where a tile wants an element a second time in another arrangement, and where pieces of less than
    a word, or not aligned to one, arrive.
    """
    fragments, repeated = _received(transfers)
    size = fragments.length * fragments.width
    words = (size + WORD_BYTES - 1) // WORD_BYTES * WORD_BYTES
    sent = _sent(fragments)
    sent_size = (sent.length * sent.width + WORD_BYTES - 1) // WORD_BYTES * WORD_BYTES
    phase = Phase(
        sum_by_tile(fragments.tile, words, num_tiles),
        sum_by_tile(sent.tile, sent_size, num_tiles),
        np.bincount(fragments.tile, minlength=num_tiles),
        np.bincount(sent.tile, minlength=num_tiles),
        _paired_bytes(fragments, num_tiles),
        _link_bytes(fragments, words, num_tiles, tiles_per_ipu),
    )
    return phase, Moves.joined([repeated, _unaligned(fragments, size)])


def _received(transfers: Transfers) -> tuple[_Fragments, Moves]:
    """What arrives at each tile once, and the copies for what it wanted again."""
    span = int((transfers.begin + transfers.length).max(initial=0)) + 1
    key = transfers.receiver.astype(np.int64) * span + transfers.begin
    order = _order(key * 2 + ~transfers.alone)
    wanted, key = _Fragments(*_taken(transfers, order)), key[order]
    fresh, length = _news(key, wanted.length)
    again = np.flatnonzero((length < wanted.length) & ~wanted.alone)
    size = (wanted.length[again] - length[again]) * wanted.width[again]
    offset = (wanted.begin[again] - wanted.share[again]) * wanted.width[again]
    found = _without_empty(wanted._replace(begin=wanted.begin + (fresh - key), length=length))
    return _merged(found, found.peer, found.alone), Moves(wanted.tile[again], size, granules(offset, size))


def _sent(received: _Fragments) -> _Fragments:
    """What leaves each sending tile: one multicast for all that want it."""
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
    starts = np.append(True, f.begin[1:] != f.begin[:-1] + f.length[:-1]) | ~joinable
    starts[1:] |= (f.tile[1:] != f.tile[:-1]) | (f.share[1:] != f.share[:-1])
    starts[1:] |= (peer[1:] != peer[:-1]) | ~joinable[:-1]
    first = np.flatnonzero(starts)
    if len(first) == len(f.begin):
        return f
    return _Fragments(
        f.tile[first],
        f.peer[first],
        f.begin[first],
        np.add.reduceat(f.length, first),
        f.share[first],
        f.width[first],
        f.alone[first],
    )


def _unaligned(f: _Fragments, size: Int64) -> Moves:
    """Copies that put arriving pieces of odd half-words or bytes in place."""
    odd = np.flatnonzero(f.width < WORD_BYTES)
    granule = granules((f.begin[odd] - f.share[odd]) * f.width[odd], size[odd])
    bad = granule < WORD_BYTES
    return Moves(f.tile[odd][bad], size[odd][bad], granule[bad])


def _paired_bytes(f: _Fragments, num_tiles: int) -> Int64:
    """Bytes that each tile receives and its neighbour, the other one of tiles 2k and 2k + 1, receives too."""
    shared = np.zeros(num_tiles, dtype=np.int64)
    even = f.tile % 2 == 0
    mine, theirs = np.flatnonzero(even), np.flatnonzero(~even)
    if len(mine) == 0 or len(theirs) == 0:
        return shared
    span = int((f.begin + f.length).max()) + 1
    key = (f.tile // 2).astype(np.int64) * span + f.begin
    common = _overlap(key[mine], f.length[mine], key[theirs], f.length[theirs]) * f.width[mine]
    both = sum_by_tile(f.tile[mine], common // _PAIR_BYTES * _PAIR_BYTES, num_tiles)
    shared[1::2] = both[0::2][: num_tiles // 2]
    return shared + both


def _overlap(begin: Int64, length: Int64, other_begin: Int64, other_length: Int64) -> Int64:
    """How much of each interval others cover, int64[n]; the others are in order and apart."""
    before = np.concatenate([[0], np.cumsum(other_length)])

    def covered(upto: Int64) -> Int64:
        i = np.searchsorted(other_begin, upto, side="right") - 1
        inside = np.minimum(upto - other_begin[np.maximum(i, 0)], other_length[np.maximum(i, 0)])
        return np.where(i < 0, 0, before[np.maximum(i, 0)] + inside)

    return np.asarray(covered(begin + length) - covered(begin))


def _link_bytes(f: _Fragments, size: Int64, num_tiles: int, tiles_per_ipu: int) -> Int64:
    """Bytes between IPUs; what several tiles of an IPU want crosses once."""
    num_ipus = -(-num_tiles // tiles_per_ipu)
    if num_ipus == 1:
        return np.zeros((1, 1), dtype=np.int64)
    source, target = f.peer // tiles_per_ipu, f.tile // tiles_per_ipu
    far = np.flatnonzero(source != target)
    span = int((f.begin + f.length).max(initial=0)) + 1
    key = target[far].astype(np.int64) * span + f.begin[far]
    order = _order(key)
    crossing = _news(key[order], f.length[far][order])[1] * f.width[far][order]
    route = source[far][order].astype(np.int64) * num_ipus + target[far][order]
    return sum_by_tile(route, crossing, num_ipus * num_ipus).reshape(num_ipus, num_ipus)
