"""Pictures: which panels each kind has, and how they are set out."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from abele.report.plot.exponents import draw_steps, draw_tensors
from abele.report.plot.figure import FAINT, INK, STYLE, ReportFigure, label
from abele.report.plot.kinds import PlotOptions
from abele.report.plot.memory import draw_liveness, draw_memory, draw_tiles
from abele.report.plot.ranking import draw_exchange, draw_operations
from abele.report.plot.time import draw_cycles, draw_runs, draw_shares, draw_timeline
from abele.report.plot.update import draw_lanes, draw_path
from abele.report.report import Report
from abele.report.summary import facts

_WITH_NAMES = (draw_operations, draw_exchange, draw_lanes, draw_path, draw_tensors)
"""Panels with long names beside them."""
Draw = Callable[[Axes, Report, PlotOptions], None]

_WIDTH = 10.5
_LANES_PER_INCH = 3.2
_HEAD = 0.62
_ABOVE = 0.36
"""Inches above a panel, for its title."""
_HEADLINES = ("target", "throughput", "memory", "ran here")


def _lanes(report: Report, options: PlotOptions) -> float:
    lanes = min(24, max(1, int((report.groups["program"] == options.program).sum())))
    return max(1.5, lanes / _LANES_PER_INCH)


def _rows(report: Report, options: PlotOptions) -> float:
    return max(1.2, 0.27 * min(options.top, len(report.ops)))


def _tensor_rows(report: Report, options: PlotOptions) -> float:
    return max(1.2, 0.2 * min(options.top, len(report.exponents.tensors)))


def _below(draw: Draw) -> float:
    """Inches below a panel, for its axis."""
    if draw is draw_shares:
        return 0.12
    return 0.42 if draw in (draw_operations, draw_exchange, draw_lanes, draw_path) else 0.62


def _panels(report: Report, kind: str, options: PlotOptions) -> list[tuple[Draw, float]]:
    """Panels from top to bottom, with their heights in inches."""
    shares, timeline = (draw_shares, 0.42), (draw_timeline, _lanes(report, options))
    known: dict[str, list[tuple[Draw, float]]] = {
        "overview": [
            shares,
            timeline,
            (draw_memory, 2.0),
            (draw_tiles, 1.5),
            (draw_operations, _rows(report, options)),
        ],
        "memory": [(draw_memory, 3.6)],
        "cycles": [shares, (draw_cycles, 3.0)],
        "timeline": [(draw_timeline, max(2.0, 1.4 * _lanes(report, options)))],
        "operations": [(draw_operations, max(2.0, _rows(report, options)))],
        "exchange": [(draw_exchange, max(2.0, 0.27 * options.top))],
        "liveness": [(draw_liveness, 3.2)],
        "tiles": [(draw_tiles, 3.2)],
        "exponents": [(draw_tensors, _tensor_rows(report, options)), (draw_steps, 2.6)],
        "runs": [(draw_runs, 3.0)],
    }
    return _update_panels(report, options) if kind == "update" else known[kind]


def _has_timeline(report: Report, options: PlotOptions) -> bool:
    return bool((report.groups["program"] == options.program).any())


def _update_panels(report: Report, options: PlotOptions) -> list[tuple[Draw, float]]:
    """Those of the timeline of a run, which a report may not hold."""
    if not _has_timeline(report, options):
        return [(draw_timeline, 1.6)]  # It says why there is nothing to see.
    found = report.timeline(options.program)
    return [
        (draw_timeline, max(1.6, 1.4 * _lanes(report, options))),
        (draw_lanes, max(1.2, 0.3 * len(found.lanes))),
        (draw_path, max(1.2, 0.27 * min(options.top, len(found.critical_path)))),
    ]


def picture(report: Report, kind: str, options: PlotOptions) -> Figure:
    """The picture of a kind that there is."""
    panels = _panels(report, kind, options)
    head = _HEAD + (0.2 * len(_headlines(report)) if kind == "overview" else 0.0)
    whole = head + sum(_ABOVE + height + _below(draw) for draw, height in panels)
    with rc_context(STYLE):
        figure = ReportFigure(figsize=(_WIDTH, whole))
        FigureCanvasAgg(figure)
        _write_head(figure, report, kind, whole)
        top = whole - head
        for draw, height in panels:
            top -= _ABOVE
            narrow = draw in _WITH_NAMES
            width = 0.56 if draw is draw_tensors else 0.67
            place = (0.30 if narrow else 0.085, (top - height) / whole, width if narrow else 0.735, height / whole)
            draw(figure.add_axes(place), report, options)
            top -= height + _below(draw)
    return figure


def _headlines(report: Report) -> list[tuple[str, str]]:
    return [(name, text) for name, text in facts(report) if name in _HEADLINES or name.startswith("one ")]


def _write_head(figure: Figure, report: Report, kind: str, whole: float) -> None:
    name = str(report.meta.get("name", "report"))
    figure.text(0.02, 1 - 0.22 / whole, label(name, 90), fontsize=13, fontweight="bold", va="top", color=INK)
    where = f"{report.target['name']} ({report.target['title']})"
    figure.text(0.98, 1 - 0.24 / whole, label(where, 90), fontsize=9, va="top", ha="right", color=FAINT)
    if kind == "overview":
        for row, (title, text) in enumerate(_headlines(report)):
            y = 1 - (0.58 + 0.2 * row) / whole
            figure.text(0.02, y, label(title), fontsize=8.5, va="top", color=FAINT)
            figure.text(0.15, y, label(text, 150), fontsize=8.5, va="top", color=INK)
