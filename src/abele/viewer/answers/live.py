"""Curves of live memory: sums over lifetimes, for all tiles or some."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.report import Report
from abele.viewer.answers.holdings import Overlap, summed_by


def weights(report: Report, tiles: Int64 | None) -> Int64:
    """Bytes of each variable on some tiles, gaps behind them included, int64[variables]; on all when None."""
    table, count = report.variable_tiles, len(report.variables)
    covered = _covered(report, tiles, table["first_tile"], table["num_tiles"])
    return summed_by(table["variable"], table["padded_bytes"] * covered, count)


def variable_bytes(report: Report, held: Int64) -> Int64:
    """Bytes of not always-live variables at each row of the steps table, int64[steps].

    Args:
        report: The report.
        held: Bytes of each variable, int64[variables].
    """
    table, count = report.lifetimes, len(report.steps)
    change = np.zeros(count + 1, np.int64)
    amount = held[table["variable"]]
    np.add.at(change, table["first_step"], amount)
    np.subtract.at(change, np.minimum(table["last_step"].astype(np.int64) + 1, count), amount)
    return np.cumsum(change[:-1])


def moving_bytes(report: Report, tiles: Int64 | None) -> Int64:
    """Bytes for data in motion on some tiles at each row of the steps table, int64[steps]."""
    table = report.buffer_tiles
    superstep = report.steps["superstep"]
    most = max(int(table["superstep"].max(initial=-1)), int(superstep.max(initial=-1))) + 1
    if not most:
        return np.zeros(len(report.steps), np.int64)
    covered = _covered(report, tiles, table["first_tile"], table["num_tiles"])
    by_superstep = summed_by(table["superstep"], table["bytes"] * covered, most)
    moving: Int64 = np.where(superstep >= 0, by_superstep[np.maximum(superstep, 0)], 0)
    return moving


def live_bytes(report: Report, tiles: Int64 | None) -> Int64:
    """Bytes live and not always so, data in motion included, at each row of the liveness table, int64[rows]."""
    steps = report.liveness["step"]
    both = variable_bytes(report, weights(report, tiles)) + moving_bytes(report, tiles)
    found: Int64 = both[steps]
    return found


def _covered(report: Report, tiles: Int64 | None, first: npt.NDArray[np.int32], count: npt.NDArray[np.int32]) -> Int64:
    """Number of some tiles, or of all, in each run of tiles, int64[rows]."""
    if tiles is None:
        return count.astype(np.int64)
    return Overlap(tiles, report.memory.num_tiles).covered(first, count)
