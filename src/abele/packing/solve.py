"""The front of packing: from items, a capacity and a method to a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.errors import InvalidOptionError, ItemSizeError, MissingPackageError, PackingError, nearest
from abele.packing.assign import Seed, looked_up, split_histogram
from abele.packing.columns import VectorKnapsack, generate
from abele.packing.histogram import LARGEST, SizeHistogram, size_text
from abele.packing.histogram_fit import (
    GroupOfPacks,
    longest_pack_first,
    num_packs,
    runs_of,
    shortest_pack_first,
    strategies_of,
    with_kinds,
)
from abele.packing.knapsack import Knapsack
from abele.packing.packs import Packs
from abele.packing.plan import PackingPlan
from abele.packing.rounding import completed, rounded, rounded_with, without_surplus
from abele.words import counted

# Packing items of several sizes, such as graphs of nodes and edges, into packs with a capacity for each.
#
# One pattern after the other is filled greedily, from the kind of item that takes most of any capacity, and then by
# the kind that leaves the least room: the sum of squares of the shares left, each weighed by how scarce its capacity
# is in what remains to be packed. The pattern is used as often as there are items for it, so that each pattern uses up
# a kind, and the work depends on how many kinds there are and not on how many items. Weights by scarcity and equal
# ones are both tried, and the better result is taken.
#
# There is no small and certain gap here as for one capacity: what is proven is the best bound of any capacity alone.
#
# Source: Panigrahy, Talwar, Uyeda, Wieder, "Heuristics for vector bin packing", 2011 (norm-based greedy).


def vector_fit(histogram: SizeHistogram, capacity: Sequence[int], depth: int) -> list[GroupOfPacks]:
    """Packs of all items, within every capacity.

    Args:
        histogram: Items by size, each within the capacities.
        capacity: Capacity of a pack, for each size.
        depth: The most items of a pack.
    """
    limits = np.array(capacity, np.int64)
    return min((_greedy(histogram, limits, depth, scarce) for scarce in (True, False)), key=num_packs)


def _greedy(histogram: SizeHistogram, capacity: Int64, depth: int, scarce: bool) -> list[GroupOfPacks]:
    shares = histogram.sizes / capacity
    # Kinds that are used up leave the arrays, the largest lead.
    order = np.argsort(-shares.max(axis=1), kind="stable")
    sizes, shares, left = histogram.sizes[order], shares[order], histogram.counts[order]
    groups = []
    while len(order):
        needed = left @ shares
        weights = needed / needed.sum() if scarce else np.full(len(capacity), 1 / len(capacity))
        members = Counter(_filled(sizes, shares, left, capacity, depth=depth, weights=weights))
        kinds, times = np.array(list(members)), np.array(list(members.values()))
        packs = int((left[kinds] // times).min())
        runs = tuple((int(order[kind]), count) for kind, count in members.items())
        groups.append(GroupOfPacks(runs, int(times.sum()), packs))
        left[kinds] -= times * packs
        kept = left > 0
        order, sizes, shares, left = order[kept], sizes[kept], shares[kept], left[kept]
    return groups


def _filled(sizes: Int64, shares: Float64, left: Int64, capacity: Int64, *, depth: int, weights: Float64) -> list[int]:
    """The members of one pack: the first kind, then the kinds that leave the least room."""
    members = [0]
    room = capacity - sizes[0]
    spare = left.copy()
    spare[0] -= 1
    # A kind that does not fit now never will.
    fits = np.arange(len(sizes))
    while len(members) < depth:
        fits = fits[(sizes[fits] <= room).all(axis=1) & (spare[fits] > 0)]
        if not len(fits):
            break
        rest = room / capacity - shares[fits]
        chosen = int(fits[np.argmin((rest * rest) @ weights)])
        members.append(chosen)
        room = room - sizes[chosen]
        spare[chosen] -= 1
    return members


# Column generation for items of several sizes: the programme of one capacity, priced by a knapsack of all of them.
#
# The bound of any capacity alone does not see that items which fit by nodes may not fit by edges. The programme over
# patterns sees it. Rounded packs are completed item by item: into the pack whose room it fills best, as far as there
# is one, and what is left then greedily into new packs.


def vector_columns(
    knapsack: VectorKnapsack,
    histogram: SizeHistogram,
    greedy: Sequence[GroupOfPacks],
    *,
    at_least: int,
    tolerance: float,
) -> tuple[list[GroupOfPacks], int]:
    """Packs of all items, no more than the greedy ones, and a proven bound of their number.

    Args:
        knapsack: Sizes, capacities and depth, small enough (:attr:`VectorKnapsack.is_small`).
        histogram: Items by size.
        greedy: Packs of all items that are known.
        at_least: A number of packs that is known to be needed.
        tolerance: The proportion of packs by which the programme may be above its bound in the end.
    """
    singles = [np.array([kind]) for kind in range(len(histogram.counts))]
    first = [*singles, *strategies_of(greedy)[0]]
    fractional = generate(knapsack, histogram.counts, first, at_least=at_least, tolerance=tolerance)
    found = rounded_with(_Completion(knapsack, histogram), histogram.counts, fractional)
    return min([*greedy], found, key=num_packs), fractional.bound


@dataclass(frozen=True)
class _Completion:
    """Fills up packs of several capacities until every item has its place."""

    knapsack: VectorKnapsack
    histogram: SizeHistogram

    def __call__(self, counts: Int64, groups: Sequence[GroupOfPacks]) -> list[GroupOfPacks]:
        kept, missing = without_surplus(counts, groups)
        left = np.array(missing, np.int64)
        filled = self._into_room(kept, left)
        kinds = np.flatnonzero(left)
        if not len(kinds):
            return filled
        rest = SizeHistogram(self.histogram.sizes[kinds], left[kinds])
        more = vector_fit(rest, self.knapsack.capacity.tolist(), self.knapsack.depth)
        return filled + [
            GroupOfPacks(tuple((int(kinds[kind]), times) for kind, times in group.runs), group.depth, group.count)
            for group in more
        ]

    def _into_room(self, groups: list[GroupOfPacks], left: Int64) -> list[GroupOfPacks]:
        """Put items of ``left`` into packs with room, largest first, and take them off ``left``."""
        sizes, capacity = self.histogram.sizes, self.knapsack.capacity
        found = list(groups)
        rooms = [capacity - sum(sizes[kind] * times for kind, times in group.runs) for group in found]
        shares = (sizes / capacity).max(axis=1)
        for kind in sorted(np.flatnonzero(left).tolist(), key=lambda kind: -shares[kind]):
            while left[kind] and found:
                rest = np.stack(rooms) - sizes[kind]
                open_ = np.array([group.depth < self.knapsack.depth for group in found]) & (rest >= 0).all(axis=1)
                if not open_.any():
                    break
                place = int(np.argmin(np.where(open_, (rest / capacity).max(axis=1), np.inf)))
                group = found[place]
                packs = min(group.count, int(left[kind]))
                joined = runs_of([k for k, times in group.runs for _ in range(times)] + [kind])
                found[place] = GroupOfPacks(joined, group.depth + 1, packs)
                if packs < group.count:
                    found.append(GroupOfPacks(group.runs, group.depth, group.count - packs))
                    rooms.append(rooms[place])
                rooms[place] = rest[place]
                left[kind] -= packs
        return found


# NNLSHP: packing by non-negative least squares, as published.
#
# All ways to fill a pack exactly with at most three sequences are columns of a matrix; how often each is used is the
# non-negative least-squares solution for the histogram, rounded. Short lengths weigh less, as what is left over of
# them costs little. A length that rounding left over goes into packs of its own, beside a slot that fills the pack and
# stays empty.
#
# The method is here for comparison. Its matrix is dense and grows with the square of the capacity, and least squares
# does not count packs: column generation is faster, closer to the bound, and knows the bound.
#
# Source: Krell, Kosec, Perez, Fitzgibbon, "Efficient sequence packing without cross-contamination", arXiv 2107.02027.

MOST_LENGTH = 1024
"""The largest capacity: the matrix has about capacity³ / 12 elements of 8 bytes."""

_DEEPEST = 3
_SHORT = 8
_SHORT_WEIGHT = 0.09
"""The weight of lengths up to 8, as published."""


def nnls_packs(histogram: Int64, capacity: int, depth: int) -> list[GroupOfPacks]:
    """NNLSHP's packs.

    Args:
        histogram: Items by length, int64[capacity + 1].
        capacity: Size that a pack holds, at most 1,024.
        depth: The most items of a pack, at most 3.

    Returns:
        Packs whose kinds are lengths. There are at least as many slots of each length as items; those that are too many
        stay empty.

    Raises:
        PackingError: The capacity or depth is more than the method's matrix is made for.
    """
    if capacity > MOST_LENGTH:
        raise PackingError(
            f"nnlshp packs into at most {MOST_LENGTH:,} tokens, got {capacity:,}",
            because="its matrix has a column for every way to fill a pack",
            remedy="method='columns', which makes the columns that it needs",
        )
    if depth > _DEEPEST:
        raise PackingError(
            f"nnlshp packs at most {_DEEPEST} sequences together, got depth {depth}",
            remedy="depth=3, or method='columns'",
        )
    # A column per way to fill a pack exactly, a row per length: how many items of the length the way has.
    ways = exact_fillings(capacity, depth)
    matrix = np.zeros((capacity + 1, len(ways)))
    for column in range(ways.shape[1]):
        np.add.at(matrix, (ways[:, column], np.arange(len(ways))), 1.0)
    matrix = matrix[1:]
    # Short sequences weigh little, as published: empty slots of theirs waste few tokens.
    weights = np.where(np.arange(1, capacity + 1) <= _SHORT, _SHORT_WEIGHT, 1.0)
    uses, _ = _optimize().nnls(matrix * weights[:, None], histogram[1:] * weights)
    # Rounded uses leave some items over; each goes into a pack whose other slot stays empty.
    whole = np.rint(uses).astype(np.int64)
    left = histogram[1:] - np.rint(matrix @ whole).astype(np.int64)
    groups = [
        _group([int(length) for length in way if length], int(count))
        for way, count in zip(ways[whole > 0], whole[whole > 0], strict=True)
    ]
    for length in (np.flatnonzero(left > 0) + 1).tolist():
        beside = [capacity - length] if depth > 1 and length < capacity else []
        groups.append(_group([length, *beside], int(left[length - 1])))
    return groups


def exact_fillings(capacity: int, depth: int) -> Int64:
    """All multisets of at most ``depth`` lengths, which is at most 3, with the sum ``capacity``.

    Rows of 3 ascending lengths, zeros behind those of fewer, in lexical order. Solutions are not unique, and which one
    least squares find depends on the order.
    """
    first, second = np.meshgrid(np.arange(1, capacity + 1), np.arange(capacity + 1), indexing="ij")
    third = capacity - first - second
    fills = (third == 0) & ((second >= first) | (second == 0))
    kept = fills | ((second >= first) & (third >= second))
    rows = np.stack([first[kept], second[kept], third[kept]], axis=1)
    kept_rows: Int64 = rows[(rows > 0).sum(axis=1) <= depth]
    return kept_rows


def _group(lengths: list[int], count: int) -> GroupOfPacks:
    return GroupOfPacks(
        tuple((length, lengths.count(length)) for length in dict.fromkeys(lengths)), len(lengths), count
    )


def _optimize() -> Any:
    try:
        from scipy import optimize
    except ImportError:
        raise MissingPackageError(
            "non-negative least squares need SciPy, which is not installed",
            remedy="pip install 'abele[packing]', or method='lpfhp', which needs NumPy alone",
        ) from None
    return optimize


# Numbers of packs that no packing is below, from sums alone.


def simple_bound(histogram: SizeHistogram, capacity: Sequence[int], depth: int | None) -> int:
    """The most that these say: the sum of each size by its capacity, and the number of items by the depth."""
    sums = [-(-int(total) // limit) for total, limit in zip(histogram.totals, capacity, strict=True)]
    return max(*sums, 1 if depth is None else -(-histogram.num_items // depth))


Method = Literal["columns", "lpfhp", "spfhp", "nnlshp"]
METHODS: tuple[Method, ...] = ("columns", "lpfhp", "spfhp", "nnlshp")


def pack(
    sizes: npt.ArrayLike | SizeHistogram,
    capacity: int | Sequence[int],
    *,
    depth: int | None = None,
    method: Method = "columns",
    too_long: Literal["refuse", "split"] = "refuse",
    tolerance: float = 0.0,
    like: PackingPlan | None = None,
) -> PackingPlan:
    """Plan packs that hold all items, as few as the method finds.

    Args:
        sizes: The items: lengths, integers of shape [num_items]; rows of sizes such as nodes and edges, [num_items,
            num_capacities]; or a :class:`SizeHistogram` of them.
        capacity: Size that a pack holds: a number of tokens, or one number for each size of an item.
        depth: The most items of a pack; None for no limit.
        method: ``columns``, column generation, which is within a few packs of the bound that it proves (best fit where
            lengths times capacity are more than 5 million, or times a depth more than 12 million; for several
            capacities a greedy one, where kinds of items times the product of the capacities times the most items of a
            pack are more than 100 million); ``lpfhp``, best-fit decreasing (for several capacities greedy), in
            milliseconds; ``spfhp`` and ``nnlshp`` as published.
        too_long: Treatment of sequences over the capacity: ``refuse`` raises, ``split`` cuts them into pieces.
        tolerance: Packs above the bound, as a proportion of it, that are few enough: column generation is left out
            where best fit has no more, and ends when it has.
        like: A plan of similar items, such as those that came before in a stream, whose patterns column generation
            begins with.

    Returns:
        The plan; its ``assign`` gives actual items to the packs.

    Raises:
        ItemSizeError: A size is zero, negative, not a whole number or over its capacity.
        PackingError: There are no items, or capacity or depth are below 1.
        InvalidOptionError: No method is called so.
    """
    capacities, depth, _ = checked_limits(capacity, depth)
    if method not in METHODS:
        close = nearest(str(method), METHODS)
        raise InvalidOptionError(
            f"no method of packing is called {method!r}",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(METHODS),
        )
    if too_long not in ("refuse", "split"):
        raise InvalidOptionError(f"too_long is 'refuse' or 'split', got {too_long!r}")
    histogram = sizes if isinstance(sizes, SizeHistogram) else SizeHistogram.of(sizes)
    splits = too_long == "split" and len(capacities) == 1 and bool((histogram.sizes > capacities[0]).any())
    if splits:
        histogram = split_histogram(histogram, capacities[0])
    checked_items(histogram.sizes, capacities, histogram.counts)
    if not 0 <= tolerance < 1:
        raise PackingError(f"the tolerance is a proportion, at least 0 and below 1, got {tolerance}")
    return _solve(histogram, capacities, depth, method, splits=splits, tolerance=tolerance, like=like)


def pack_items(
    sizes: npt.ArrayLike,
    capacity: int | Sequence[int],
    *,
    depth: int | None = None,
    method: Method = "lpfhp",
    too_long: Literal["refuse", "split"] = "refuse",
    seed: Seed | None = None,
) -> Packs:
    """Pack actual items: :func:`pack` and :meth:`PackingPlan.assign` at once, by best fit if nothing else is said."""
    return pack(sizes, capacity, depth=depth, method=method, too_long=too_long).assign(sizes, seed=seed)


def checked_limits(
    capacity: int | Sequence[int], depth: int | None, *, window: int | None = None
) -> tuple[tuple[int, ...], int | None, int | None]:
    """Capacities, depth and window as whole numbers of at least 1.

    Raises:
        PackingError: One is not.
    """
    given = (capacity,) if np.ndim(capacity) == 0 else tuple(capacity)  # type: ignore[arg-type]
    limits = tuple(at_least_one(value, "the capacity of a pack") for value in given)
    if not limits:
        raise PackingError("a pack has at least one capacity, got none")
    return (
        limits,
        None if depth is None else at_least_one(depth, "the depth of a pack"),
        None if window is None else at_least_one(window, "a window of items"),
    )


def at_least_one(value: object, name: str) -> int:
    """A whole number of at least 1 and below 2**40, or a PackingError that names it."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise PackingError(f"{name} is a whole number, got {value!r}")
    if not 1 <= number < LARGEST:
        raise PackingError(f"{name} is at least 1 and below {LARGEST:,}, got {number:,}")
    return number


def checked_items(rows: Int64, limits: tuple[int, ...], counts: Int64 | None = None) -> Int64:
    """Rows of sizes, each within the capacities.

    Args:
        rows: int64[num_rows, num_capacities].
        limits: The capacities.
        counts: Items of each row; None for one of each.

    Raises:
        PackingError: There are more or fewer capacities than sizes.
        ItemSizeError: An item is over a capacity.
    """
    if rows.shape[1] != len(limits):
        raise PackingError(
            f"items have {counted(rows.shape[1], 'size')} each, a pack has {len(limits)} capacities",
            remedy="one capacity for each size",
        )
    over = (rows > np.array(limits)).any(axis=1)
    if over.any():
        largest = rows[over][np.argmax((rows[over] / np.array(limits)).max(axis=1))]
        num_over = int(over.sum() if counts is None else counts[over].sum())
        num_items = int(len(rows) if counts is None else counts.sum())
        raise ItemSizeError(
            f"items are over the capacity of {size_text(limits)}: {num_over:,} of {num_items:,}, the largest of size "
            f"{size_text(largest)}",
            remedy="a larger capacity, or pieces of sequences that may be cut: too_long='split', --split",
        )
    return rows


def _solve(
    histogram: SizeHistogram,
    capacity: tuple[int, ...],
    depth: int | None,
    method: Method,
    *,
    splits: bool = False,
    tolerance: float = 0.0,
    like: PackingPlan | None = None,
) -> PackingPlan:
    bound = simple_bound(histogram, capacity, depth)
    if len(capacity) > 1:
        return _solve_vector(histogram, capacity, depth, method, bound=bound, tolerance=tolerance)
    knapsack = Knapsack.of(histogram, capacity[0], depth)
    if method == "columns" and not knapsack.is_small:
        method = "lpfhp"
    if method == "nnlshp":
        groups = _nnlshp(histogram, knapsack, depth)
    else:
        fit = shortest_pack_first if method == "spfhp" else longest_pack_first
        groups = fit(histogram.lengths.tolist(), histogram.counts.tolist(), knapsack.capacity, knapsack.depth)
    if method == "columns" and num_packs(groups) > bound * (1 + tolerance):
        patterns = [*strategies_of(groups)[0], *_patterns_like(like, histogram, knapsack)]
        fractional = generate(knapsack, histogram.counts, patterns, at_least=bound, tolerance=tolerance)
        bound = fractional.bound
        groups = min(groups, rounded(knapsack, histogram.counts, fractional), key=num_packs)
    strategies, uses = strategies_of(groups)
    return PackingPlan(
        histogram, capacity, depth, method, strategies=strategies, counts=uses, bound=bound, splits=splits
    )


def _patterns_like(like: PackingPlan | None, histogram: SizeHistogram, knapsack: Knapsack) -> list[Int64]:
    """Patterns of another plan, in kinds of this histogram: without lengths that it lacks, and only if they fit."""
    if like is None or len(like.capacity) != 1 or like.capacity[0] > knapsack.capacity:
        return []
    kinds, known = looked_up(like.histogram.sizes, histogram.sizes)
    patterns = [kinds[members][known[members]].astype(np.int64) for members in like.strategies]
    return [members for members in patterns if 0 < len(members) <= knapsack.depth]


def _solve_vector(
    histogram: SizeHistogram,
    capacity: tuple[int, ...],
    depth: int | None,
    method: Method,
    *,
    bound: int,
    tolerance: float,
) -> PackingPlan:
    if method in ("spfhp", "nnlshp"):
        raise InvalidOptionError(
            f"{method} packs one length at a time, got {len(capacity)} capacities", remedy="method='columns' or 'lpfhp'"
        )
    deepest = histogram.num_items if depth is None else min(depth, histogram.num_items)
    groups = vector_fit(histogram, capacity, deepest)
    if method == "columns" and num_packs(groups) > bound * (1 + tolerance):
        # No packing has fewer packs than the items need for one of their sizes alone.
        for column, limit in enumerate(capacity):
            alone = SizeHistogram.of_kinds(histogram.sizes[:, column], histogram.counts)
            bound = max(bound, _solve(alone, (limit,), depth, "columns", tolerance=tolerance).bound)
        knapsack = VectorKnapsack.of(histogram, capacity, depth)
        if num_packs(groups) > bound * (1 + tolerance) and knapsack.is_small:
            groups, bound = vector_columns(knapsack, histogram, groups, at_least=bound, tolerance=tolerance)
    strategies, uses = strategies_of(groups)
    return PackingPlan(histogram, capacity, depth, method, strategies=strategies, counts=uses, bound=bound)


def _nnlshp(histogram: SizeHistogram, knapsack: Knapsack, depth: int | None) -> list[GroupOfPacks]:
    by_length = np.zeros(knapsack.capacity + 1, np.int64)
    by_length[histogram.lengths] = histogram.counts
    groups = nnls_packs(by_length, knapsack.capacity, knapsack.depth if depth is None else depth)
    return completed(knapsack, histogram.counts, with_kinds(groups, histogram.lengths.tolist()))
