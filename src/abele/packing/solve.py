"""The front of packing: from items, a capacity and a method to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError, ItemSizeError, PackingError, nearest
from abele.packing.assign import Seed, looked_up
from abele.packing.bounds import simple_bound
from abele.packing.columns import generate
from abele.packing.groups import GroupOfPacks, num_packs, strategies_of, with_kinds
from abele.packing.histogram import LARGEST, SizeHistogram, size_text
from abele.packing.histogram_fit import longest_pack_first, shortest_pack_first
from abele.packing.knapsack import Knapsack
from abele.packing.nnls import nnls_packs
from abele.packing.packs import Packs
from abele.packing.plan import PackingPlan
from abele.packing.rounding import completed, rounded
from abele.packing.split import split_histogram
from abele.packing.vector_columns import vector_columns
from abele.packing.vector_fit import vector_fit
from abele.packing.vector_knapsack import VectorKnapsack
from abele.words import counted

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
