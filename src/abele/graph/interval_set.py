"""Sets of elements of the global space, as sorted intervals that neither overlap nor touch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph.intervals import distinct, order_of


@dataclass(frozen=True, eq=False, slots=True)
class IntervalSet:
    """A set of element addresses.

    Attributes:
        begin: First address of each interval, int64[k], ascending.
        end: One past the last of each, int64[k].
    """

    begin: Int64
    end: Int64

    @staticmethod
    def of(begin: Int64, length: Int64) -> IntervalSet:
        """The set of all elements of intervals in any order, which may overlap or be empty."""
        if len(begin) == 1:
            return IntervalSet(begin, begin + length) if length[0] > 0 else EMPTY
        keep = length > 0
        order = order_of(begin[keep])
        low = begin[keep][order]
        if not len(low):
            return EMPTY
        reach = np.maximum.accumulate((begin + length)[keep][order])
        starts = np.append(True, low[1:] > reach[:-1])
        last = np.append(np.flatnonzero(starts)[1:], len(low)) - 1
        return IntervalSet(low[starts], reach[last])

    @staticmethod
    def union(sets: Iterable[IntervalSet]) -> IntervalSet:
        """The elements of any of the sets."""
        parts = [s for s in sets if s]
        if len(parts) < 2:
            return parts[0] if parts else EMPTY
        begin = np.concatenate([s.begin for s in parts])
        return IntervalSet.of(begin, np.concatenate([s.end for s in parts]) - begin)

    def __bool__(self) -> bool:
        return len(self.begin) > 0

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return IntervalSet.union((self, other))

    def __and__(self, other: IntervalSet) -> IntervalSet:
        return self._cells(other, True)

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        return self._cells(other, False) if other else self

    def _cells(self, other: IntervalSet, wanted: bool) -> IntervalSet:
        """The elements of this set that are (or are not) in the other."""
        if not self:
            return EMPTY
        cuts = distinct(np.concatenate([self.begin, self.end, other.begin, other.end]))
        low, high = cuts[:-1], cuts[1:]
        keep = self.contains(low) & (other.contains(low) == wanted)
        return IntervalSet.of(low[keep], (high - low)[keep])

    def contains(self, address: Int64) -> npt.NDArray[np.bool_]:
        """True if each address is in the set."""
        if not self:
            return np.zeros(len(address), dtype=bool)
        slot = np.searchsorted(self.begin, address, side="right") - 1
        return np.asarray((slot >= 0) & (address < self.end[np.maximum(slot, 0)]))

    def meets(self, other: IntervalSet) -> bool:
        """True if the two sets share an element."""
        if not self or not other:
            return False
        slot = np.searchsorted(other.begin, self.end, side="left") - 1
        return bool(((slot >= 0) & (other.end[np.maximum(slot, 0)] > self.begin)).any())

    @property
    def size(self) -> int:
        """Number of elements."""
        return int((self.end - self.begin).sum())


EMPTY = IntervalSet(np.empty(0, np.int64), np.empty(0, np.int64))
