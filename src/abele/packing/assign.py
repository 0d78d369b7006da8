"""Actual items for the strategies of a plan: which item lies in which pack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import PackingError
from abele.packing.histogram import SizeHistogram, checked_sizes, size_text
from abele.packing.packs import Packs

if TYPE_CHECKING:
    from abele.packing.plan import PackingPlan


# Items over the capacity, cut into pieces that fit.

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


Seed = int | Sequence[int]


def assigned(plan: PackingPlan, sizes: npt.ArrayLike, seed: Seed | None) -> Packs:
    """The packs of ``plan`` filled with items of ``sizes``; see :meth:`PackingPlan.assign`.

    A counting sort brings the items of each size together. The packs of one strategy take the next items of each of
    its members' sizes: one copy for each member of a strategy, however many items there are. A seed shuffles the items
    of each size, in place, and the strategies among packs. So all random moves stay in the processor's caches.
    """
    rows = checked_sizes(sizes)
    pieces = split_items(rows, plan.capacity[0]) if plan.splits else None
    if pieces is not None:
        rows = pieces.lengths[:, None]
    order = _by_kind(kinds_of(rows, plan.histogram), len(plan.histogram.counts))
    taken = np.concatenate(([0], np.cumsum(plan.histogram.counts)))
    packs = _in_order(plan, order, taken) if seed is None else _shuffled(plan, order, taken, seed)
    return packs if pieces is None else SplitPacks.of(packs, pieces)


def _in_order(plan: PackingPlan, order: Int64, taken: Int64) -> Packs:
    """Packs strategy by strategy, each a table of its copies by its members."""
    items = np.empty_like(order)
    begin = 0
    for strategy, copies in enumerate(plan.counts.tolist()):
        members = plan.strategies[strategy].tolist()
        table = items[begin : begin + copies * len(members)].reshape(copies, len(members))
        for column, kind in enumerate(members):
            table[:, column] = order[taken[kind] : taken[kind] + copies]
            taken[kind] += copies
        begin += table.size
    return Packs(items, _begins(np.repeat(plan.strategies.depths, plan.counts)))


def _shuffled(plan: PackingPlan, order: Int64, taken: Int64, seed: Seed) -> Packs:
    """Packs of all strategies in random order, with the items of each size in random order."""
    generator = np.random.default_rng(seed)
    for begin, end in zip(taken[:-1].tolist(), taken[1:].tolist(), strict=True):
        generator.shuffle(order[begin:end])
    num_strategies = len(plan.counts)
    strategy_of = np.repeat(np.arange(num_strategies, dtype=np.min_scalar_type(num_strategies)), plan.counts)
    generator.shuffle(strategy_of)
    begins = _begins(plan.strategies.depths[strategy_of])
    places = begins[np.argsort(strategy_of, kind="stable")]
    items = np.empty_like(order)
    first = 0
    for strategy, copies in enumerate(plan.counts.tolist()):
        for column, kind in enumerate(plan.strategies[strategy].tolist()):
            items[places[first : first + copies] + column] = order[taken[kind] : taken[kind] + copies]
            taken[kind] += copies
        first += copies
    return Packs(items, begins)


def kinds_of(rows: Int64, histogram: SizeHistogram) -> npt.NDArray[np.integer[Any]]:
    """The row of ``histogram.sizes`` that each item is of, integers of shape [num_items].

    Raises:
        PackingError: There is an item of a size that the histogram lacks, or more or fewer of a size than it counted.
    """
    if rows.shape[1] != histogram.num_capacities:
        raise PackingError(f"items have {rows.shape[1]} sizes each, the plan is for {histogram.num_capacities}")
    if (found := _kinds_of_lengths(rows, histogram)) is not None:
        return found
    kinds, known = looked_up(rows, histogram.sizes)
    if not known.all():
        at = int(np.argmin(known))
        raise PackingError(
            f"item {at:,} has size {size_text(rows[at])}, of which the plan has none",
            remedy="plan with the items that are to be packed",
        )
    counts = np.bincount(kinds, minlength=len(histogram.counts))
    if not np.array_equal(counts, histogram.counts):
        kind = int(np.argmax(counts != histogram.counts))
        raise PackingError(
            f"there are {counts[kind]:,} items of size {size_text(histogram.sizes[kind])}, the plan has "
            f"{histogram.counts[kind]:,}",
            remedy="plan with the items that are to be packed",
        )
    return kinds


def _kinds_of_lengths(rows: Int64, histogram: SizeHistogram) -> npt.NDArray[np.integer[Any]] | None:
    """The same for lengths that are short and as counted; None where they are not."""
    if rows.shape[1] != 1 or len(rows) != histogram.num_items:
        return None
    lengths, known = rows[:, 0], histogram.lengths
    most = int(known[-1])
    if most >= min(_LARGEST_TABLE, 64 * len(lengths) + 1024) or int(lengths.max()) > most:
        return None
    # As many of each length and as many in all: there can be no other.
    if not np.array_equal(np.bincount(lengths, minlength=most + 1)[known], histogram.counts):
        return None
    table = np.zeros(most + 1, np.min_scalar_type(len(known)))
    table[known] = np.arange(len(known))
    kinds: npt.NDArray[np.integer[Any]] = table[lengths]
    return kinds


def reordered(packs: Packs, order: Int64) -> Packs:
    """Some packs in another order: first ``order[0]``, then ``order[1]`` and so on."""
    depths = packs.depths[order]
    begins = _begins(depths)
    slots = np.arange(begins[-1]) + np.repeat(packs.begins[:-1][order] - begins[:-1], depths)
    return Packs(packs.items[slots], begins)


def _begins(depths: Int64) -> Int64:
    """First item of each pack, and the end of the last pack."""
    begins = np.zeros(len(depths) + 1, np.int64)
    np.cumsum(depths, out=begins[1:])
    return begins


_LARGEST_TABLE = 1 << 24
"""Lengths below this are looked up in a table, others searched for."""


def looked_up(rows: Int64, kinds: Int64) -> tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.bool_]]:
    """Index of each row among ``kinds``, and True where the row is among them."""
    if rows.shape[1] == 1:
        return _looked_up_lengths(rows[:, 0], kinds[:, 0])
    # Column by column: the rank of what was read so far and the rank of the next column are one number.
    known = np.ones(len(rows), bool)
    row_key = np.zeros(len(rows), np.int64)
    kind_key = np.zeros(len(kinds), np.int64)
    for column in range(rows.shape[1]):
        values, kind_ranks = np.unique(kinds[:, column], return_inverse=True)
        row_ranks, found = _looked_up_lengths(rows[:, column], values)
        kind_key = kind_key * len(values) + kind_ranks
        row_key = row_key * len(values) + row_ranks
        keys, kind_key = np.unique(kind_key, return_inverse=True)
        places, found_too = _looked_up_lengths(row_key, keys)
        row_key = places.astype(np.int64)
        known &= found & found_too
    return row_key, known


def _looked_up_lengths(lengths: Int64, known: Int64) -> tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.bool_]]:
    """Index of each length among the ascending ``known``, and True where it is among them."""
    most = int(max(lengths.max(), known[-1]))
    if most < min(_LARGEST_TABLE, 64 * len(lengths) + 1024):
        table = np.full(most + 1, len(known), np.min_scalar_type(len(known)))
        table[known] = np.arange(len(known))
        kinds = table[lengths]
        return kinds, kinds < len(known)
    places = np.minimum(np.searchsorted(known, lengths), len(known) - 1)
    return places, known[places] == lengths


def _by_kind(kinds: npt.NDArray[np.integer[Any]], num_kinds: int) -> Int64:
    """Numbers of the items, those of the first kind first, in ascending order within a kind."""
    # NumPy sorts by radix where elements have 16 bits or fewer.
    narrow = kinds.astype(np.min_scalar_type(max(num_kinds - 1, 0)), copy=False)
    return np.argsort(narrow, kind="stable")
