"""Common look of all pictures, and the figure that a notebook shows."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FuncFormatter

from abele.report.text import CYCLE_COLOURS
from abele.words import shortened, visible

INK = "#26282c"
FAINT = "#6d7178"
RULE = "#d5d7db"
LIMIT = "#c8352b"

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.usetex": False,
    "text.color": INK,
    "figure.facecolor": "white",
    "figure.dpi": 110,
    "savefig.dpi": 150,
    "axes.facecolor": "white",
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "hatch.linewidth": 0.5,
    "hatch.color": RULE,
}
"""Settings under which pictures are made, whatever the user's own."""

LANE_COLOURS = {
    "C": CYCLE_COLOURS["compute"],
    "A": "#a3d6b9",
    "X": CYCLE_COLOURS["exchange"],
    "S": CYCLE_COLOURS["sync"],
    "H": CYCLE_COLOURS["host"],
    "D": "#b9a06a",
    ".": "#eceef1",
    "~": "#c3c7cd",
}
"""Colour of each letter of ``abele.report.timeline.LETTERS``."""

MEMORY_COLOURS = {
    "variables": "#3566a8",
    "temporaries": "#7fb2e5",
    "vertex_state": "#8e6bbf",
    "vertex_code": "#e08a1e",
    "control_code": "#f3c57a",
    "exchange_code": "#b5651d",
    "stacks": "#2f9e67",
    "stream_buffers": "#9ad0b0",
    "gaps": "#c9ccd1",
}
"""Colour of each category of memory."""
OTHER_COLOUR = "#777b82"


class ReportFigure(Figure):
    """Figure without a window, which a notebook shows as it is."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


@lru_cache(maxsize=1)
def _font() -> Any:
    return get_font(findfont(FontProperties(family="DejaVu Sans")))


def label(text: str, most: int = 52) -> str:
    """A name as matplotlib draws it letter by letter: no formulas, no control characters, no missing glyphs."""
    plain = visible(shortened(text, most))
    drawn = "".join(c if _font().get_char_index(ord(c)) else "\N{WHITE SQUARE}" for c in plain)
    return drawn.replace("$", r"\$")


def titled(axes: Axes, title: str, note: str = "") -> None:
    """Write a title over the left end, and a note after it."""
    axes.set_title(label(title, 120), loc="left", fontsize=10, fontweight="bold", pad=9, color=INK)
    if note:
        axes.set_title(label(note, 120), loc="right", fontsize=8.5, pad=9, color=FAINT)


def without(axes: Axes, text: str) -> None:
    """Say in a panel why there is nothing to see."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, label(text, 200), ha="center", va="center", color=FAINT, transform=axes.transAxes)


def thousands(axis: Any) -> None:
    """Write the numbers of an axis with separators, large ones with k, M or G."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: scaled(value)))


def scaled(value: float) -> str:
    """A number of few characters: ``950``, ``12k``, ``3.5M``."""
    for letter, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.4g}{letter}"
    return f"{value:.4g}"
