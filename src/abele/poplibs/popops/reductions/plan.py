"""Planning a reduction: in how many steps the partial results of the tiles are brought together, and where.

After the first step each tile has at most one partial result of an output. Groups of these are brought to one tile and
reduced there; what these give is brought together again, until one is left. The number of steps and the size of the
groups are those of least modelled cost: fewer rows per tile are received and added faster, a superstep costs exchange,
synchronisation and launch.

Why this finds a good plan: rows and columns are independent. Columns (outputs) are dealt to tiles until each has what a
worker is worth, since work on different outputs never meets again. What is left is the depth, the number of partial
results of an output, and a tree over it: steps of d^(1/s) rows for s steps are the cheapest tree of s levels, as the
cost of a level grows with its factor alone. So only ``MAX_STEPS`` trees are costed.

A fixed number of steps is worse at either end: one step makes a single tile receive all of the 1,472 partial results of
a full sum (two steps of groups of 38 are planned), and two pay for a barrier that a handful of them does not need.
Results of one tile are added there first (``_join_on_tiles``): that takes no exchange.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph.mapping import TileMapping
from abele.machine import System
from abele.numerics import ElementType
from abele.poplibs.popops.reductions import cost as reduce_cost
from abele.poplibs.popops.reductions.first_step import MIN_ELEMENTS_PER_WORKER, MIN_VECTORS_PER_WORKER, share
from abele.poplibs.popops.reductions.ops import ReduceOp
from abele.poplibs.popops.reductions.partials import Combination, Partials, combine_on_tiles, cut, depth
from abele.poplibs.poputil.mapping import choose_mapping_offset

MAX_STEPS = 4
"""Steps of a tree of partial results that are costed. Chosen."""
EXCHANGE_DISTANCES = (0.5, 0.25, 0.375, 0.125)
"""Distances between rectangles that may swap their hosts, as shares of all, in the order of trying. Chosen."""
FIRST_HOST = 0.25
"""Place of the first of few rectangles, as a share of the distance between two of them. Chosen."""
HOST_TRIES = 8
"""Idle tiles to try for a rectangle whose host holds one of its rows. Chosen."""


@dataclass(frozen=True)
class Planner:
    """Figures that the cost of a step depends on.

    Attributes:
        system: The machine, or the part of it that the graph sees.
        op: Operation that combines elements.
        type: Element type of partial results.
        out_type: Element type of the result.
        outputs: Number of results.
        shape: Shape of the operand, which chooses the first of few hosts.
    """

    system: System
    op: ReduceOp
    type: ElementType
    out_type: ElementType
    outputs: int
    shape: tuple[int, ...] = ()

    def combinations(self, partials: Partials, wanted: TileMapping | None) -> tuple[Combination, ...]:
        """The steps after the first, which leave one result per output, if possible where ``wanted`` says."""
        steps: list[Combination] = []
        partials = self._join_on_tiles(steps, partials).merged()
        sizes = self.group_sizes(depth(partials), partials.size, int(partials.length.max(initial=1)), wanted)
        for number, size in enumerate(sizes):
            last = number == len(sizes) - 1
            partials = self._gather(steps, partials, size, wanted if last else None)
        return tuple(steps)

    def _join_on_tiles(self, steps: list[Combination], partials: Partials) -> Partials:
        local = combine_on_tiles(partials, self.outputs)
        if local is None:
            return partials
        steps.append(local)
        return local.partials

    def group_sizes(self, deepest: int, size: int, longest: int, wanted: TileMapping | None) -> tuple[int, ...]:
        """Rows that each step brings together, for outputs of ``deepest`` partial results.

        Args:
            deepest: Partial results of one output.
            size: Partial results of all.
            longest: Neighbouring outputs of which one tile has partial results.
            wanted: Tiles on which the results are wanted.
        """
        if deepest < 2:
            return ()
        plans = [(self._cost(g, size, longest, wanted), g) for g in _plans(deepest)]
        return min(plans)[1]

    def _cost(self, groups: tuple[int, ...], size: int, longest: int, wanted: TileMapping | None) -> int:
        total = 0
        for number, group in enumerate(groups):
            # one rectangle of [group, columns] is reduced by one tile; load is how many of them the busiest tile has
            columns = min(self._columns(size, group), longest)
            load = -(-size // (group * columns * self.system.num_tiles))
            if wanted is not None and number == len(groups) - 1:
                there = np.bincount(wanted.tile, weights=wanted.length)
                columns = min(int(there.max()), longest)
                load = -(-int(there.max()) // max(columns, 1))
            # What a step leaves is one row of each group.
            total += self._step_cycles(group, columns, load)
            size = -(-size // group)
        return total

    def _step_cycles(self, rows: int, columns: int, load: int) -> int:
        """Cycles of a superstep in which a tile receives and reduces ``load`` rectangles."""
        ipu = self.system.ipu
        exchange, workers = ipu.exchange, ipu.num_workers
        start = ipu.sync.on_chip_cycles + exchange.phase_overhead_cycles + exchange.route_mean_cycles
        # receiving is bound by bytes, or by the fixed cost of each row, which arrives as a piece of its own
        words = rows * columns * load * self.type.bytes / exchange.bytes_per_cycle
        received = max(words, rows * load * exchange.fragment_cycles)
        kept, reduced = self._shares(rows, columns, load)
        each = self._slots(-(-rows // reduced), -(-columns // kept))
        cycles = start + received + self._launch + workers * each * -(-load * kept * reduced // workers)
        if reduced > 1:
            cycles += self._launch + workers * self._slots(reduced, columns)
        return int(cycles)

    @property
    def _launch(self) -> int:
        launch, sync = self.system.ipu.launch, self.system.ipu.sync
        return launch.compute_set_cycles + launch.run_all_cycles + sync.worker_cycles

    def _slots(self, rows: int, columns: int) -> int:
        one, wide = np.asarray([rows]), np.asarray([columns])
        slots = reduce_cost.strided(one, wide, wide, ipu=self.system.ipu, op=self.op, dtype=self.type, out=self.type)
        return int(slots[0])

    def _columns(self, size: int, rows: int) -> int:
        """Columns of each rectangle so that all tiles are busy, and no worker has less than it is worth."""
        least = self.least_columns
        return -(-size // (rows * self.system.num_tiles * least)) * least

    @property
    def least_columns(self) -> int:
        """Columns that are worth a worker."""
        return MIN_VECTORS_PER_WORKER * reduce_cost.accumulators(self.op, self.system.ipu, self.type)

    def _shares(self, rows: int, columns: int, load: int) -> tuple[int, int]:
        """Into how many parts the columns and the rows of a rectangle are cut for the workers of its tile."""
        ipu = self.system.ipu
        spare = -(-ipu.num_workers // max(load, 1))
        least = self.least_columns
        # Columns first: shares of them need no further step.
        kept = min(spare, max(columns // least, 1))
        worth = kept * 2 <= spare and rows * columns >= MIN_ELEMENTS_PER_WORKER * ipu.num_workers
        return kept, min(spare // kept, rows) if worth else 1

    def _gather(self, steps: list[Combination], partials: Partials, group: int, wanted: TileMapping | None) -> Partials:
        """Append the step that brings up to ``group`` rows of each output to one tile, and the steps after it."""
        longest = self._columns(partials.size, group) if wanted is None else 0
        at = None if wanted is None else wanted.begin
        pieces = cut(partials.begin, partials.length, longest, grain=self.least_columns, extra=at)
        rows, size = pieces.depth, np.append(np.diff(pieces.cuts), 0)
        groups = -(-rows // group)
        # rows of one segment (outputs that the same tiles have partial results of) side by side, by tile: neighbours in
        # a group then come from neighbouring tiles
        order = np.lexsort((partials.tile[pieces.entry], pieces.segment))
        segment = pieces.segment[order]
        rank = np.arange(len(segment)) - np.searchsorted(segment, segment)
        part = rank * groups[segment] // rows[segment]
        base = np.cumsum(groups) - groups
        rectangle = base[segment] + part
        held = partials.tile[pieces.entry[order]].astype(np.int64)
        first = np.flatnonzero(np.append(True, np.diff(rectangle) != 0))
        begin, columns = pieces.cuts[segment[first]], size[segment[first]]
        hosts = self._hosts(held, first) if wanted is None else wanted.tiles_of(begin).astype(np.int64)
        count = np.diff(np.append(first, len(rectangle)))
        kept, reduced = self._dealing(hosts, count, columns)
        local = np.cumsum(np.append(False, np.diff(rectangle) != 0))
        entry = pieces.entry[order]
        step = _dealt(
            partials,
            entry,
            pieces.offset[order],
            rectangle=local,
            first=first,
            rows=count,
            begin=begin,
            columns=columns,
            hosts=hosts,
            kept=kept,
            reduced=reduced,
            vector=self.system.ipu.vector_width(self.type),
        )
        steps.append(step)
        return self._join_on_tiles(steps, step.partials).merged()

    def _dealing(self, hosts: Int64, rows: Int64, columns: Int64) -> tuple[Int64, Int64]:
        """:meth:`_shares` of each rectangle."""
        ipu = self.system.ipu
        spare = -(-ipu.num_workers // np.bincount(hosts)[hosts])
        kept = np.minimum(spare, np.maximum(columns // self.least_columns, 1))
        worth = (kept * 2 <= spare) & (rows * columns >= MIN_ELEMENTS_PER_WORKER * ipu.num_workers)
        return kept, np.where(worth, np.minimum(spare // kept, rows), 1)

    def _hosts(self, held: Int64, first: Int64) -> Int64:
        """A tile for each rectangle, spread over the IPU of its first row, that holds none of its rows if possible.

        Neighbouring rows mostly lie on neighbouring tiles in the order of the results, so counting starts half a chip
        away; few rectangles lie a quarter of their distance further, since small results are put on the first tile, and
        from a tile on that the operand's shape chooses: else sums of many tensors, as of a network's parameters, would
        all be made on the same tiles.
        A host that holds one of its rows would copy it beside what arrives, so rectangles exchange their hosts where
        that leaves fewer such, and then move to idle tiles: no tile gets more to do.
        """
        tiles = self.system.ipu.num_tiles
        num = len(first)
        number = np.arange(num)
        apart = number % tiles if num > tiles else ((number + FIRST_HOST) * tiles / num).astype(np.int64)
        turned = choose_mapping_offset(tiles, self.shape) if self.shape and num < tiles else 0
        at = tiles // 2 + turned + apart
        base = held[first] // tiles * tiles
        span = np.minimum(self.system.num_tiles - base, tiles)
        host = base + at % span
        rectangle = np.repeat(number, np.diff(np.append(first, len(held))))
        taken = np.unique(rectangle * self.system.num_tiles + held)

        def holds(some: Int64, tile: Int64) -> npt.NDArray[np.bool_]:
            key = some * self.system.num_tiles + tile
            return np.asarray(taken[np.minimum(np.searchsorted(taken, key), len(taken) - 1)] == key)

        for distance in _distances(num):
            met = holds(number, host)
            if not met.any():
                break
            # Pairs of rectangles so far apart, no two pairs with one in common.
            one = number[: num - distance][number[: num - distance] // distance % 2 == 0]
            other = one + distance
            gains = met[one] * 1 + met[other] - holds(one, host[other]) - holds(other, host[one])
            swapped = (gains > 0) & (base[one] == base[other])
            one, other = one[swapped], other[swapped]
            host[one], host[other] = host[other], host[one]
        for tried in range(HOST_TRIES):
            left = number[holds(number, host)]
            idle = np.setdiff1d(np.arange(self.system.num_tiles), host) if len(left) else left
            if not len(idle):
                break
            # The idle tiles that follow each host, which several may have in common: the first takes it.
            tile = idle[(np.searchsorted(idle, host[left]) + tried) % len(idle)]
            _, firsts = np.unique(tile, return_index=True)
            left, tile = left[firsts], tile[firsts]
            better = ~holds(left, tile) & (tile // tiles * tiles == base[left])
            host[left[better]] = tile[better]
        return np.asarray(host, np.int64)


def _distances(num: int) -> list[int]:
    """Distances between rectangles that may swap their hosts, as shares of their number."""
    found = [int(np.ceil(num * part)) for part in EXCHANGE_DISTANCES]
    return [n for n in dict.fromkeys(found) if 0 < n < num]


def _plans(deepest: int) -> list[tuple[int, ...]]:
    """Sizes of groups, step by step: equal ones, of as many steps as may pay."""
    plans = []
    for steps in range(1, MAX_STEPS + 1):
        left, sizes = deepest, []
        # Rounded before it is rounded up: 8 ** (1 / 3) is a little more than 2 in floating point.
        for step in range(steps, 0, -1):
            size = max(2, int(np.ceil(round(left ** (1 / step), 9))))
            sizes.append(size)
            left = -(-left // size)
        # Fewer than two rows per group would be no step.
        if left == 1 and deepest >= 2**steps:
            plans.append(tuple(sizes))
    return plans or [(deepest,)]


def _dealt(
    partials: Partials,
    entry: Int64,
    offset: Int64,
    rectangle: Int64,
    first: Int64,
    rows: Int64,
    begin: Int64,
    columns: Int64,
    hosts: Int64,
    kept: Int64,
    reduced: Int64,
    vector: int,
) -> Combination:
    """One vertex for each share of the columns and of the rows of each rectangle."""
    parts = kept * reduced
    base = np.cumsum(parts) - parts
    rank = np.arange(len(rectangle)) - first[rectangle]
    # Rows of a rectangle are dealt in order and as evenly as can be; every share of columns sees all rows of its part.
    row_part = rank * reduced[rectangle] // rows[rectangle]
    row = np.repeat(np.arange(len(rectangle)), kept[rectangle])
    column_part = np.arange(len(row)) - (np.cumsum(kept[rectangle]) - kept[rectangle])[row]
    own = rectangle[row]
    # Workers load vectors: rows of whole ones.
    low, size = share(columns[own], kept[own], column_part, vector)
    vertex = base[own] + column_part * reduced[own] + row_part[row]
    order = np.argsort(vertex, kind="stable")
    vertex, row, own, low, size = vertex[order], row[order], own[order], low[order], size[order]
    head = np.flatnonzero(np.append(True, np.diff(vertex) != 0))
    given = Partials((begin[own] + low)[head], size[head], hosts[own[head]].astype(np.int32))
    return Combination(given, partials.offset[entry[row]] + offset[row] + low, vertex)
