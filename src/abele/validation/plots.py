"""Pictures of comparisons: predicted against reference, both axes logarithmic. Needs the ``plot`` extra."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from abele.errors import MissingPackageError
from abele.validation.figures import Comparison, Figure

_LINES = ((0.1, "#888888", "±10 %"), (0.3, "#cccccc", "±30 %"))


def can_plot() -> bool:
    """True if matplotlib is installed."""
    return find_spec("matplotlib") is not None


def plot(comparison: Comparison, path: str | Path) -> Path:
    """Write a PNG picture: one colour a kind, the diagonal, and lines at ±10 % and ±30 %.

    Figures without a reference, or of zero, are left out.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    if not can_plot():
        raise MissingPackageError("plots need matplotlib, which is not installed", remedy="pip install 'abele[plot]'")
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    shown = [f for f in comparison.figures if f.reference > 0 and f.predicted > 0]
    kinds: dict[str, list[Figure]] = {}
    for figure in shown:
        kinds.setdefault(figure.kind, []).append(figure)
    picture = Picture(figsize=(8, 5.5), dpi=110, layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    axes.set(xscale="log", yscale="log")
    values = [n for f in shown for n in (f.reference, f.predicted)] or [1.0]
    ends = [min(values) * 0.7, max(values) * 1.4]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for share, colour, label in _LINES:
        for i, factor in enumerate((1 + share, 1 - share)):
            scaled = [n * factor for n in ends]
            axes.plot(ends, scaled, color=colour, linewidth=0.8, linestyle="--", label=label if i == 0 else None)
    palette = colormaps["tab20" if len(kinds) > 10 else "tab10"]
    for i, (kind, figures) in enumerate(kinds.items()):
        at = [f.reference for f in figures], [f.predicted for f in figures]
        axes.scatter(*at, s=14, color=[palette(i % palette.N)], label=kind.replace("_", " "), zorder=3)
    unit = shown[0].unit if shown else ""
    axes.set(xlim=ends, ylim=ends, title=comparison.title, xlabel=f"reference, {unit}", ylabel=f"predicted, {unit}")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.grid(visible=True, which="major", linewidth=0.3)
    picture.savefig(path, metadata={"Software": None})
    return Path(path)
