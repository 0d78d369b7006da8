"""The kinds of picture that a report has, and making one."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from abele.errors import InvalidOptionError, MissingPackageError, nearest
from abele.report.plot.options import PlotOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from abele.report.report import Report

KINDS = {
    "overview": "the main figures, the timeline, memory and cycles by tile, and the most expensive operations",
    "memory": "bytes on each tile by category, and what a tile has",
    "cycles": "what the cycles of a run go to, in all and over time",
    "timeline": "what each sync group does when: compute, exchange, sync, host streams, idle",
    "update": "the timeline of a run, how long each sync group waits, and the chain of steps that bounds it",
    "operations": "the operations with most cycles, and what these go to",
    "exchange": "the exchange phases with most cycles, and what they move",
    "liveness": "bytes live at each step, always-live ones below",
    "tiles": "cycles that each tile computes",
    "exponents": "octaves that elements of tensors were in, by tensor and by step",
    "runs": "time that each run took on the host",
}
"""Name of each kind, and its picture."""


def plot_report(report: Report, kind: str, options: PlotOptions) -> Figure:
    """The picture of a report.

    Raises:
        InvalidOptionError: No such kind or program, nothing to show, or a number out of its range.
        MissingPackageError: matplotlib is not installed.
    """
    if kind not in KINDS:
        close = nearest(str(kind), KINDS)
        raise InvalidOptionError(
            f"there is no plot {kind!r} of a report",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(KINDS),
        )
    options.check(report)
    require_matplotlib()
    pictures: Any = import_module("abele.report.plot.pictures")
    figure: Figure = pictures.picture(report, kind, options)
    return figure


def require_matplotlib() -> None:
    """Check that matplotlib can be imported.

    Raises:
        MissingPackageError: It cannot.
    """
    if find_spec("matplotlib") is None:
        raise MissingPackageError("plots need matplotlib, which is not installed", remedy="pip install 'abele[plot]'")
