"""What the model says of an operator benchmark.

Published memory holds no vertex code and no stacks: Graphcore's cycle model compiles no codelets by default. The
reduction ``bert_reduce_0`` has 87 B a tile beyond its input, ``fc_layer_1_1000_5_half`` 359 B a tile in all, less than
the code of either would take. Ours is compared without these categories, and without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from abele.compiler import Executable, compile_program
from abele.graph import Graph
from abele.machine import System, systems
from abele.validation.parameters import Parameters
from abele.validation.rows import Row
from abele.validation.tools import tool

NOT_PUBLISHED = ("vertex_code", "stacks", "gaps")
"""Categories of memory that published totals do not hold."""


@dataclass(frozen=True)
class Result:
    """Predicted and published figures of one operator on one chip.

    Attributes:
        name: Name of the row.
        tool: Kind of operator.
        chip: Name of the system.
        predicted_cycles: Modelled cycles of all its programs.
        reference_cycles: Published ones.
        predicted_bytes: Modelled bytes over all tiles, without vertex code, stacks and gaps.
        reference_bytes: Published ones.
    """

    name: str
    tool: str
    chip: str
    predicted_cycles: int
    reference_cycles: int
    predicted_bytes: int
    reference_bytes: int

    @property
    def cycles_error(self) -> float:
        """Predicted cycles over published ones, less one."""
        return self.predicted_cycles / self.reference_cycles - 1

    @property
    def bytes_error(self) -> float:
        """Predicted bytes over published ones, less one."""
        return self.predicted_bytes / self.reference_bytes - 1

    def to_json(self) -> dict[str, Any]:
        """The figures by name."""
        return dict(self.__dict__)


def compile_row(kind: str, given: Parameters, system: System) -> Executable:
    """The operator on ``system``, or on as many of its tiles as ``--tiles-per-ipu`` says."""
    tiles = given.integer("tiles-per-ipu", system.ipu.num_tiles)
    graph = Graph(replace(system, ipu=replace(system.ipu, num_tiles=tiles)))
    return compile_program(graph, tool(kind).build(graph, given), allow_out_of_memory=True)


def measure(row: Row, chip: str) -> Result:
    """Predicted beside published figures of ``row`` on ``chip``."""
    report = compile_row(row.tool, row.parameters, systems.get(chip)).report
    memory, reference = report.memory, row.references[chip]
    held = memory.total_bytes - sum(memory.totals()[name] for name in NOT_PUBLISHED)
    cycles = round(report.cycles().total)
    return Result(row.name, row.tool, chip, cycles, reference.cycles, held, reference.total_bytes)
