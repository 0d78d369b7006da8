"""Rankings: the most expensive operations, and the most expensive exchanges."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from abele.report.cycles import PARTS
from abele.report.plot.figure import FAINT, label, titled, without
from abele.report.plot.kinds import PlotOptions
from abele.report.report import Report
from abele.report.text import CYCLE_COLOURS, bytes_text, category_text, count_text, percent_text, source_text
from abele.words import counted

_LEAST_BARS = 6
"""Bars that there is always room for, so that a single one does not fill the panel."""


def draw_operations(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Draw the operations with most cycles, each bar cut by kind of cycles."""
    ops = report.ops.top(options.top, "cycles")
    ops = ops.select(ops["cycles"] > 0)
    if not len(ops):
        return without(axes, "no operation takes any cycles")
    place = np.arange(len(ops))
    left = np.zeros(len(ops))
    for part in PARTS:
        width = ops[f"{part}_cycles"]
        axes.barh(place, width, left=left, height=0.72, color=CYCLE_COLOURS[part])
        left = left + width
    rows = list(ops.rows())
    for y, end, row in zip(place.tolist(), left.tolist(), rows, strict=True):
        source = source_text(row["file"], row["line"])
        words = f" {percent_text(row['share'])}   {count_text(row['cycles'])} cycles   {label(source, 40)}"
        axes.text(end, y, words, va="center", fontsize=7.5, color=FAINT)
    axes.set_yticks(place, [label("/".join(filter(None, (row["path"], row["name"]))), 44) for row in rows])
    axes.set_xlim(0, 1.45 * left.max())
    _finish(axes, len(place))
    parts = [Patch(color=CYCLE_COLOURS[p], label=category_text(p)) for p in PARTS if ops[f"{p}_cycles"].any()]
    axes.legend(handles=parts, loc="upper left", bbox_to_anchor=(0, 0), ncol=len(parts), borderaxespad=0.3)
    shown = f"{len(ops)} of {counted(len(report.ops), 'operation')}"
    titled(axes, "most expensive operations", f"{shown}, {percent_text(float(ops['share'].sum()))} of the cycles")
    return None


def draw_exchange(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Draw the exchange phases with most cycles, and their bytes."""
    steps = report.steps.where("program", options.program)
    spent = steps["executions"] * steps["exchange_cycles"]
    order = np.argsort(-spent, kind="stable")[: options.top]
    order = order[spent[order] > 0]
    if not len(order):
        return without(axes, f"program {options.program} exchanges nothing")
    place = np.arange(len(order))
    axes.barh(place, spent[order], height=0.72, color=CYCLE_COLOURS["exchange"])
    rows = list(steps.select(order).rows())
    for y, cycles, row in zip(place.tolist(), spent[order].tolist(), rows, strict=True):
        times = f"{row['executions']:,} x " if row["executions"] > 1 else ""
        moved = (
            f"{times}{bytes_text(row['exchanged_bytes'])}, busiest tile receives {bytes_text(row['max_receive_bytes'])}"
        )
        axes.text(cycles, y, f" {count_text(cycles)} cycles   {moved}", va="center", fontsize=7.5, color=FAINT)
    axes.set_yticks(place, [label(row["name"], 44) for row in rows])
    axes.set_xlim(0, 1.9 * spent[order].max())
    _finish(axes, len(place))
    share = float(spent.sum()) / max(float(report.cycles(options.program).total), 1.0)
    titled(axes, "most expensive exchanges", f"exchange is {percent_text(share)} of the run's cycles")
    return None


def _finish(axes: Axes, bars: int) -> None:
    axes.set_ylim(max(bars, _LEAST_BARS) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xticks([])
