"""Patterns by column generation, and a number of packs that is proven to be needed.

The linear programme min Σ x_p over all patterns p, with enough slots for the items of each length, has far too many
patterns to write down, and few of them are used. Gilmore and Gomory solve it with the patterns known so far; its dual
values are the worth of an item of each length, and a knapsack finds the patterns worth more than the pack that they
cost. When there is none, the programme is solved over all patterns.

Any values at all give a bound: if no pattern is worth more than M, then every packing has at least Σ count · value / M
packs (Farley). Dual values of early rounds jump about and ask for useless patterns. So the knapsack is given
a mean of them and of the values with the best bound so far (Wentges). Each round takes for every length the best
pattern that has it: some ten rounds do where there were 64 without. Values of the first bound are the lengths
themselves, or equal ones where the depth limits.

Sources: Gilmore and Gomory, Operations Research 9 (1961); Farley, Operations Research 38 (1990); Wentges, International
Transactions in Operational Research 4 (1997).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.errors import MissingPackageError
from abele.packing.histogram import SizeHistogram
from abele.packing.knapsack import Knapsack, KnapsackTable, Values

# The most that one pack of several capacities can be worth: pricing of patterns of nodes and edges, and of bounds.
#
# What a pack of at most d items is worth follows, room by room, from what packs of d - 1 items are worth: a room is a
# number for each capacity, and all rooms of a level are worked out at once, kind of item by kind of item. As for one
# capacity, items may be taken as often as they fit, and values may be floating point or int64.

MOST_WORK = 10**8
"""Kinds times rooms times levels up to which a knapsack is small: some twenty rounds of half a second."""

MOST_ROOMS = 10**6
"""Rooms of a level, so that tables stay below a gigabyte."""


@dataclass(frozen=True)
class VectorKnapsack:
    """Sizes of the kinds of items, what a pack holds and how many items it may have.

    Attributes:
        sizes: int64[num_kinds, num_capacities], each within the capacities.
        capacity: int64[num_capacities].
        depth: The most items of a pack.
    """

    sizes: Int64
    capacity: Int64
    depth: int

    @staticmethod
    def of(histogram: SizeHistogram, capacity: tuple[int, ...], depth: int | None) -> VectorKnapsack:
        """The knapsack of packing a histogram: no pack has more items than fit, or than there are."""
        limits = np.array(capacity, np.int64)
        most = min(int((limits // histogram.sizes.min(axis=0)).min()), histogram.num_items)
        return VectorKnapsack(histogram.sizes, limits, most if depth is None else min(depth, most))

    @property
    def is_small(self) -> bool:
        """True if column generation ends within half a minute for it."""
        rooms = 1
        for limit in self.capacity.tolist():
            rooms *= limit + 1
        return rooms <= MOST_ROOMS and rooms * len(self.sizes) * self.depth <= MOST_WORK

    def flat_values(self) -> list[Float64]:
        """Values of which no pack is worth more than 1: the share of each capacity that an item takes, and of items."""
        shares = self.sizes / self.capacity
        return [*shares.T, np.full(len(self.sizes), 1 / self.depth)]

    def solve(self, values: Values) -> KnapsackTable:
        """Highest value of a pack of each room, when an item of each kind is worth ``values`` [num_kinds]."""
        shape = tuple((self.capacity + 1).tolist())
        best, last = [np.zeros(shape, values.dtype)], [np.full(shape, -1, np.int32)]
        worth = np.flatnonzero(values > 0).tolist()
        for _ in range(self.depth):
            before = best[-1]
            now, kinds = before.copy(), np.full(shape, -1, np.int32)
            for kind in worth:
                size = self.sizes[kind].tolist()
                rest = before[tuple(slice(0, width - each) for width, each in zip(shape, size, strict=True))]
                here = tuple(slice(each, None) for each in size)
                made = rest + values[kind]
                better = made > now[here]
                np.copyto(now[here], made, where=better)
                np.copyto(kinds[here], np.int32(kind), where=better)
            if not (kinds >= 0).any():
                break
            best.append(now)
            last.append(kinds)
        # A room is a number for each capacity, and all rooms of a level one row.
        steps = self.sizes @ np.array([math.prod(shape[place + 1 :]) for place in range(len(shape))], np.int64)
        rows = len(best), -1
        return KnapsackTable(steps, self.depth, np.stack(best).reshape(rows), np.stack(last).reshape(rows))

    def best_value(self, values: Values) -> Any:
        """Highest value of a whole pack, of the type of ``values``."""
        return self.solve(values).best[-1, -1]


MOST_ROUNDS = 300
"""Most rounds of pricing; some ten are usual."""

_WEIGHT = 0.8
"""Of the values with the best bound, in the mean that is priced; at 0.5 there are a fifth more rounds."""

_TOLERANCE = 1e-7
"""By which a pattern is worth more than a pack to be taken."""

_SCALED_ITEMS = 1000.0
"""Items in all of the programme as it is solved: the solver's tolerances are absolute."""

_FIXED_POINT = 2**40
"""Steps of a pack's worth in exact bounds."""


@dataclass(frozen=True, eq=False)
class FractionalPacking:
    """The solution of the programme over the patterns found.

    Attributes:
        patterns: Members of each pattern, ascending kinds, int32[num_patterns, most items], -1 where none is.
        uses: Number of packs of each pattern, float64[num_patterns].
        num_packs: Their sum.
        bound: Packs that any packing has at least, in exact arithmetic.
        rounds: Number of times that patterns were priced.
        values: Value of an item of each kind by the best bound, where no pack is worth more than 1;
            float64[num_kinds].
    """

    patterns: npt.NDArray[np.int32]
    uses: Float64
    num_packs: float
    bound: int
    rounds: int
    values: Float64


class PatternPool:
    """Patterns, each once, as rows of members."""

    def __init__(self, num_kinds: int) -> None:
        self.num_kinds = num_kinds
        self.rows = np.empty((0, 1), np.int32)
        self._seen: set[bytes] = set()

    def add(self, patterns: npt.NDArray[np.int32]) -> int:
        """Add those that are new; how many they are."""
        width = max(patterns.shape[1], self.rows.shape[1])
        if width > self.rows.shape[1]:
            self.rows = _widened(self.rows, width)
            self._seen = {row.tobytes() for row in self.rows}
        ordered = -np.sort(-_widened(patterns, width), axis=1)
        fresh = []
        for place, row in enumerate(ordered):
            key = row.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(place)
        self.rows = np.concatenate([self.rows, ordered[fresh]])
        return len(fresh)

    def solve(self, counts: Float64) -> tuple[Float64, Float64]:
        """Uses of each pattern and the value of each kind, for the fewest packs that have ``counts`` slots or more."""
        optimize, sparse = _scipy()
        pattern, slot = np.nonzero(self.rows >= 0)
        ones = np.ones(len(pattern))
        matrix = sparse.coo_matrix(
            (-ones, (self.rows[pattern, slot], pattern)), shape=(self.num_kinds, len(self.rows))
        ).tocsr()
        found = optimize.linprog(np.ones(len(self.rows)), A_ub=matrix, b_ub=-counts, method="highs-ds")
        if found.status != 0:
            raise ArithmeticError(found.message)
        return found.x, np.maximum(-found.ineqlin.marginals, 0.0)


def generate(
    knapsack: Knapsack | VectorKnapsack,
    counts: Int64,
    first: Iterable[Int64],
    *,
    at_least: int = 1,
    tolerance: float = 0.0,
) -> FractionalPacking:
    """Solve the programme over patterns.

    Args:
        knapsack: Lengths, capacity and depth; or sizes and several capacities.
        counts: Items of each kind, int64[num_kinds].
        first: Patterns to begin with, which have every kind: those of another method.
        at_least: A number of packs that is known to be needed.
        tolerance: The proportion of packs by which the programme may be above its bound in the end.
    """
    num_kinds = len(counts)
    # The pool starts with patterns of another method, so that the programme has a solution at once.
    pool = PatternPool(num_kinds)
    starts = list(first)
    table = np.full((len(starts), max(map(len, starts))), -1, np.int32)
    for row, members in zip(table, starts, strict=True):
        row[: len(members)] = members
    pool.add(table)
    # Counts are scaled to one size, so that tolerances mean the same for any number of items.
    weights = counts * (_SCALED_ITEMS / counts.sum())
    unscaled = counts.sum() / _SCALED_ITEMS
    best = max(knapsack.flat_values(), key=lambda values: float(weights @ values))
    bound = float(weights @ best)
    rounds, improved = 0, True
    while improved and rounds < MOST_ROUNDS:
        rounds += 1
        uses, values = pool.solve(weights)
        # Price at a mean of the best values and the programme's own: pure values jump about from round to round (in-out
        # separation).
        weight = _WEIGHT
        while True:
            mixed = weight * best + (1 - weight) * values
            priced = knapsack.solve(mixed)
            most = float(priced.best[-1, -1])
            # Values divided by the most that a pack is worth are feasible in the dual, so they prove a bound.
            if (proven := float(weights @ mixed) / most) > bound:
                best, bound = mixed / most, proven
            patterns = priced.patterns()
            worth = np.append(values, 0.0)[patterns].sum(axis=1)
            added = pool.add(patterns[worth > 1 + _TOLERANCE])
            if added or weight == 0:
                break
            # The mean asks for nothing that the programme lacks: nearer to the programme's own values.
            weight = weight / 2 if weight > 0.2 else 0.0
        # Go on while a whole pack may still be saved over the bound, in items and not in scaled ones.
        improved = added > 0 and np.ceil(bound * unscaled - 1e-6) < uses.sum() * unscaled * (1 - tolerance)
    # The bound is computed again in exact arithmetic: rounding errors must not prove too much.
    exact = max(at_least, exact_bound(knapsack, counts, best), exact_bound(knapsack, counts, values))
    used = pool.rows[: len(uses)]
    return FractionalPacking(used, uses * unscaled, float(uses.sum()) * unscaled, exact, rounds, best)


def exact_bound(knapsack: Knapsack | VectorKnapsack, counts: Int64, values: Float64) -> int:
    """Packs that any packing has at least, by values of the kinds, in whole numbers throughout.

    Values are rounded down to a fixed point; whatever they are, the quotient of what all items are worth by what a pack
    can be worth is a bound.
    """
    steps = _FIXED_POINT
    while knapsack.depth * steps >= 2**61:
        steps //= 2
    fixed = np.floor(np.clip(values, 0.0, 1.0) * steps).astype(np.int64)
    most = int(knapsack.best_value(fixed))
    if most == 0:
        return 1
    total = sum(count * value for count, value in zip(counts.tolist(), fixed.tolist(), strict=True))
    return int(-(-total // most))


def _widened(rows: npt.NDArray[np.int32], width: int) -> npt.NDArray[np.int32]:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=-1)


def _scipy() -> tuple[Any, Any]:
    try:
        from scipy import optimize, sparse
    except ImportError:
        raise MissingPackageError(
            "column generation needs SciPy, which is not installed",
            remedy="pip install 'abele[packing]', or method='lpfhp', which needs NumPy alone",
        ) from None
    return optimize, sparse
