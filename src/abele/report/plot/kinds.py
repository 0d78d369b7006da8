"""The kinds of picture that a report has, and making one."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from abele.errors import InvalidOptionError, MissingPackageError, nearest
from abele.report.programs import num_programs
from abele.words import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from abele.report.report import Report


# Options of a picture of a report.


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """Choices of a picture.

    Attributes:
        program: Index of the program whose cycles are shown.
        top: Operations or exchange phases that are listed.
        first: First cycle of the time axis.
        cycles: Cycles of the time axis; None for as many as the report holds.
    """

    program: int = 0
    top: int = 12
    first: int = 0
    cycles: int | None = None

    def check(self, report: Report) -> None:
        """Check the choices against a report.

        Raises:
            InvalidOptionError: One is out of its range.
        """
        known = num_programs(report)
        if not 0 <= self.program < known:
            raise InvalidOptionError(f"there is no program {self.program}: the report has {counted(known, 'program')}")
        if self.top < 1:
            raise InvalidOptionError(f"top = {self.top}: must be at least 1")
        if self.first < 0 or (self.cycles is not None and self.cycles < 1):
            raise InvalidOptionError(f"no cycles from {self.first:,} to {self.first + (self.cycles or 0):,} to show")


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
