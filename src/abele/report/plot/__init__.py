"""Pictures of a report, made with matplotlib where it is installed."""

from __future__ import annotations

from abele.report.plot.kinds import KINDS, plot_report

__all__ = ["KINDS", "plot_report"]
