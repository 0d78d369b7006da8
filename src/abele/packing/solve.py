"""The front of packing: from items, a capacity and a method to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError, ItemSizeError, PackingError, nearest
from abele.packing.bounds import simple_bound
from abele.packing.histogram import LARGEST, SizeHistogram
from abele.packing.columns import generate
from abele.packing.groups import num_packs, strategies_of
from abele.packing.histogram_fit import longest_pack_first, shortest_pack_first
from abele.packing.knapsack import Knapsack
from abele.packing.packs import Packs
from abele.packing.plan import PackingPlan
from abele.packing.rounding import rounded
from abele.packing.split import split_histogram
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
) -> PackingPlan:
    """Plan packs that hold all items, as few as the method finds.

    Args:
        sizes: The items: lengths, integers of shape [num_items]; rows of sizes such as nodes and edges, [num_items,
            num_capacities]; or a :class:`SizeHistogram` of them.
        capacity: What a pack holds: a number of tokens, or one number for each size of an item.
        depth: The most items of a pack; None for no limit.
        method: ``columns``, column generation, which is within a few packs of the bound that it proves; ``lpfhp``,
            best-fit decreasing, in milliseconds; ``spfhp`` and ``nnlshp`` as published.
        too_long: What becomes of sequences over the capacity: ``refuse`` raises, ``split`` cuts them into pieces.

    Returns:
        The plan; its ``assign`` gives actual items to the packs.

    Raises:
        ItemSizeError: A size is zero, negative, not a whole number or over its capacity.
        PackingError: There are no items, or capacity or depth are below 1.
        InvalidOptionError: No method is called so.
    """
    capacities, depth = _limits(capacity, depth)
    if method not in METHODS:
        close = nearest(str(method), METHODS)
        raise InvalidOptionError(
            f"no method of packing is called {method!r}",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(METHODS),
        )
    if too_long not in ("refuse", "split"):
        raise InvalidOptionError(f"too_long is 'refuse' or 'split', got {too_long!r}")
    histogram, splits = _histogram(sizes, capacities, too_long)
    return _solve(histogram, capacities, depth, method, splits)


def pack_items(
    sizes: npt.ArrayLike,
    capacity: int | Sequence[int],
    *,
    depth: int | None = None,
    method: Method = "lpfhp",
    too_long: Literal["refuse", "split"] = "refuse",
    seed: int | None = None,
) -> Packs:
    """Pack actual items: :func:`pack` and :meth:`PackingPlan.assign` at once, by best fit if nothing else is said."""
    return pack(sizes, capacity, depth=depth, method=method, too_long=too_long).assign(sizes, seed=seed)


def _limits(capacity: int | Sequence[int], depth: int | None) -> tuple[tuple[int, ...], int | None]:
    """Capacity and depth as whole numbers, checked."""
    given = (capacity,) if np.ndim(capacity) == 0 else tuple(capacity)  # type: ignore[arg-type]
    limits = tuple(_at_least_one(value, "the capacity of a pack") for value in given)
    if not limits:
        raise PackingError("a pack has at least one capacity, got none")
    return limits, None if depth is None else _at_least_one(depth, "the depth of a pack")


def _at_least_one(value: object, name: str) -> int:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise PackingError(f"{name} is a whole number, got {value!r}")
    if not 1 <= number < LARGEST:
        raise PackingError(f"{name} is at least 1 and below {LARGEST:,}, got {number:,}")
    return number


def _histogram(
    sizes: npt.ArrayLike | SizeHistogram, capacities: tuple[int, ...], too_long: str
) -> tuple[SizeHistogram, bool]:
    """The histogram to pack, of pieces where items are split, and whether any were."""
    histogram = sizes if isinstance(sizes, SizeHistogram) else SizeHistogram.of(sizes)
    if histogram.num_capacities != len(capacities):
        raise PackingError(
            f"items have {histogram.num_capacities} sizes each, a pack has {len(capacities)} capacities",
            remedy="one capacity for each size",
        )
    over = (histogram.sizes > np.array(capacities)).any(axis=1)
    if not over.any():
        return histogram, False
    if too_long == "split":
        return split_histogram(histogram, capacities[0]), True
    kind, num_over = int(np.flatnonzero(over)[-1]), int(histogram.counts[over].sum())
    size = " × ".join(f"{int(value):,}" for value in histogram.sizes[kind])
    raise ItemSizeError(
        f"{counted(num_over, 'item')} of {histogram.num_items:,} are over the capacity of "
        f"{' × '.join(f'{limit:,}' for limit in capacities)}: the largest has size {size}",
        remedy="a larger capacity, or too_long='split' for sequences that may be cut",
    )


def _solve(
    histogram: SizeHistogram, capacity: tuple[int, ...], depth: int | None, method: Method, splits: bool
) -> PackingPlan:
    bound = simple_bound(histogram, capacity, depth)
    knapsack = Knapsack.of(histogram, capacity[0], depth)
    lengths, counts = histogram.lengths.tolist(), histogram.counts.tolist()
    fit = shortest_pack_first if method == "spfhp" else longest_pack_first
    groups = fit(lengths, counts, knapsack.capacity, knapsack.depth)
    if method == "columns" and sum(group.count for group in groups) > bound:
        fractional = generate(knapsack, histogram.counts, strategies_of(groups)[0], bound)
        bound = fractional.bound
        groups = min(groups, rounded(knapsack, histogram.counts, fractional), key=num_packs)
    strategies, uses = strategies_of(groups)
    return PackingPlan(histogram, capacity, depth, method, strategies, uses, bound, splits)
