"""Any metric by tile and superstep: maxima of groups of tiles and steps, as squares of a picture at every zoom.

A level ``n`` joins 2ⁿ tiles, or steps, and an answer is a square of :data:`SIDE` by :data:`SIDE` groups. The report
says what tiles do as runs of neighbours, so squares of few steps are worked out of the runs when they are asked for;
squares of many come from a pyramid of maxima that is made once. On machines of many tiles its rows are units of them.
What tiles hold is no maximum: of several steps the one is shown at which most is live.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Float32, Int64
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.relations import flat_ranges, joined_rows, sums_of
from abele.viewer.answers.costs import step_costs
from abele.viewer.answers.floor import ipu_tiles, physical_order
from abele.viewer.answers.matrix_cells import Grid, cells, clipped_runs, grid_of, grouped_maxima
from abele.viewer.answers.recent import recent
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

# Memory of tiles while steps run, as cells of the matrix of tiles and supersteps.
#
# A variable on a run of tiles is a rectangle of cells, from the first step of its life to the last: added at its
# corners, the running sums over both axes are what lies on each cell.


def memory_cells(report: Report, picks: Int64, tiles: slice) -> Float32:
    """Bytes that tiles hold while some steps run, float32[tiles, steps].

    Args:
        report: The report.
        picks: Rows of the steps table, ascending.
        tiles: Numbers of the tiles.
    """
    memory, held, lives = report.memory, report.variable_tiles, report.lifetimes
    low, high = tiles.start, min(tiles.stop, memory.num_tiles)
    temporaries = memory.categories.index("temporaries") if "temporaries" in memory.categories else None
    always = memory.by_tile - (
        np.repeat(memory.run_bytes[temporaries], memory.run_tiles) if temporaries is not None else 0
    )
    first = np.searchsorted(picks, lives["first_step"])
    end = np.searchsorted(picks, lives["last_step"], side="right")
    seen = np.flatnonzero(first < end)
    variable = lives["variable"][seen]
    rows, owner = joined_rows(held, "variable", variable)
    start, stop = clipped_runs(held, rows, low, high)
    here = start < stop
    start, stop, size, owner = start[here] - low, stop[here] - low, held["padded_bytes"][rows][here], owner[here]
    a, b = first[seen][owner], end[seen][owner]
    columns = (start, stop, a, b, size), _moving(report, picks, low, high), _sent(report, picks, low, high)
    start, stop, a, b, size = (np.concatenate(column) for column in zip(*columns, strict=True))
    # Add at the corners of each rectangle: the running sums over both axes are what lies on each cell.
    change = np.zeros((max(high - low, 0) + 1, len(picks) + 1))
    np.add.at(change, (start, a), size)
    np.add.at(change, (stop, b), size)
    np.subtract.at(change, (start, b), size)
    np.subtract.at(change, (stop, a), size)
    np.cumsum(change, axis=0, out=change)
    np.cumsum(change, axis=1, out=change)
    return (change[:-1, :-1] + always[low:high, None]).astype(np.float32)


_Cells = tuple[Int64, Int64, Int64, Int64, Int64]
"""First tile and end, first place among some steps and end, and bytes on each cell, of rectangles."""


def _sent(report: Report, picks: Int64, low: int, high: int) -> _Cells:
    """Shares that are free before the last step of their lives ends, as rectangles of negative bytes."""
    table = report.sent_tiles
    first = np.searchsorted(picks, table["first_step"])
    end = np.searchsorted(picks, table["last_step"], side="right")
    start, stop = clipped_runs(table, slice(None), low, high)
    here = np.flatnonzero((first < end) & (start < stop))
    return start[here] - low, stop[here] - low, first[here], end[here], -table["bytes"][here].astype(np.int64)


def _moving(report: Report, picks: Int64, low: int, high: int) -> _Cells:
    """Buffers of the supersteps of some steps."""
    table, superstep = report.buffer_tiles, report.steps["superstep"][picks]
    rows, owner = joined_rows(table, "superstep", superstep)
    start, stop = clipped_runs(table, rows, low, high)
    here = start < stop
    place, size = owner[here], table["bytes"][rows][here].astype(np.int64)
    return start[here] - low, stop[here] - low, place, place + 1, size


def representatives(grid: Grid, columns: slice, group: int) -> Int64:
    """Of each group of steps the one at which most is live, rows of the steps table, int64[groups]."""
    steps, size = grid.steps[columns], 1 << group
    if size == 1 or not len(steps):
        return steps
    table = grid.report.liveness
    live = np.zeros(len(grid.report.steps))
    live[table["step"]] = table["live_bytes"]
    padded = np.full(-(-len(steps) // size) * size, -1.0)
    padded[: len(steps)] = live[steps]
    at = padded.reshape(-1, size).argmax(axis=1) + np.arange(len(padded) // size) * size
    return np.asarray(steps[at])


METRICS = ("compute_cycles", "sent_bytes", "received_bytes", "idle_cycles", "memory_bytes")
ORDERS = ("number", "size", "physical")
"""Of tiles: by number; those with the greatest sum first; row by row as they lie on the chip."""
SIDE = 256
"""Groups of tiles, and of steps, of an answer."""
_CHUNK_CELLS = 1_000_000


def pyramid(opened: Opened, grid: Grid, metric: str, program: int) -> Float32:
    """The maxima of all units and groups of steps, float32[units, groups]."""

    def make() -> Float32:
        size = 1 << grid.group
        width = max(1, _CHUNK_CELLS // max(1, -(-grid.tiles // (1 << grid.unit))) // size) * size
        parts = [
            grouped_maxima(cells(grid, metric, slice(c, c + width), grid.unit, slice(0, grid.tiles)), 1, size)
            for c in range(0, len(grid.steps), width)
        ]
        empty = np.zeros((-(-grid.tiles // (1 << grid.unit)), 0), dtype=np.float32)
        return np.concatenate(parts, axis=1) if parts else empty

    # Several squares are asked for at once; one of them makes it.
    with opened.once("pyramids are made", threading.Lock):
        return recent(opened, "pyramids of matrices", (metric, program), make, most=4)


def row_sums(report: Report, metric: str, program: int) -> npt.NDArray[np.float64]:
    """Work of each tile in a run, or its largest memory, float64[tiles]."""
    if metric == "memory_bytes":
        return report.memory.by_tile.astype(np.float64)
    if metric == "idle_cycles":
        compute = report.program_by_tile("compute_cycles", program).astype(np.float64)
        mine = report.steps["program"] == program
        whole = float((report.steps["compute_cycles"] * report.steps["executions"])[mine].sum())
        per_ipu = ipu_tiles(report)
        if report.memory.num_tiles > per_ipu:
            # Several IPUs do not wait for each other's steps: the busiest tile of each says how long its own take.
            busiest = np.maximum.reduceat(compute, np.arange(0, len(compute), per_ipu))
            return np.asarray(np.maximum(np.repeat(busiest, per_ipu)[: len(compute)] - compute, 0))
        return np.asarray(np.maximum(whole - compute, 0))
    return report.program_by_tile(metric, program).astype(np.float64)


def column_sums(grid: Grid, metric: str) -> npt.NDArray[np.float64]:
    """Work of all tiles together in one execution of each step, float64[steps]."""
    report, steps = grid.report, grid.steps
    if metric == "memory_bytes":
        table = report.liveness
        live = np.zeros(len(report.steps))
        live[table["step"]] = table["live_bytes"]
        return np.asarray(live[steps])
    table = report.phase_tiles
    column = "compute_cycles" if metric == "idle_cycles" else metric
    weights = table[column] * table["num_tiles"].astype(np.float64)
    sums = sums_of(table, "phase", weights, report.steps["phase"][steps])
    if metric != "idle_cycles":
        return np.asarray(sums)
    told = report.steps["tile_balance"][steps]
    # The balance says how many tiles' worth of cycles the step's groups have.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(told > 0, sums / np.maximum(told, 1e-12) - sums, 0.0).clip(0))


def order_of_tiles(opened: Opened, grid: Grid, metric: str, program: int, order: str) -> Int64:
    """Units of tiles in the order in which they are shown, int64[units]."""
    units = -(-grid.tiles // (1 << grid.unit))
    if order == "number" or not units:
        return np.arange(units)
    if order == "physical":
        return physical_order(grid.tiles, ipu_tiles(grid.report)) if grid.unit == 0 else np.arange(units)
    sums = row_sums(grid.report, metric, program)
    by_unit = np.maximum.reduceat(sums, np.arange(0, grid.tiles, 1 << grid.unit))
    return np.argsort(-by_unit, kind="stable")


def _asked(params: Params, opened: Opened) -> tuple[str, int, str, Grid]:
    metric, program = params.choice("metric", METRICS), params.number("program")
    grid = opened.once(f"grid of matrix {program}", lambda: grid_of(opened.report, program))
    return metric, program, params.choice("order", ORDERS), grid


def _frozen_axes(opened: Opened) -> Frozen:
    del opened
    yield from ({"metric": metric, "order": "number", "program": "0"} for metric in METRICS)


@question("matrix.axes", frozen=_frozen_axes, rank=6)
def axes(opened: Opened, params: Params) -> Answer:
    """The axes of a matrix and the sums beside it.

    Parameters: ``metric``, ``program``, ``order`` of tiles.

    Answer: head ``columns``, ``rows`` (tiles), ``unit`` (log2 of the tiles that may be sorted together), ``most`` (the
    greatest value), ``side``; arrays ``step`` (row of each column), ``part`` (number of its colour), ``tile`` (at each
    place, as far as units are one tile, else the first of each unit), ``row_sums`` [tiles, in that order] and
    ``column_sums``.
    """
    metric, program, order, grid = _asked(params, opened)
    units = order_of_tiles(opened, grid, metric, program, order)
    first = units << grid.unit
    tiles, _ = flat_ranges(first, np.minimum(1 << grid.unit, grid.tiles - first))
    sums = row_sums(grid.report, metric, program)
    most = _most(grid, metric)
    head = {
        "columns": len(grid.steps),
        "rows": grid.tiles,
        "unit": grid.unit,
        "most": most,
        "side": SIDE,
        "sorted": order != "number",
    }
    return Answer(
        head,
        {
            "step": grid.steps.astype(np.int32),
            "part": step_costs(opened).part[grid.steps],
            "tile": first.astype(np.int32),
            "row_sums": sums[tiles].astype(np.float32),
            "column_sums": column_sums(grid, metric).astype(np.float32),
        },
    )


def _most(grid: Grid, metric: str) -> float:
    report = grid.report
    if metric == "memory_bytes":
        return float(report.memory.by_tile.max(initial=0))
    if metric == "idle_cycles":
        return float(report.steps["compute_cycles"][grid.steps].max(initial=0))
    phases = np.unique(report.steps["phase"][grid.steps])
    table = report.phase_tiles
    mine = np.isin(table["phase"], phases)
    return float(table[metric][mine].max(initial=0))


def _frozen_cells(opened: Opened) -> Frozen:
    grid = grid_of(opened.report, 0)
    row = top_level(grid.tiles)
    for metric in METRICS:
        column = top_level(len(grid.steps))
        for level in range(column, max(column - 3, -1), -1):
            for at in range(-(-len(grid.steps) // (SIDE << level))):
                yield {
                    "metric": metric,
                    "order": "number",
                    "program": "0",
                    "cl": str(level),
                    "rl": str(row),
                    "c": str(at),
                    "r": "0",
                }


def top_level(length: int) -> int:
    """The level at which an axis is one square."""
    return max(0, (max(length, 1) - 1).bit_length() - (SIDE - 1).bit_length())


@question("matrix", frozen=_frozen_cells, rank=7)
def matrix(opened: Opened, params: Params) -> Answer:
    """A square of maxima.

    Parameters: ``metric``, ``program``, ``order``; ``cl`` and ``rl`` levels of columns and rows, ``c`` and ``r`` the
    square's number on each axis.

    Answer: array ``values`` [rows, columns] float32, smaller at the ends of axes.

    Raises:
        InvalidOptionError: Sorted tiles are asked for more finely than they are sorted.
    """
    metric, program, order, grid = _asked(params, opened)
    column_level = params.number("cl", high=len(grid.steps).bit_length())
    row_level = params.number("rl", high=grid.tiles.bit_length())
    at_column, at_row = params.number("c"), params.number("r")
    columns = _span(at_column, column_level, len(grid.steps))
    tiles = _span(at_row, row_level, grid.tiles)
    if order != "number" and row_level < grid.unit:
        raise InvalidOptionError(
            f"sorted tiles are shown {1 << grid.unit} at a time", remedy="order=number shows single tiles"
        )
    if metric == "memory_bytes":
        found = _memory(
            opened, grid, program, order, columns=columns, column_level=column_level, tiles=tiles, row_level=row_level
        )
        return Answer({}, {"values": found})
    if column_level < grid.group or row_level < grid.unit:
        if order == "number":
            found = cells(grid, metric, columns, row_level, tiles)
            return Answer({}, {"values": grouped_maxima(found, 1, 1 << column_level)})
        found = recent(
            opened,
            "unsorted squares",
            (metric, program, column_level, at_column),
            lambda: grouped_maxima(cells(grid, metric, columns, grid.unit, slice(0, grid.tiles)), 1, 1 << column_level),
            most=24,
        )
    else:
        whole = pyramid(opened, grid, metric, program)
        groups = slice(columns.start >> grid.group, -(-columns.stop // (1 << grid.group)))
        found = grouped_maxima(whole[:, groups], 1, 1 << (column_level - grid.group))
    units = slice(tiles.start >> grid.unit, -(-tiles.stop // (1 << grid.unit)))
    rows = order_of_tiles(opened, grid, metric, program, order)[units]
    return Answer({}, {"values": grouped_maxima(found[rows], 1 << (row_level - grid.unit), 1)})


def _span(at: int, level: int, length: int) -> slice:
    first = min(at * (SIDE << level), length)
    return slice(first, min(first + (SIDE << level), length))


def _memory(
    opened: Opened,
    grid: Grid,
    program: int,
    order: str,
    columns: slice,
    column_level: int,
    tiles: slice,
    row_level: int,
) -> Array:
    picks = representatives(grid, columns, column_level)
    if order == "number":
        parts = [
            grouped_maxima(memory_cells(grid.report, picks[c : c + 32], tiles), 1 << row_level, 1)
            for c in range(0, len(picks), 32)
        ]
    else:
        units = slice(tiles.start >> grid.unit, -(-tiles.stop // (1 << grid.unit)))
        rows = order_of_tiles(opened, grid, "memory_bytes", program, order)[units]
        parts = []
        for c in range(0, len(picks), 32):
            whole = memory_cells(grid.report, picks[c : c + 32], slice(0, grid.tiles))
            parts.append(
                grouped_maxima(grouped_maxima(whole, 1 << grid.unit, 1)[rows], 1 << (row_level - grid.unit), 1)
            )
    size = -(-(tiles.stop - tiles.start) // (1 << row_level))
    return np.concatenate(parts, axis=1) if parts else np.zeros((size, 0), dtype=np.float32)
