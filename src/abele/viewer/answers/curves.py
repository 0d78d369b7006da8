"""Curves of a report that are laid over those of others: few points, in which no peak is lost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.viewer.answers.registry import once, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

POINTS = 512


@question("curves", frozen=once, rank=1)
def curves(opened: Opened, params: Params) -> Answer:
    """``memory``: bytes of each tile, fullest first; ``compute``: cycles that each tile computes in a run, most first;
    ``live``: bytes on all tiles at each step, with what is always live.

    Each is cut in at most 512 parts of equal length, of which the maximum is told; ``counts`` says of how many values.
    """
    report = opened.report
    held = np.sort(report.memory.by_tile)[::-1]
    computed = np.sort(report.compute_cycles_by_tile)[::-1]
    moving = report.memory.totals()["temporaries"]
    live = report.liveness["live_bytes"] + (report.memory.total_bytes - moving)
    counts = {"memory": len(held), "compute": len(computed), "live": len(live)}
    arrays = {"memory": maxima(held), "compute": maxima(computed), "live": maxima(live)}
    return Answer({"counts": counts, "available_bytes": report.memory.available_bytes}, arrays)


def maxima(values: npt.NDArray[np.int64], points: int = POINTS) -> npt.NDArray[np.int64]:
    """The maxima of at most ``points`` parts of equal length, int64[min(n, points)].

    Args:
        values: int64[n].
        points: Number of parts.
    """
    if len(values) <= points:
        return values
    starts = np.arange(points) * len(values) // points
    return np.maximum.reduceat(values, starts)
