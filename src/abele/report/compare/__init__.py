"""Comparisons: two to eight reports beside each other, the first change, and regressions in words."""

from abele.report.compare.compare import MOST, compare
from abele.report.compare.model import (
    STATUSES,
    ComparedColumn,
    ComparedReport,
    ComparedRow,
    ComparedTable,
    CostChange,
    FirstChange,
    HeadlineFigure,
    ReportComparison,
)

__all__ = [
    "MOST",
    "STATUSES",
    "ComparedColumn",
    "ComparedReport",
    "ComparedRow",
    "ComparedTable",
    "CostChange",
    "FirstChange",
    "HeadlineFigure",
    "ReportComparison",
    "compare",
]
