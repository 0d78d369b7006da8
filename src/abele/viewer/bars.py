"""Bars on a lane at a level of detail: each where they are few, else the longest one of each column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Float64, Int64
from abele.report.relations import flat_ranges

COLUMNS = 512
"""Columns of a map tile."""


@dataclass(frozen=True, eq=False)
class LaneBars:
    """Bars that follow each other.

    Attributes:
        begin: int64[n], ascending.
        end: int64[n], none before its begin, none after the next begin.
        row: int64[n], what each is of.
    """

    begin: Int64
    end: Int64
    row: Int64

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return int(self.begin.nbytes + self.end.nbytes + self.row.nbytes)


@dataclass(frozen=True, eq=False)
class Seen:
    """Bars as they are seen in a window.

    Attributes:
        begin: float64[n]; of bars that stand for several, the edge of a column.
        end: float64[n].
        row: int64[n], what each is of; of several, the longest.
        count: int64[n], how many each stands for; 1 for bars as they are.
    """

    begin: Float64
    end: Float64
    row: Int64
    count: Int64


def window(index: int, level: int, low: float, high: float) -> tuple[float, float]:
    """Ends of a map tile: level n cuts ``low`` to ``high`` in 2^n."""
    width = (high - low) / (1 << level)
    return low + index * width, low + (index + 1) * width


def edges_of(index: int, level: int, low: float, high: float, columns: int = COLUMNS) -> Float64:
    """Edges of the columns of a map tile, float64[columns + 1]."""
    places = index * columns + np.arange(columns + 1, dtype=np.float64)
    return np.asarray(low + (high - low) * places / (columns * (1 << level)), np.float64)


def inside(bars: LaneBars, low: float, high: float) -> slice:
    """The bars that lie at least partly in a window; those without length where they lie in it."""
    first = int(np.searchsorted(bars.end, low, side="left"))
    # One that ends where the window begins is outside, unless it has no length.
    while first < len(bars) and bars.end[first] == low and bars.begin[first] < low:
        first += 1
    return slice(first, max(first, int(np.searchsorted(bars.begin, high, side="left"))))


def seen(bars: LaneBars, edges: Float64, most: int) -> Seen:
    """The bars of a window: as they are where there are at most so many, else the longest of each column.

    Args:
        bars: The bars.
        edges: Edges of the columns, float64[columns + 1].
        most: Bars that are given as they are.
    """
    rows = inside(bars, float(edges[0]), float(edges[-1]))
    begin, end, row = bars.begin[rows], bars.end[rows], bars.row[rows]
    if len(begin) <= most:
        return Seen(begin.astype(np.float64), end.astype(np.float64), row, np.ones(len(row), np.int64))
    columns = len(edges) - 1
    first = np.clip(np.searchsorted(edges, begin, side="right") - 1, 0, columns - 1)
    last = np.clip(np.searchsorted(edges, end, side="left") - 1, first, columns - 1)
    # A bar competes for the columns that it begins and ends in, and has those between them to itself.
    places = np.arange(len(begin))
    column = np.concatenate([first, last])
    bar = np.concatenate([places, places])
    covered = np.minimum(end[bar], edges[column + 1]) - np.maximum(begin[bar], edges[column])
    winner = np.full(columns, -1, np.int64)
    order = np.argsort(covered, kind="stable")
    winner[column[order]] = bar[order]
    wide = np.flatnonzero(last - first > 1)
    own, which = flat_ranges(first[wide] + 1, (last - first - 1)[wide])
    winner[own] = wide[which]
    count = np.bincount(column[: len(places)], minlength=columns)
    count += np.bincount(column[len(places) :][last > first], minlength=columns)
    count[own] = 1
    return _merged(winner, count, begin, end, row, edges)


def _merged(winner: Int64, count: Int64, begin: Int64, end: Int64, row: Int64, edges: Float64) -> Seen:
    """Neighbouring columns that one bar won, as one."""
    won = np.flatnonzero(winner >= 0)
    starts = np.ones(len(won), dtype=bool)
    starts[1:] = (winner[won][1:] != winner[won][:-1]) | (np.diff(won) != 1)
    at = np.flatnonzero(starts)
    last = np.append(at[1:], len(won)) - 1
    bar = winner[won[at]]
    counts = np.maximum.reduceat(count[won], at) if len(at) else np.zeros(0, np.int64)
    alone = counts <= 1
    left = np.where(alone, begin[bar], np.maximum(edges[won[at]], begin[bar[0]] if len(bar) else 0))
    right = np.where(alone, end[bar], edges[won[last] + 1])
    return Seen(left.astype(np.float64), right.astype(np.float64), row[bar], counts)
