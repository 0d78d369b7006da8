"""Memory of tiles while steps run, as cells of the matrix of tiles and supersteps.

A variable on a run of tiles is a rectangle of cells, from the first step of its life to the last: added at its corners,
the running sums over both axes are what lies on each cell.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Float32, Int64
from abele.report import Report
from abele.viewer.answers.costs import flat
from abele.viewer.answers.matrix_cells import Grid


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
    begin = np.searchsorted(held["variable"], variable)
    count = np.searchsorted(held["variable"], variable, side="right") - begin
    rows, owner = flat(begin, count)
    start = np.maximum(held["first_tile"][rows].astype(np.int64), low)
    stop = np.minimum(held["first_tile"][rows].astype(np.int64) + held["num_tiles"][rows], high)
    here = start < stop
    start, stop, size, owner = start[here] - low, stop[here] - low, held["padded_bytes"][rows][here], owner[here]
    a, b = first[seen][owner], end[seen][owner]
    moving = _moving(report, picks, low, high)
    start, stop = np.concatenate([start, moving[0]]), np.concatenate([stop, moving[1]])
    a, b = np.concatenate([a, moving[2]]), np.concatenate([b, moving[2] + 1])
    size = np.concatenate([size, moving[3]])
    # Add at the corners of each rectangle: the running sums over both axes are what lies on each cell.
    change = np.zeros((max(high - low, 0) + 1, len(picks) + 1))
    np.add.at(change, (start, a), size)
    np.add.at(change, (stop, b), size)
    np.subtract.at(change, (start, b), size)
    np.subtract.at(change, (stop, a), size)
    np.cumsum(change, axis=0, out=change)
    np.cumsum(change, axis=1, out=change)
    return (change[:-1, :-1] + always[low:high, None]).astype(np.float32)


def _moving(report: Report, picks: Int64, low: int, high: int) -> tuple[Int64, Int64, Int64, Int64]:
    """Buffers of the supersteps of some steps: first tile, end, place among the steps, and bytes of each run."""
    table, superstep = report.buffer_tiles, report.steps["superstep"][picks].astype(np.int64)
    begin = np.searchsorted(table["superstep"], superstep)
    count = np.where(superstep >= 0, np.searchsorted(table["superstep"], superstep, side="right") - begin, 0)
    rows, owner = flat(begin, count)
    start = np.maximum(table["first_tile"][rows].astype(np.int64), low)
    stop = np.minimum(table["first_tile"][rows].astype(np.int64) + table["num_tiles"][rows], high)
    here = start < stop
    return start[here] - low, stop[here] - low, owner[here], table["bytes"][rows][here].astype(np.int64)


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
