"""Reports as data: columns, memory by tile, text, JSON and file."""

from abele.report.cycles import Cycles, sum_by_op
from abele.report.memory import CATEGORIES, Memory
from abele.report.report import Report
from abele.report.schema import BASES, GROUPS, LIVENESS, OPS, RUNS, SPANS, STEP_KINDS, STEPS, VARIABLES, Schema
from abele.report.table import Table, Text

__all__ = [
    "BASES",
    "CATEGORIES",
    "GROUPS",
    "LIVENESS",
    "OPS",
    "RUNS",
    "SPANS",
    "STEPS",
    "STEP_KINDS",
    "VARIABLES",
    "Cycles",
    "Memory",
    "Report",
    "Schema",
    "Table",
    "Text",
    "sum_by_op",
]
