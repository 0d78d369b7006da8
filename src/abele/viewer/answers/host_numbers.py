"""Numbers over time that were measured on the host: series and heat maps."""

from __future__ import annotations

import numpy as np

from abele.arrays import Array, Int64
from abele.viewer.answers.host import MOST_BINS, edges_asked, row_asked, source_asked
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.bars import COLUMNS
from abele.viewer.host_data import host_data
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

_MOST_POINTS = 1_024


def _frozen_series(opened: Opened) -> Frozen:
    for number, source in enumerate(host_data(opened).sources):
        for each in range(min(len(source.columns.series), 16)):
            yield {"source": str(number), "series": str(each), "level": "0", "index": "0"}


@question("host.series", frozen=_frozen_series, rank=5)
def series(opened: Opened, params: Params) -> Answer:
    """A numeric series in a map tile, with one point before and behind it.

    Parameters: ``source``, ``series``, ``level``, ``index``.

    Answer: arrays ``time``, ``low``, ``high``, ``value`` (ns and values): single points, or least, largest and last of
    each column that has some.
    """
    data, source = source_asked(opened, params)
    held = source.columns.series[row_asked(params, "series", len(source.columns.series))]
    edges = edges_asked(data, params)
    first, last = np.searchsorted(held.time_ns, [edges[0], edges[-1]])
    rows = slice(max(int(first) - 1, 0), int(last) + 1)
    time, value = held.time_ns[rows], held.values[rows]
    if len(time) <= _MOST_POINTS:
        return Answer({}, {"time": time, "low": value, "high": value, "value": value})
    column = np.searchsorted(edges, time, side="right")
    starts = np.flatnonzero(np.append(True, np.diff(column) != 0))
    ends = np.append(starts[1:], len(time)) - 1
    low = np.fmin.reduceat(value, starts)
    high = np.fmax.reduceat(value, starts)
    return Answer({}, {"time": time[ends], "low": low, "high": high, "value": value[ends]})


def _frozen_heatmaps(opened: Opened) -> Frozen:
    for number, source in enumerate(host_data(opened).sources):
        for each in range(min(len(source.columns.heatmaps), 8)):
            yield {"source": str(number), "heatmap": str(each), "level": "0", "index": "0"}


@question("host.heatmap", frozen=_frozen_heatmaps, rank=6)
def heatmap(opened: Opened, params: Params) -> Answer:
    """A histogram over time in a map tile.

    Parameters: ``source``, ``heatmap``, ``level``, ``index``.

    Answer: arrays ``time`` (ns, where each column begins), ``until`` and ``counts`` float32[columns, bins], means of
    what falls into a column; ``edges`` of the bins.
    """
    data, source = source_asked(opened, params)
    held = source.columns.heatmaps[row_asked(params, "heatmap", len(source.columns.heatmaps))]
    edges = edges_asked(data, params)
    first, last = np.searchsorted(held.time_ns, [edges[0], edges[-1]])
    rows = slice(max(int(first) - 1, 0), max(int(last), 1))
    time, counts = held.time_ns[rows], held.counts[rows].astype(np.float64)
    ends = np.append(held.time_ns[rows.start + 1 : rows.stop], _next(held.time_ns, rows.stop, data.duration_ns))
    if len(time) > COLUMNS:
        column = np.searchsorted(edges, time, side="right")
        starts = np.flatnonzero(np.append(True, np.diff(column) != 0))
        sizes = np.diff(np.append(starts, len(time)))
        counts = np.add.reduceat(counts, starts, axis=0) / sizes[:, None]
        time, ends = time[starts], np.append(time[starts][1:], ends[-1])
    bins, bin_edges = _fewer_bins(counts, held.edges)
    return Answer(
        {},
        {"time": time, "until": ends[: len(time)], "counts": bins.astype(np.float32), "edges": bin_edges},
    )


def _next(times: Int64, place: int, end: int) -> int:
    """The time after some rows; as long as the one before where there is none."""
    if place < len(times):
        return int(times[place])
    if len(times) > 1:
        return min(int(2 * times[-1] - times[-2]), max(end, int(times[-1])))
    return end


def _fewer_bins(counts: Array, edges: Array) -> tuple[Array, Array]:
    """Neighbouring bins added up where there are too many to draw."""
    each = -(-counts.shape[1] // MOST_BINS) if counts.shape[1] else 1
    starts = np.arange(0, counts.shape[1], each)
    if each == 1 or not len(starts):
        return counts, edges
    return np.add.reduceat(counts, starts, axis=1), np.append(edges[starts], edges[-1])
