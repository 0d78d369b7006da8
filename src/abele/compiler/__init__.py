"""The compiler: checks, exchange plan, memory, cycles and timeline of a tile program."""

from abele.compiler.compile import compile_program
from abele.compiler.cycles import ComputeCycles, compute_cycles
from abele.compiler.exchange import ExchangePlan, plan_copy, plan_exchange
from abele.compiler.executable import Executable
from abele.compiler.layout import Layout
from abele.compiler.lower import Lowered, Step, StepBlock, lower
from abele.compiler.memory import MemoryPlan
from abele.compiler.race import collect_writes, find_race
from abele.compiler.run_account import RunAccount
from abele.compiler.superstep import Superstep
from abele.compiler.text import listing_text, mapping_text, memory_text, plan_text, program_text
from abele.compiler.timeline import Part, parts_of
from abele.compiler.uses import FieldUse, field_uses

__all__ = [
    "ComputeCycles",
    "ExchangePlan",
    "Executable",
    "FieldUse",
    "Layout",
    "Lowered",
    "MemoryPlan",
    "Part",
    "RunAccount",
    "Step",
    "StepBlock",
    "Superstep",
    "collect_writes",
    "compile_program",
    "compute_cycles",
    "field_uses",
    "find_race",
    "listing_text",
    "lower",
    "mapping_text",
    "memory_text",
    "parts_of",
    "plan_copy",
    "plan_exchange",
    "plan_text",
    "program_text",
]
