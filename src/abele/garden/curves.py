"""Curves of losses as text, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from abele.arrays import Float64
from abele.errors import MissingPackageError
from abele.writing import writing

MARKS = "o+x*"
"""Letters of the curves in text; where curves meet, the last one is seen."""


def text_plot(curves: Mapping[str, Float64], steps: Float64, *, width: int = 64, height: int = 14) -> str:
    """Curves over the same steps, drawn with characters, and what each stands for.

    Args:
        curves: Values by name, as many as there are steps; NaN where there is none.
        steps: Numbers of the steps, rising.
        width: Columns.
        height: Rows.
    """
    finite = np.concatenate([values[np.isfinite(values)] for values in curves.values()])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    spread = high - low or 1.0
    grid = np.full((height, width), " ")
    columns = np.linspace(0, len(steps) - 1, width).round().astype(int)
    for mark, values in zip(MARKS, curves.values(), strict=False):
        seen = values[columns]
        rows = np.round((high - seen) / spread * (height - 1))
        drawn = np.isfinite(rows)
        grid[rows[drawn].astype(int), np.arange(width)[drawn]] = mark
    lines = ["".join(row) for row in grid]
    labels = [f"{high:7.3f} " if k == 0 else f"{low:7.3f} " if k == height - 1 else " " * 8 for k in range(height)]
    plot = [f"{label}|{line}".rstrip() for label, line in zip(labels, lines, strict=True)]
    axis = f"{'':8}+{'-' * width}"
    ends = f"{'':9}{int(steps[0])}{int(steps[-1]):>{width - len(str(int(steps[0])))}}  step"
    key = f"{'':9}" + "   ".join(f"{mark} {name}" for mark, name in zip(MARKS, curves, strict=False))
    return "\n".join([*plot, axis, ends, key])


def picture(panels: Mapping[str, tuple[Float64, Mapping[str, Float64]]], path: Path) -> None:
    """Write curves beside each other, one panel for each model.

    Args:
        panels: Steps and curves by title.
        path: Of a picture, ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        MissingPackageError: There is no matplotlib.
        FileFormatError: The place cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("a picture of curves needs matplotlib", remedy="pip install matplotlib") from error
    figure = Figure(figsize=(5.2 * len(panels), 3.6), layout="constrained")
    for axes, (title, (steps, curves)) in zip(
        np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True
    ):
        for (name, values), style in zip(curves.items(), ("-", "--", "-.", ":"), strict=False):
            axes.plot(steps, values, style, label=name, linewidth=1.6)
        axes.set(title=title, xlabel="step", ylabel="loss, nats for each character")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    with writing(path):
        figure.savefig(path, dpi=150)
