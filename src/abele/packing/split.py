"""Items over the capacity, cut into pieces that fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.errors import PackingError
from abele.packing.histogram import SizeHistogram
from abele.packing.packs import Packs

MOST_PIECES = 2**30
"""More pieces than this are refused: the numbers of so many would take 8 GiB."""


@dataclass(frozen=True, eq=False)
class ItemPieces:
    """Pieces of items, those of one item one after the other; an item that fits is one piece.

    Attributes:
        items: The item that each piece is of, int64[num_pieces].
        offsets: First element of the piece in its item, int64[num_pieces].
        lengths: Length of each piece, int64[num_pieces].
    """

    items: Int64
    offsets: Int64
    lengths: Int64


@dataclass(frozen=True, eq=False)
class SplitPacks(Packs):
    """Packs of pieces: ``items`` names the item of each piece, so that one that was split occurs several times.

    Attributes:
        offsets: First element of the piece in its item, int64[num_pieces], along ``items``.
        lengths: Length of the piece, int64[num_pieces], along ``items``.
    """

    offsets: Int64
    lengths: Int64

    @staticmethod
    def of(packs: Packs, pieces: ItemPieces) -> SplitPacks:
        """Packs of numbers of pieces, with what the pieces are."""
        chosen = packs.items
        return SplitPacks(pieces.items[chosen], packs.begins, pieces.offsets[chosen], pieces.lengths[chosen])


def split_items(rows: Int64, capacity: int) -> ItemPieces:
    """Cut items at multiples of the capacity.

    Args:
        rows: Lengths, int64[num_items, 1].
        capacity: The longest piece.

    Raises:
        PackingError: Items have several sizes, or there would be more than 2**30 pieces.
    """
    if rows.shape[1] != 1:
        raise PackingError(
            f"items of {rows.shape[1]} sizes each cannot be split",
            because="only sequences have a place to cut at",
        )
    lengths = rows[:, 0]
    num_pieces = -(-lengths // capacity)
    total = int(num_pieces.astype(np.float64).sum())
    if total > MOST_PIECES:
        raise PackingError(
            f"splitting {len(lengths):,} items at {capacity:,} would make {total:,} pieces, {MOST_PIECES:,} are allowed"
        )
    items = np.repeat(np.arange(len(lengths)), num_pieces)
    first = np.cumsum(num_pieces) - num_pieces
    offsets = (np.arange(len(items)) - first[items]) * capacity
    return ItemPieces(items, offsets, np.minimum(lengths[items] - offsets, capacity))


def split_histogram(histogram: SizeHistogram, capacity: int) -> SizeHistogram:
    """The histogram of the pieces of a histogram's items."""
    lengths, counts = histogram.lengths, histogram.counts
    whole, rest = np.divmod(lengths, capacity)
    sizes = np.concatenate(([capacity], rest[rest > 0]))
    full = sum(int(times) * int(count) for times, count in zip(whole, counts, strict=True))
    return SizeHistogram.of_kinds(sizes, np.array([full, *counts[rest > 0].tolist()], object))
