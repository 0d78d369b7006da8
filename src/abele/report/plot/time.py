"""Time: work of each sync group over a run, and kinds of cycles."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from abele.arrays import Float64
from abele.report.block_runs import block_runs, run_labels
from abele.report.plot.figure import FAINT, LANE_COLOURS, label, thousands, titled, without
from abele.report.plot.kinds import PlotOptions
from abele.report.report import Report
from abele.report.text import CYCLE_COLOURS, category_text, count_text, percent_text, seconds_text
from abele.report.timeline import LETTERS, horizon, lane_cycles
from abele.words import counted

_COLUMNS = 1200
_MOST_LANES = 24
_ORDER = "CAXSHD.~"
"""Letters from the bottom of a lane to its top."""
_LETTER = 0.0105
"""Part of the width that a letter takes."""
_SMALL_LETTER = 0.0075
"""The same of one in a lane."""
_LANE_ROWS, _FILLED_ROWS = 50, 42
"""Rows of pixels of a lane, and those of them that are filled; the others part it from the next."""
_ROW = np.arange(_FILLED_ROWS)[:, None]
_STRIPES = (_ROW + np.arange(_COLUMNS)) % 8 < 2
"""Pixels of the stripes for parts that the report does not hold."""


def _window(report: Report, options: PlotOptions) -> Float64 | None:
    """Edges between the columns of the time axis; None when there is nothing to show."""
    whole = horizon(report, options.program, _COLUMNS)
    end = whole if options.cycles is None else options.first + options.cycles
    return np.linspace(options.first, end, _COLUMNS + 1) if whole and end > options.first else None


def _axis(axes: Axes, report: Report, edges: Float64) -> None:
    axes.set_xlim(edges[0], edges[-1])
    thousands(axes.xaxis)
    shown = seconds_text(report.seconds(float(edges[-1] - edges[0])))
    axes.set_xlabel(f"cycle of the run; {shown} are shown")


def _rgb(letter: str) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in to_rgb(LANE_COLOURS[letter]))


def draw_timeline(axes: Axes, report: Report, options: PlotOptions) -> None:
    """A lane for each sync group; the height of a colour is its share of the column's cycles."""
    edges = _window(report, options)
    groups = np.flatnonzero(report.groups["program"] == options.program)
    if edges is None or not len(groups):
        return without(axes, f"the report holds no timeline of program {options.program}")
    busiest = groups[np.argsort(-report.groups["busy_cycles"][groups], kind="stable")[:_MOST_LANES]]
    shown = np.sort(busiest)
    cell = float(edges[1] - edges[0])
    picture, seen = np.full((len(shown) * _LANE_ROWS, _COLUMNS, 3), 255, np.uint8), set()
    for lane, group in enumerate(shown.tolist()):
        shares = {k: np.clip(v / cell, 0, 1) for k, v in lane_cycles(report, group, edges).items() if v.max() > 0}
        rows = picture[lane * _LANE_ROWS :][:_FILLED_ROWS]
        base = np.zeros(_COLUMNS)
        for letter in (each for each in _ORDER if each in shares):
            top = base + _FILLED_ROWS * shares[letter]
            seen.add(letter)
            inside = (np.round(base) <= _ROW) & (np.round(top) > _ROW)
            rows[inside[::-1] & (_STRIPES if letter == "~" else True)] = _rgb(letter)
            base = top
    axes.imshow(picture, aspect="auto", interpolation="nearest", extent=(edges[0], edges[-1], len(shown), 0))
    _name_runs(axes, report, shown.tolist(), edges)
    names = [label(str(name), 24) for name in report.groups["name"][shown]]
    axes.set_yticks(np.arange(len(shown)) + 0.5 * _FILLED_ROWS / _LANE_ROWS, names)
    axes.set_ylim(len(shown), -0.1)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _axis(axes, report, edges)
    patches = [
        Patch(facecolor=LANE_COLOURS[k], label=LETTERS[k], hatch="////" if k == "~" else None)
        for k in _ORDER
        if k in seen
    ]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0)
    total = report.cycles(options.program).total
    left = f"; the {len(shown)} busiest of {counted(len(groups), 'sync group')}" if len(shown) < len(groups) else ""
    titled(axes, "timeline", f"{count_text(total)} cycles = {seconds_text(report.seconds(total))}{left}")
    return None


def _name_runs(axes: Axes, report: Report, groups: list[int], edges: Float64) -> None:
    """Write over lanes the running block of the program and its micro-batch, where there is room."""
    runs = [block_runs(report, group) for group in groups]
    _, short = run_labels(run for each in runs for run in each)
    width = float(edges[-1] - edges[0])
    for lane, each in enumerate(runs):
        for run in each:
            left, right = max(run.start_cycle, float(edges[0])), min(run.end_cycle, float(edges[-1]))
            words = label(f"{short[run.block]}:{run.number}", 24)
            if right - left < _SMALL_LETTER * len(words) * width:
                continue
            box = {"facecolor": "white", "alpha": 0.75, "pad": 0.8, "lw": 0}
            middle = lane + 0.5 * _FILLED_ROWS / _LANE_ROWS
            axes.text((left + right) / 2, middle, words, ha="center", va="center", fontsize=7, bbox=box)


def draw_shares(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Draw the shares of all cycles of a run, as one bar."""
    cycles = report.cycles(options.program)
    shares = {name: share for name, share in cycles.shares().items() if share > 0}
    if not shares:
        return without(axes, f"program {options.program} takes no cycles")
    left, small = 0.0, []
    for name, share in shares.items():
        words = f"{category_text(name)} {percent_text(share)}"
        axes.barh(0, share, left=left, height=1, color=CYCLE_COLOURS[name])
        if share > _LETTER * len(words):
            axes.text(left + share / 2, 0, words, ha="center", va="center", color="white", fontsize=8.5)
        else:
            small.append(words)
        left += share
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.5, 0.5)
    axes.set_axis_off()
    also = f" · {' · '.join(small)}" if small else ""
    hidden = f", {count_text(cycles.hidden)} of them hidden under others" if cycles.hidden else ""
    busy = cycles.total + cycles.hidden
    titled(axes, "cycles of a run", f"{count_text(busy)} cycles of work{hidden}{also}")
    return None


def draw_cycles(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Draw the work of the tiles over time, each sync group weighted by its tiles."""
    edges = _window(report, options)
    groups = np.flatnonzero(report.groups["program"] == options.program)
    if edges is None or not len(groups):
        return without(axes, f"the report holds no timeline of program {options.program}")
    weight = report.groups["tiles"][groups].astype(float)
    weight = weight / weight.sum() if weight.sum() else np.full(len(groups), 1 / len(groups))
    whole: dict[str, Float64] = {}
    for group, part in zip(groups.tolist(), weight.tolist(), strict=True):
        for letter, cycles in lane_cycles(report, group, edges).items():
            whole[letter] = whole.get(letter, np.zeros(_COLUMNS)) + part * np.clip(cycles, 0, None)
    few = max(1, _COLUMNS // 150)
    coarse = edges[::few]
    base = np.zeros(len(coarse) - 1)
    for letter in (each for each in _ORDER if each in whole):
        share = whole[letter].reshape(-1, few).sum(axis=1) / np.diff(coarse)
        if share.max() < 1e-6:
            continue
        top = base + share
        look: dict[str, Any] = {"facecolor": LANE_COLOURS[letter], "hatch": "////" if letter == "~" else None, "lw": 0}
        axes.stairs(100 * top, coarse, baseline=100 * base, fill=True, label=LETTERS[letter], **look)
        base = top
    axes.set_ylim(0, 100)
    axes.set_ylabel("% of tile cycles")
    _axis(axes, report, coarse)
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0)
    titled(axes, "what the tiles do")
    return None


def draw_runs(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Time that each run took on the host."""
    mine = report.runs.where("program", options.program)
    if not len(mine):
        return without(axes, f"no run of program {options.program} is recorded")
    seconds = mine["wall_seconds"]
    unit, scale = next(
        ((u, k) for u, k in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)) if seconds.max() * k >= 1), ("µs", 1e6)
    )
    axes.bar(np.arange(1, len(seconds) + 1), seconds * scale, color="#3566a8", width=0.8 if len(seconds) < 200 else 1.0)
    median = float(np.median(seconds))
    axes.axhline(median * scale, color=FAINT, lw=1, ls=(0, (4, 3)))
    axes.set_xlabel("run")
    axes.set_ylabel(f"{unit} on the host")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    how = f"{'/'.join(sorted(set(mine['mode'].tolist())))}, {counted(int(mine['threads'].max()), 'thread')}"
    titled(axes, "runs", f"median {seconds_text(median)}; {how}")
    return None
