"""Cells of the matrix of tiles and supersteps: what tiles do in steps, worked out of the report's runs of tiles.

Of single tiles all cells are one repetition of the runs and of those of nothing between them. Where several tiles are a
unit, runs are brought onto the units that they touch, and the greatest stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from abele.arrays import Float32, Int64
from abele.report import Report, Table
from abele.report.relations import flat_ranges, joined_rows, ranges_of
from abele.viewer.answers.floor import ipu_tiles

MOST_UNITS = 4_096
"""Rows of a pyramid of maxima."""
MOST_CELLS = 8_000_000
"""Cells of its finest level."""
_CHUNK_PAIRS = 4_000_000


@dataclass(frozen=True)
class Grid:
    """Axes of the matrix.

    Attributes:
        report: The report.
        steps: Rows of the steps table that are columns, int64[columns].
        tiles: Tiles of the machine.
        unit: Log2 of the tiles that the pyramid joins.
        group: Log2 of the steps that it joins.
    """

    report: Report
    steps: Int64
    tiles: int
    unit: int
    group: int


def grid_of(report: Report, program: int) -> Grid:
    """The axes of a program's matrix."""
    steps = np.flatnonzero(report.steps["program"] == program)
    tiles = report.memory.num_tiles
    unit = 0
    while (tiles >> unit) > MOST_UNITS:
        unit += 1
    rows, group = -(-tiles // (1 << unit)), 0
    while rows * (len(steps) >> group) > MOST_CELLS:
        group += 1
    return Grid(report, steps, tiles, unit, group)


def grouped_maxima(values: Float32, rows: int, columns: int) -> Float32:
    """The greatest value of each group of rows and columns; the last groups may be smaller.

    Args:
        values: float32[rows, columns].
        rows: Rows of a group.
        columns: Columns of a group.
    """
    if values.size == 0:
        return values[::rows, ::columns]
    return _grouped(_grouped(values.T, columns).T, rows)


def _grouped(values: Float32, size: int) -> Float32:
    """The greatest of each group of neighbours along the first axis."""
    if size == 1:
        return values
    whole = len(values) // size * size
    found = values[:whole].reshape(-1, size, values.shape[1]).max(axis=1)
    if whole == len(values):
        return np.asarray(found)
    return np.concatenate([found, values[whole:].max(axis=0, keepdims=True)])


def cells(grid: Grid, metric: str, columns: slice, unit: int, tiles: slice) -> Float32:
    """The greatest value of each unit of tiles in each step.

    Args:
        grid: The axes.
        metric: One of METRICS but for memory.
        columns: Steps, places on the axis.
        unit: Log2 of the tiles of a unit.
        tiles: Tiles, beginning at a whole unit.

    Returns:
        float32[units, steps].
    """
    report, steps = grid.report, grid.steps[columns]
    table, phases = report.phase_tiles, report.steps["phase"][grid.steps[columns]]
    idle = metric == "idle_cycles"
    column = "compute_cycles" if idle else metric
    low, high = tiles.start, min(tiles.stop, grid.tiles)
    size = 1 << unit
    units = max(0, -(-(high - low) // size))
    if units == 0 or len(steps) == 0:
        return np.zeros((units, len(steps)), dtype=np.float32)
    begin, count = ranges_of(table, "phase", phases)
    if size == 1:
        dense = _dense(grid, column, begin, count, low, high)
        if dense is not None:
            return _waiting(grid, steps, dense, low, high) if idle else dense.T
    found = np.full((units, len(steps)), np.inf if idle else 0, dtype=np.float32)
    covered = np.zeros((units, len(steps)), dtype=np.int32) if idle else None
    for first, end in _chunks(count, _CHUNK_PAIRS):
        rows, owner = flat_ranges(begin[first:end], count[first:end])
        start, stop = clipped_runs(table, rows, low, high)
        values = table[column][rows]
        here = (start < stop) & ((values > 0) | idle)
        start, stop, values, at = start[here] - low, stop[here] - low, values[here], owner[here] + first
        _paint(found=found, covered=covered, start=start, stop=stop, values=values, at=at, size=size)
    if covered is None:
        return found
    # Tiles that do nothing wait for as long as the step computes, as far as their IPU takes part.
    edges = low + np.minimum(np.arange(units + 1) * size, high - low)
    whole = np.diff(_taking_part(grid, steps, edges), axis=0)
    limit = np.broadcast_to(report.steps["compute_cycles"][steps].astype(np.float32), found.shape)
    np.subtract(limit, found, out=found)
    np.copyto(found, limit, where=covered < whole)
    np.copyto(found, 0, where=whole == 0)
    return np.maximum(found, 0, out=found)


def clipped_runs(table: Table, rows: Int64 | slice, low: int, high: int) -> tuple[Int64, Int64]:
    """First tile and end of runs of like tiles, within ``[low, high]``: they are equal for a run outside."""
    first = table["first_tile"][rows].astype(np.int64)
    return np.clip(first, low, high), np.clip(first + table["num_tiles"][rows], low, high)


def _dense(grid: Grid, column: str, begin: Int64, count: Int64, low: int, high: int) -> Float32 | None:
    """A column of single tiles, float32[steps, tiles]; None where runs overlap or are out of order.

    Between runs of a step, and behind its last, lie runs of nothing: with these one repetition gives all tiles.
    """
    table = grid.report.phase_tiles
    rows, owner = flat_ranges(begin, count)
    start, stop = clipped_runs(table, rows, low, high)
    before = np.empty_like(start)
    before[1:] = stop[:-1]
    ends = np.cumsum(count)
    before[(ends - count)[count > 0]] = low
    at = 2 * np.arange(len(rows)) + owner
    lengths = np.zeros(2 * len(rows) + len(count), dtype=np.int64)
    values = np.zeros(len(lengths), dtype=np.float32)
    lengths[at], lengths[at + 1] = start - before, stop - start
    values[at + 1] = table[column][rows]
    last = np.full(len(count), low, dtype=np.int64)
    last[count > 0] = stop[ends[count > 0] - 1]
    lengths[2 * ends + np.arange(len(count))] = high - last
    if bool((lengths < 0).any()):
        return None
    return np.repeat(values, lengths).reshape(len(count), high - low)


def _waiting(grid: Grid, steps: Int64, dense: Float32, low: int, high: int) -> Float32:
    """Cycles that tiles wait for the slowest of a step, float32[tiles, steps]; 0 on IPUs that do not take part."""
    limit = grid.report.steps["compute_cycles"][steps].astype(np.float32)
    np.subtract(limit[:, None], dense, out=dense)
    np.maximum(dense, 0, out=dense)
    per_ipu = ipu_tiles(grid.report)
    edges = np.unique(np.clip(np.arange(low - low % per_ipu, high + per_ipu, per_ipu), low, high))
    part = np.diff(_taking_part(grid, steps, edges), axis=0) > 0
    for ipu, (first, end) in enumerate(pairwise(edges.tolist())):
        dense[~part[ipu], first - low : end - low] = 0
    return dense.T


def _paint(
    found: Float32,
    covered: npt.NDArray[np.int32] | None,
    start: Int64,
    stop: Int64,
    values: Int64,
    at: Int64,
    size: int,
) -> None:
    """Bring runs of tiles onto the units that they touch: the greatest there, or the least where tiles are counted."""
    first = start // size
    spans = (stop - 1) // size - first + 1
    for low, high in _chunks(spans, _CHUNK_PAIRS):
        units, owner = flat_ranges(first[low:high], spans[low:high])
        owner = owner + low
        where = units * found.shape[1] + at[owner]
        if covered is None:
            if size == 1:
                found.reshape(-1)[where] = values[owner]
            else:
                np.maximum.at(found.reshape(-1), where, values[owner].astype(np.float32))
        else:
            np.minimum.at(found.reshape(-1), where, values[owner].astype(np.float32))
            inside = np.minimum(stop[owner], (units + 1) * size) - np.maximum(start[owner], units * size)
            np.add.at(covered.reshape(-1), where, inside.astype(np.int32))


def _chunks(count: Int64, most: int) -> list[tuple[int, int]]:
    """Neighbours that have at most so many things together, or are one."""
    if not len(count):
        return []
    sums = np.cumsum(count)
    result, first = [], 0
    while first < len(count):
        before = int(sums[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(sums, before + most, side="right")))
        result.append((first, end))
        first = end
    return result


def _taking_part(grid: Grid, steps: Int64, edges: Int64) -> npt.NDArray[np.int32]:
    """Tiles before each edge on IPUs that take part in a step, int32[edges, steps]: others do not wait."""
    report, per_ipu = grid.report, ipu_tiles(grid.report)
    table = report.phase_tiles
    phases = report.steps["phase"][steps]
    ipus = -(-grid.tiles // per_ipu)
    part = np.zeros((ipus + 1, len(phases)), dtype=np.int32)
    rows, owner = joined_rows(table, "phase", phases)
    first = table["first_tile"][rows].astype(np.int64) // per_ipu
    last = (table["first_tile"][rows].astype(np.int64) + table["num_tiles"][rows] - 1) // per_ipu
    at, run = flat_ranges(first, last - first + 1)
    part[np.minimum(at, ipus - 1), owner[run]] = 1
    before = np.cumsum(part, axis=0, dtype=np.int32) * np.int32(per_ipu)
    ipu, rest = np.divmod(edges.astype(np.int32), np.int32(per_ipu))
    return np.asarray(np.where(ipu[:, None] > 0, before[ipu - 1], 0) + part[ipu] * rest[:, None])
