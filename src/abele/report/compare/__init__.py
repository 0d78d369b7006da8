"""Comparisons: two to eight reports beside each other, what changed first, and regressions in words."""

from abele.report.compare.compare import MOST, compare
from abele.report.compare.model import (
    STATUSES,
    Change,
    ComparedColumn,
    ComparedReport,
    ComparedRow,
    ComparedTable,
    Comparison,
    Figure,
    FirstChange,
)

__all__ = [
    "MOST",
    "STATUSES",
    "Change",
    "ComparedColumn",
    "ComparedReport",
    "ComparedRow",
    "ComparedTable",
    "Comparison",
    "Figure",
    "FirstChange",
    "compare",
]
