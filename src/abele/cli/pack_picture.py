"""Picture of ``abele pack``: lengths of the sequences, and the waste at each depth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from abele.errors import MissingPackageError
from abele.packing import PackingPlan
from abele.words import counted
from abele.writing import writing

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, PercentFormatter

    from abele.report.plot.figure import FAINT, INK, STYLE
except ImportError:
    raise MissingPackageError(
        "a picture needs matplotlib, which is not installed", remedy="pip install 'abele[plot]'"
    ) from None

_REAL, _PADDING, _LOST = "#3566a8", "#c9ccd1", "#c8352b"
_MOST_BARS = 128


def draw(plan: PackingPlan, by_depth: Sequence[tuple[str, PackingPlan]], path: Path) -> None:
    """Draw a plan and the same items at other depths.

    Args:
        plan: The plan.
        by_depth: Depths in words, with the plan at each.
        path: The PNG to write.

    Raises:
        FileFormatError: The file cannot be written.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(10.5, 3.8))
        FigureCanvasAgg(figure)
        lengths, waste = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_lengths(lengths, plan)
        _draw_waste(waste, by_depth)
        figure.suptitle(
            f"{counted(plan.num_items, 'sequence')} in {counted(plan.num_packs, 'pack')} of {plan.capacity[0]:,} tokens"
            f" ({plan.method})",
            x=0.01,
            ha="left",
            fontsize=10.5,
            color=INK,
        )
        figure.tight_layout()
        with writing(path):
            figure.savefig(path, format="png")


def _draw_lengths(axes: Axes, plan: PackingPlan) -> None:
    """Sequences by length, in bars of equal width, with the share of tokens that lie below."""
    capacity, lengths, counts = plan.capacity[0], plan.histogram.lengths, plan.histogram.counts
    width = -(-capacity // _MOST_BARS)
    bars = np.bincount((lengths - 1) // width, weights=counts, minlength=-(-capacity // width))
    left = np.arange(len(bars)) * width
    axes.bar(left + 1, bars, width=width, align="edge", color=_REAL, linewidth=0)
    axes.set_xlim(0, capacity + width)
    axes.set_xlabel("length in tokens" + (f", {width} to a bar" if width > 1 else ""))
    axes.set_ylabel("sequences")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    shares = axes.twinx()
    tokens = np.cumsum(counts * lengths) / plan.histogram.totals[0]
    shares.plot(lengths, tokens, color=_LOST, linewidth=1.2)
    shares.set_ylim(0, 1.02)
    shares.yaxis.set_major_formatter(PercentFormatter(1.0))
    shares.set_ylabel("share of all tokens up to a length", color=_LOST)
    axes.set_title("lengths", loc="left", fontsize=9, color=FAINT)


def _draw_waste(axes: Axes, by_depth: Sequence[tuple[str, PackingPlan]]) -> None:
    """Draw tokens and padding at each depth limit."""
    names = [name for name, _ in by_depth]
    real = np.array([plan.efficiency for _, plan in by_depth])
    rows = np.arange(len(names))[::-1]
    axes.barh(rows, real, color=_REAL, height=0.7, label="tokens")
    axes.barh(rows, 1 - real, left=real, color=_PADDING, height=0.7, label="padding")
    for row, share, (_, plan) in zip(rows, real, by_depth, strict=True):
        axes.text(0.015, row, f"{share:.2%}, {plan.factor:.3f} per pack", color="white", va="center", fontsize=8)
    axes.set_yticks(rows, names)
    axes.set_ylabel("most sequences in a pack")
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_title("what packs hold", loc="left", fontsize=9, color=FAINT)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
