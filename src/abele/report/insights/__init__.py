"""Insights: limits of a program, its costs with reasons, and levers.

Computed from a report's columns alone, whoever made the report and wherever it comes from.
"""

from abele.report.insights.find import insights
from abele.report.insights.model import KINDS, VIEWS, Cost, FullestTile, Insights, Lever, Roof, Roofline, SourceLine

__all__ = ["KINDS", "VIEWS", "Cost", "FullestTile", "Insights", "Lever", "Roof", "Roofline", "SourceLine", "insights"]
