"""Memory: bytes on each tile by category, beside a tile's memory; bytes live at each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from abele.arrays import Int64
from abele.report.plot.figure import (
    FAINT,
    INK,
    LIMIT,
    MEMORY_COLOURS,
    OTHER_COLOUR,
    RULE,
    label,
    thousands,
    titled,
    without,
)
from abele.report.plot.kinds import PlotOptions
from abele.report.report import Report
from abele.report.text import bytes_text, category_text, percent_text
from abele.words import counted

# Many members drawn in few columns without losing a peak.


def edges_of(count: int, most: int) -> Int64:
    """First members of at most ``most`` buckets of nearly equal size, and one past the last, int64[buckets + 1]."""
    return np.linspace(0, count, min(count, most) + 1).astype(np.int64)


def highest(values: npt.NDArray[Any], most: int) -> tuple[Int64, Int64]:
    """The member of each bucket with the greatest value.

    Args:
        values: Numbers [n].
        most: Buckets at most.

    Returns:
        Members, int64[buckets], and the edges between buckets, int64[buckets + 1].
    """
    edges = edges_of(len(values), most)
    if len(edges) < 2:
        return np.zeros(0, np.int64), np.zeros(1, np.int64)
    if len(edges) == len(values) + 1:
        return np.arange(len(values)), edges
    bucket = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    order = np.lexsort((values, bucket))
    return order[edges[1:] - 1], edges


_COLUMNS = 800
_ROOM = 1.08
_MOST_HEADROOM = 3
"""Most multiples of the fullest tile's bytes up to which the limit is drawn to scale; above, it is only named."""
_MOST_BORDERS = 64
_LEFT = 0.004
"""Part of the width left of the first tile, so that the axis does not hide it."""


def draw_memory(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Bytes on each tile, category upon category; where tiles share a column, those of its fullest."""
    memory = report.memory
    if not memory.bytes.any():
        return without(axes, "no tile holds anything")
    held = memory.by_tile
    tile, limit = memory.fullest_tile, memory.available_bytes
    chosen, edges = highest(held, _COLUMNS)
    order = np.argsort(-memory.bytes.sum(axis=1), kind="stable")
    base = np.zeros(len(chosen))
    for row in order[memory.bytes[order].any(axis=1)].tolist():
        name = memory.categories[row]
        top = base + memory.bytes[row, chosen]
        colour = MEMORY_COLOURS.get(name, OTHER_COLOUR)
        axes.stairs(top, edges, baseline=base, fill=True, color=colour, label=label(category_text(name)), lw=0)
        base = top
    _borders(axes, report)
    highest_byte = max(float(held.max()), 1.0)
    if limit <= _MOST_HEADROOM * highest_byte:
        axes.axhline(limit, color=LIMIT, lw=1.1, label=f"a tile has {bytes_text(limit)}")
        axes.set_ylim(0, _ROOM * max(limit, highest_byte))
    else:
        axes.set_ylim(0, 1.2 * highest_byte)
        words = f"a tile has {bytes_text(limit)}, {limit / highest_byte:.0f} times the fullest"
        axes.text(0.995, 0.97, words, ha="right", va="top", color=LIMIT, fontsize=8, transform=axes.transAxes)
    _mark(axes, tile + 0.5, float(held[tile]))
    axes.set_xlim(-_LEFT * memory.num_tiles, memory.num_tiles)
    thousands(axes.yaxis)
    thousands(axes.xaxis)
    axes.set_ylabel("bytes")
    axes.set_xlabel("tile")
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0)
    titled(axes, "memory by tile", _verdict(report, tile))
    return None


def _mark(axes: Axes, x: float, y: float) -> None:
    """A mark above the highest place, which may be too narrow to be seen."""
    axes.plot(x, y, marker=7, color=INK, ms=5, clip_on=False)


def _verdict(report: Report, tile: int) -> str:
    memory = report.memory
    held, limit = memory.by_tile, memory.available_bytes
    full = int((held > limit).sum())
    words = f"fullest tile {tile:,} holds {bytes_text(int(held[tile]))}, {percent_text(held[tile] / max(limit, 1))}"
    return f"does not fit on {counted(full, 'tile')}; {words}" if full else f"fits; {words}"


def _borders(axes: Axes, report: Report) -> None:
    """Draw faint lines between IPUs, where there are several and there is room."""
    each, count = int(report.target.get("tiles_per_ipu", 0)), report.memory.num_tiles
    if each and 1 < count // each <= _MOST_BORDERS:
        for border in range(each, count, each):
            axes.axvline(border, color=RULE, lw=0.6, zorder=0.5)


def draw_liveness(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Draw bytes live at each step over all tiles, on top of those that always live."""
    table = report.liveness
    if not len(table):
        return without(axes, "the report says nothing of liveness: it holds no steps")
    live = table["live_bytes"]
    always = int(report.memory.bytes.sum() - _category(report, "temporaries"))
    chosen, rows = highest(live, _COLUMNS)
    edges = np.append(table["step"], table["step"][-1] + 1)[rows]
    base = np.full(len(chosen), always)
    colours = MEMORY_COLOURS
    axes.stairs(base, edges, fill=True, color=colours["variables"], label="always live", lw=0)
    axes.stairs(
        base + live[chosen], edges, baseline=base, fill=True, color=colours["temporaries"], label="temporaries", lw=0
    )
    peak = int(np.argmax(live))
    step = int(table["step"][peak])
    name = str(report.steps["name"][step]) if 0 <= step < len(report.steps) else f"step {step}"
    at = int(np.searchsorted(rows, peak, side="right")) - 1
    _mark(axes, float(edges[at] + edges[at + 1]) / 2, always + float(live[peak]))
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 1.12 * max(always + int(live.max()), 1))
    thousands(axes.yaxis)
    thousands(axes.xaxis)
    axes.set_ylabel("bytes, all tiles")
    axes.set_xlabel("step")
    axes.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0)
    titled(axes, "liveness", f"peak {bytes_text(always + int(live[peak]))} at step {step:,}, {label(name, 40)}")
    return None


def _category(report: Report, name: str) -> int:
    return report.memory.totals().get(name, 0)


def draw_tiles(axes: Axes, report: Report, options: PlotOptions) -> None:
    """Cycles that each tile computes in a run of the first program."""
    cycles = report.compute_cycles_by_tile
    if not len(cycles) or not cycles.any():
        return without(axes, "no tile computes anything")
    chosen, edges = highest(cycles, _COLUMNS)
    axes.stairs(cycles[chosen], edges, fill=True, color="#2f9e67", alpha=0.85, lw=0)
    mean = float(cycles.mean())
    axes.axhline(mean, color=FAINT, lw=1, ls=(0, (4, 3)))
    axes.text(0.995, mean, f"mean {mean:,.0f} ", ha="right", va="bottom", color=FAINT, fontsize=8,
              transform=axes.get_yaxis_transform())  # fmt: skip
    _borders(axes, report)
    _mark(axes, int(np.argmax(cycles)) + 0.5, float(cycles.max()))
    axes.set_xlim(-_LEFT * len(cycles), len(cycles))
    axes.set_ylim(0, 1.1 * int(cycles.max()))
    thousands(axes.yaxis)
    thousands(axes.xaxis)
    axes.set_ylabel("cycles")
    axes.set_xlabel("tile")
    slowest = int(np.argmax(cycles))
    titled(axes, "compute by tile", f"slowest tile {slowest:,}; tile balance {percent_text(report.tile_balance)}")
    return None
