"""Figures of the model for an operator benchmark.

Published memory holds no code of vertices or of control, and no stacks: Graphcore's cycle model compiles none of it by
default. The reduction ``bert_reduce_0`` has 87 B per tile beyond its input, ``fc_layer_1_1000_5_half`` 359 B per tile
in all, less than the code of either would take. One 16 x 16 Cholesky takes 17,380 B on 1,216 tiles and 17,456 B on
1,472, two side by side take 34,448 B: 312 B belong to the program itself, which is less than a byte per tile. Exchange
code is there: what a broadcast or a sum in parts takes is left over in the totals of reductions. Ours is compared
without these categories, and without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from abele.compiler import Executable, compile_program
from abele.errors import InvalidOptionError
from abele.graph import Graph
from abele.machine import System, systems
from abele.validation.compiled import compiled_bytes
from abele.validation.options import understood
from abele.validation.parameters import Parameters
from abele.validation.rows import BenchmarkRow, Reference
from abele.validation.tools import tool
from abele.words import counted

NOT_PUBLISHED = ("vertex_code", "control_code", "stacks", "gaps")
"""Categories of memory that published totals do not hold."""


@dataclass(frozen=True)
class RowResult:
    """Predicted and published figures of one operator on one chip.

    Attributes:
        name: Name of the row.
        tool: Kind of operator.
        chip: Name of the system.
        predicted_cycles: Modelled cycles of all its programs.
        reference_cycles: Published ones, or None.
        predicted_bytes: Modelled bytes over all tiles, without what the published totals lack.
        reference_bytes: Published ones, or None.
        left_out: Names of parameters that the kind of operator does not know, so that they change nothing.
    """

    name: str
    tool: str
    chip: str
    predicted_cycles: int
    reference_cycles: int | None
    predicted_bytes: int
    reference_bytes: int | None
    left_out: tuple[str, ...] = ()

    @property
    def cycles_error(self) -> float | None:
        """Predicted cycles over published ones, less one; None where there are none."""
        return self.predicted_cycles / self.reference_cycles - 1 if self.reference_cycles else None

    @property
    def bytes_error(self) -> float | None:
        """Predicted bytes over published ones, less one; None where there are none."""
        return self.predicted_bytes / self.reference_bytes - 1 if self.reference_bytes else None

    def to_json(self) -> dict[str, Any]:
        """The figures by name, and the parameters that were left out."""
        return {**self.__dict__, "left_out": list(self.left_out)}


def compile_row(kind: str, given: Parameters, system: System) -> Executable:
    """The operator on ``system``, or on as many of its tiles as ``--tiles-per-ipu`` says.

    Raises:
        InvalidOptionError: A parameter whose value its operator does not take, or more tiles than there are.
        UnsupportedOpError: There is no such kind of operator.
    """
    given, _ = understood(kind, given)
    tiles = given.integer("tiles-per-ipu", system.ipu.num_tiles)
    if not 1 <= tiles <= system.ipu.num_tiles:
        raise InvalidOptionError(
            f"--tiles-per-ipu is {tiles}",
            because=f"an IPU of {system.name} has {counted(system.ipu.num_tiles, 'tile')}",
        )
    graph = Graph(replace(system, ipu=replace(system.ipu, num_tiles=tiles)))
    return compile_program(graph, tool(kind).build(graph, given), allow_out_of_memory=True)


def measure(row: BenchmarkRow, chip: str) -> RowResult:
    """Predicted beside published figures of ``row`` on ``chip``.

    Raises:
        AbeleError: The operator cannot be built as its parameters say.
    """
    report = compile_row(row.tool, row.parameters, systems.get(chip)).report
    memory, reference = report.memory, row.references.get(chip, Reference(None, None))
    _, left_out = understood(row.tool, row.parameters)
    held = memory.total_bytes - sum(memory.totals()[name] for name in NOT_PUBLISHED)
    held += compiled_bytes(row.tool, memory)
    cycles = round(report.cycles().total)
    return RowResult(
        name=row.name,
        tool=row.tool,
        chip=chip,
        predicted_cycles=cycles,
        reference_cycles=reference.cycles,
        predicted_bytes=held,
        reference_bytes=reference.total_bytes,
        left_out=left_out,
    )
