"""A run over its sync groups: kinds of time of each, and the chain of steps that bounds the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from abele.report.plot.figure import FAINT, LANE_COLOURS, label, titled, without
from abele.report.plot.kinds import PlotOptions
from abele.report.report import Report
from abele.report.text import count_text, percent_text
from abele.report.update import PARTS
from abele.words import counted

COLOURS = {
    "compute": LANE_COLOURS["C"],
    "arrange": LANE_COLOURS["A"],
    "exchange": LANE_COLOURS["X"],
    "replicas": "#b5651d",
    "sync": LANE_COLOURS["S"],
    "host": LANE_COLOURS["H"],
    "streaming_memory": "#1f5f86",
    "bubble": LANE_COLOURS["."],
}
"""Colour of each part of a group's time; those that lanes of the timeline have too are the same."""
_NAMES = {"replicas": "between replicas", "streaming_memory": "streaming memory", "bubble": "waits"}
_LEAST_BARS = 3
_MOST_LANES = 24


def draw_lanes(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Draw a bar per sync group, or per set of equal ones: kinds of its time, the rest being bubbles."""
    timeline = report.timeline(options.program)
    lanes = timeline.lanes[:_MOST_LANES]
    whole = max(timeline.total, 1)
    bars = [{**lane.cycles, "bubble": lane.bubble} for lane in lanes]
    words = [f" waits {percent_text(lane.bubble_share)}" for lane in lanes]
    _stacked(axes, bars, [lane.title for lane in lanes], words)
    axes.set_xlim(0, 1.15 * whole)
    titled(axes, "what the time of each goes to", f"bubbles are {percent_text(timeline.bubble_share)} of the run")


def draw_path(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Draw the critical path by stage or operation, each bar cut by kind of cycles."""
    timeline = report.timeline(options.program)
    path = timeline.critical_path[: options.top]
    if not path:
        return without(axes, "the report does not hold the critical path")
    whole = max(timeline.total, 1)
    words = [f" {percent_text(link.total / whole)}   {count_text(link.total)} cycles" for link in path]
    _stacked(axes, [link.cycles for link in path], [link.title for link in path], words)
    axes.set_xlim(0, 1.45 * path[0].total)
    shown = f"{len(path)} of {counted(len(timeline.critical_path), 'part')}"
    share = percent_text(sum(link.total for link in path) / whole)
    titled(axes, "critical path: the steps that bound the run", f"{shown}, {share} of the run")
    return None


def _stacked(axes: Axes, bars: Sequence[Mapping[str, int]], names: Sequence[str], words: Sequence[str]) -> None:
    place, left = np.arange(len(bars)), np.zeros(len(bars))
    used = [part for part in (*PARTS, "bubble") if any(bar.get(part) for bar in bars)]
    for part in used:
        width = np.array([bar.get(part, 0) for bar in bars], dtype=float)
        axes.barh(place, width, left=left, height=0.72, color=COLOURS[part])
        left = left + width
    for y, end, text in zip(place.tolist(), left.tolist(), words, strict=True):
        axes.text(end, y, label(text), va="center", fontsize=7.5, color=FAINT)
    axes.set_yticks(place, [label(name, 44) for name in names])
    axes.set_ylim(max(len(bars), _LEAST_BARS) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xticks([])
    parts = [Patch(color=COLOURS[part], label=_NAMES.get(part, part)) for part in used]
    axes.legend(handles=parts, loc="upper left", bbox_to_anchor=(0, 0), ncol=len(parts), borderaxespad=0.3)
