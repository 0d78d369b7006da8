"""Layered drawing of a directed graph: boxes in rows, edges downwards, few crossings, short detours.

Nodes come in an order that is one of time, so that edges towards later nodes point down and the others are what goes
round: those are drawn, but do not decide where anything stands. Each node is put in the first row below all that it
needs; sources then sink towards the first that needs them. Edges over several rows get a bend in each row between, so
that boxes make room for them. Rows are ordered by sweeps to the mean place of neighbours, as long as crossings get
fewer, and then each row is moved as near to its neighbours as boxes allow, which has an exact answer: with the least
distances taken off, places must not descend, and the best such row is found by pooling those that would.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64

GAP_ACROSS = 18.0
GAP_DOWN = 34.0
_BEND_WIDTH = 6.0
_LONGEST = 40
"""Rows that an edge with bends may cross; longer ones are drawn straight."""
_MOST_BENDS = 3_000
_ORDER_SWEEPS = 6
_PLACE_SWEEPS = 8
_LOOSE_ACROSS = 6


@dataclass(frozen=True)
class Drawing:
    """Positions of nodes and edges.

    Attributes:
        x: Left edge of each node, float64[nodes].
        y: Upper edge, float64[nodes].
        row: Its row, int64[nodes].
        width: Of the whole.
        height: Of the whole.
        bends: Points that each edge passes between its ends, from its source on.
    """

    x: Float64
    y: Float64
    row: Int64
    width: float
    height: float
    bends: list[list[tuple[float, float]]]


def layered(width: Float64, height: Float64, source: Int64, target: Int64) -> Drawing:
    """Draw a graph.

    Args:
        width: Of each node, float64[nodes], in order of time.
        height: Likewise.
        source: Node at which each edge begins, int64[edges].
        target: Node at which it ends; edges to earlier nodes are those that go round.
    """
    num = len(width)
    down = target > source
    row = rows_of(num, source[down], target[down])
    bends = _Bends(num, row, source, target, down)
    lines: list[list[int]] = [[] for _ in range(int(row.max(initial=-1)) + 1)]
    for node, line in enumerate(bends.rows):
        lines[line].append(node)
    lines = _ordered(lines, bends.upper, bends.lower)
    wide = np.concatenate([width, np.full(len(bends.rows) - num, _BEND_WIDTH)])
    centre = _placed(lines, bends.upper, bends.lower, wide)
    tall = np.zeros(len(lines))
    np.maximum.at(tall, row, height)
    top = np.concatenate([[0.0], np.cumsum(tall + GAP_DOWN)])
    left = centre - wide / 2
    shift = float(left.min()) if len(left) else 0.0
    middle = top[:-1] + tall / 2
    routes = [[(float(centre[b]) - shift, float(middle[bends.rows[b]])) for b in each] for each in bends.of_edge]
    own = left[:num] - shift
    # Boxes lower than their row stand in its middle.
    y = top[row] + (tall[row] - height) / 2 if num else np.zeros(0)
    right = float((left + wide).max()) - shift if len(left) else 0.0
    return Drawing(own, y, row, right, float(max(top[-1] - GAP_DOWN, 0.0)), routes)


def rows_of(num: int, source: Int64, target: Int64) -> Int64:
    """The row of each node: below all that it needs; sources directly above the first that needs them.

    Nodes without edges stand in rows of their own below the others.
    """
    row = np.zeros(num, dtype=np.int64)
    order = np.argsort(source, kind="stable")
    for a, b in zip(source[order].tolist(), target[order].tolist(), strict=True):
        row[b] = max(row[b], row[a] + 1)
    needs, needed = np.zeros(num, dtype=bool), np.zeros(num, dtype=bool)
    needs[target], needed[source] = True, True
    first = np.full(num, num, dtype=np.int64)
    np.minimum.at(first, source, row[target] - 1)
    row = np.where(~needs & needed, first, row)
    loose = np.flatnonzero(~needs & ~needed)
    below = int(row[needs | needed].max(initial=-1)) + 1
    row[loose] = below + np.arange(len(loose)) // _LOOSE_ACROSS
    return row


class _Bends:
    """Nodes and bends: where edges cross rows.

    Attributes:
        rows: Row of each node, then of each bend.
        of_edge: Bends of each edge, from its source on.
        upper: Neighbours of each in the row above.
        lower: Neighbours of each in the row below.
    """

    def __init__(self, num: int, row: Int64, source: Int64, target: Int64, down: npt.NDArray[np.bool_]) -> None:
        self.rows: list[int] = row.tolist()
        self.upper: list[list[int]] = [[] for _ in range(num)]
        self.lower: list[list[int]] = [[] for _ in range(num)]
        self.of_edge: list[list[int]] = []
        left = _MOST_BENDS
        for a, b, falls in zip(source.tolist(), target.tolist(), down.tolist(), strict=True):
            mine: list[int] = []
            self.of_edge.append(mine)
            span = self.rows[b] - self.rows[a]
            if not falls or span < 1 or span > _LONGEST or span - 1 > left:
                continue
            left -= span - 1
            before = a
            for line in range(self.rows[a] + 1, self.rows[b]):
                bend = len(self.rows)
                self.rows.append(line)
                self.upper.append([])
                self.lower.append([])
                mine.append(bend)
                self._connect(before, bend)
                before = bend
            self._connect(before, b)

    def _connect(self, above: int, below: int) -> None:
        self.lower[above].append(below)
        self.upper[below].append(above)


def _ordered(lines: list[list[int]], upper: list[list[int]], lower: list[list[int]]) -> list[list[int]]:
    """The rows in the order with the fewest crossings that sweeps find."""
    best, fewest = [list(line) for line in lines], _crossings(lines, lower)
    now = [list(line) for line in lines]
    for sweep in range(_ORDER_SWEEPS):
        if fewest == 0:
            break
        neighbours, order = (upper, now) if sweep % 2 == 0 else (lower, now[::-1])
        place: dict[int, float] = {}
        for line in order:
            for at, node in enumerate(line):
                place.setdefault(node, float(at))
        for line in order:
            wanted = {n: _mean([place[m] for m in neighbours[n]], place[n]) for n in line}
            line.sort(key=wanted.__getitem__)
            for at, node in enumerate(line):
                place[node] = float(at)
        found = _crossings(now, lower)
        if found < fewest:
            best, fewest = [list(line) for line in now], found
    return best


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(lines: list[list[int]], lower: list[list[int]]) -> int:
    """Number of crossings of edges between neighbouring rows."""
    total = 0
    for above, below in pairwise(lines):
        place = {node: at for at, node in enumerate(below)}
        passed: list[int] = []
        for node in above:
            ends = sorted(place[m] for m in lower[node])
            total += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return total


def _placed(lines: list[list[int]], upper: list[list[int]], lower: list[list[int]], wide: Float64) -> Float64:
    """The middle of each node and bend, float64[n]: near its neighbours, none on another."""
    centre = np.zeros(len(wide))
    offsets = []
    for line in lines:
        halves = wide[line] / 2
        apart = np.concatenate([[0.0], np.cumsum(halves[:-1] + halves[1:] + GAP_ACROSS)]) if line else np.zeros(0)
        offsets.append(apart)
        centre[line] = apart - (apart[-1] / 2 if line else 0.0)
    for sweep in range(_PLACE_SWEEPS):
        falling = sweep % 2 == 0
        numbers = range(len(lines)) if falling else range(len(lines) - 1, -1, -1)
        for number in numbers:
            line, neighbours = lines[number], upper if falling else lower
            wanted = np.array([_mean([centre[m] for m in neighbours[n]], centre[n]) for n in line])
            centre[line] = pooled(wanted - offsets[number]) + offsets[number]
    return centre


def pooled(wanted: Float64) -> Float64:
    """The row of numbers that does not descend and is nearest to ``wanted``, by least squares, float64[n]."""
    sums: list[float] = []
    counts: list[int] = []
    for value in wanted.tolist():
        sums.append(value)
        counts.append(1)
        while len(sums) > 1 and sums[-2] * counts[-1] >= sums[-1] * counts[-2]:
            last, number = sums.pop(), counts.pop()
            sums[-1] += last
            counts[-1] += number
    means = np.array(sums) / np.array(counts) if sums else np.zeros(0)
    return np.repeat(means, counts) if sums else means
