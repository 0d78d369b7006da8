"""Exchange blocks: bytes between tiles, added up over blocks of neighbouring tiles.

Which tile gets what from which is known while a phase is planned, and forgotten afterwards, because a phase over 1,472
tiles may have two million pairs. So it is found anew where somebody asks, by planning the step again, and in blocks of
tiles as small as the asker wants. What an audience (``audiences``) receives is looked at once: its bytes from each
block, times its members in each other block, less what members hold themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from abele.arrays import Int32, Int64
from abele.compiler.multicast_groups import Audiences
from abele.graph.intervals import distinct


class TileBlocks(NamedTuple):
    """Tiles in blocks of neighbours, none of which reaches from one IPU into the next.

    Attributes:
        of_tile: Block of each tile, int32[tiles].
        first: First tile of each block, int64[blocks].
        width: Tiles of a block; the last one of an IPU may have fewer.
    """

    of_tile: Int32
    first: Int64
    width: int

    @staticmethod
    def of(num_tiles: int, tiles_per_ipu: int, width: int) -> TileBlocks:
        """Blocks of ``width`` tiles."""
        each = -(-tiles_per_ipu // width)
        tile = np.arange(num_tiles)
        of_tile = tile // tiles_per_ipu * each + tile % tiles_per_ipu // width
        return TileBlocks(of_tile.astype(np.int32), np.flatnonzero(np.diff(of_tile, prepend=-1)), width)


class BlockBytes(NamedTuple):
    """Bytes from blocks of tiles to blocks of tiles, for the pairs that exchange any.

    Attributes:
        source: Sending block of each pair, int64[n].
        target: Receiving block, int64[n]; pairs are distinct and in order of (source, target).
        bytes: Bytes that the tiles of the one receive from those of the other, whole words, int64[n].
    """

    source: Int64
    target: Int64
    bytes: Int64

    @staticmethod
    def of(source: Int64, target: Int64, amount: Int64) -> BlockBytes:
        """The sums of ``amount``, int64[k], for each pair of blocks."""
        base = int(max(source.max(initial=0), target.max(initial=0))) + 1
        key = source * base + target
        pairs = distinct(key)
        total = np.bincount(np.searchsorted(pairs, key), weights=amount, minlength=len(pairs)).astype(np.int64)
        some = np.flatnonzero(total)
        return BlockBytes(pairs[some] // base, pairs[some] % base, total[some])

    @staticmethod
    def joined(parts: list[BlockBytes]) -> BlockBytes:
        """Several exchanges at the same time."""
        source, target, amount = (np.concatenate(side) for side in zip(*parts, strict=True))
        return BlockBytes.of(source, target, amount)


def block_bytes(receiver: Int64, sender: Int32, amount: Int64, audiences: Audiences, blocks: TileBlocks) -> BlockBytes:
    """Bytes between blocks of tiles.

    Args:
        receiver: Audience that gets each piece, int64[k].
        sender: Tile that holds it, int32[k].
        amount: Its bytes, int64[k].
        audiences: The audiences.
        blocks: The blocks of tiles.
    """
    count, base = len(audiences), len(blocks.first)
    key = blocks.of_tile[sender].astype(np.int64) * count + receiver
    wanted = distinct(key)
    total = np.bincount(np.searchsorted(wanted, key), weights=amount, minlength=len(wanted)).astype(np.int64)
    # How many members of each audience are in which block.
    members = audiences.owner * base + blocks.of_tile[audiences.tile]
    kinds = distinct(members)
    number = np.bincount(np.searchsorted(kinds, members), minlength=len(kinds))
    ptr = np.searchsorted(kinds, np.arange(count + 1) * base)
    audience = wanted % count
    each = (ptr[1:] - ptr[:-1])[audience]
    at = np.arange(each.sum()) + np.repeat(ptr[audience] - (np.cumsum(each) - each), each)
    source, target = np.repeat(wanted // count, each), kinds[at] % base
    size = np.repeat(total, each) * number[at]
    if audiences.is_alone:  # What its only member holds is in no audience's list.
        return BlockBytes.of(source, target, size)
    own = audiences.members(receiver, sender)
    home = blocks.of_tile[sender[own]].astype(np.int64)
    sides = ((source, home), (target, home), (size, -amount[own]))
    return BlockBytes.of(*(np.concatenate(side) for side in sides))
