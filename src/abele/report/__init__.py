"""Reports as data: columns, memory by tile, text, JSON and file."""

from abele.report.call_times import CallTimes, take_waited, waiting_for_data
from abele.report.column_spec import Schema
from abele.report.cycles import Cycles, sum_by_op
from abele.report.host_profile import HostProfile
from abele.report.limits import LIMITS, RateLimits
from abele.report.loading import Epoch, Loading, epoch
from abele.report.memory import CATEGORIES, Memory
from abele.report.rearrangements import Rearrangement, Rearrangements
from abele.report.report import Report
from abele.report.schema import (
    BASES,
    BUFFER_TILES,
    CRITICAL,
    EXCHANGE_BLOCKS,
    EXPONENT_COUNTS,
    EXPONENT_RECORDS,
    GROUPS,
    HOST_FUNCTIONS,
    HOST_KINDS,
    HOST_LEAVES,
    LIFETIMES,
    LIVENESS,
    OPS,
    PHASE_IPUS,
    PHASE_LINKS,
    PHASE_TILES,
    PROGRAM_TILES,
    RUN_LOOPS,
    RUN_SPANS,
    RUNS,
    SPANS,
    STEP_GROUPS,
    STEP_KINDS,
    STEPS,
    VARIABLE_TILES,
    VARIABLES,
)
from abele.report.schema_program import (
    CODELETS,
    FUNCTION_CALLS,
    PROGRAM_TREE,
    SUPERSTEP_VARIABLES,
    SUPERSTEPS,
    VERTICES,
)
from abele.report.table import Table
from abele.report.text_column import Text

__all__ = [
    "BASES",
    "BUFFER_TILES",
    "CATEGORIES",
    "CODELETS",
    "CRITICAL",
    "EXCHANGE_BLOCKS",
    "EXPONENT_COUNTS",
    "EXPONENT_RECORDS",
    "FUNCTION_CALLS",
    "GROUPS",
    "HOST_FUNCTIONS",
    "HOST_KINDS",
    "HOST_LEAVES",
    "LIFETIMES",
    "LIMITS",
    "LIVENESS",
    "OPS",
    "PHASE_IPUS",
    "PHASE_LINKS",
    "PHASE_TILES",
    "PROGRAM_TILES",
    "PROGRAM_TREE",
    "RUNS",
    "RUN_LOOPS",
    "RUN_SPANS",
    "SPANS",
    "STEPS",
    "STEP_GROUPS",
    "STEP_KINDS",
    "SUPERSTEPS",
    "SUPERSTEP_VARIABLES",
    "VARIABLES",
    "VARIABLE_TILES",
    "VERTICES",
    "CallTimes",
    "Cycles",
    "Epoch",
    "HostProfile",
    "Loading",
    "Memory",
    "RateLimits",
    "Rearrangement",
    "Rearrangements",
    "Report",
    "Schema",
    "Table",
    "Text",
    "epoch",
    "sum_by_op",
    "take_waited",
    "waiting_for_data",
]
