"""Figures of the model for an operator benchmark.

Published memory of most tools holds no code of vertices or of control, and no stacks: Graphcore's cycle model compiles
none of it by default. The reduction ``bert_reduce_0`` has 87 B per tile beyond its input, ``fc_layer_1_1000_5_half``
359 B per tile in all, less than the code of either would take. One 16 x 16 Cholesky takes 17,380 B on 1,216 tiles and
17,456 B on 1,472, two side by side take 34,448 B: 312 B belong to the program itself, which is less than a byte per
tile. Exchange code is there: what a broadcast or a sum in parts takes is left over in the totals of reductions. Ours is
compared without these categories, and without gaps.

Tools that compile are those of convolutions, products and solvers. The product 600 x 64 x 10,000 has 2,435 B per tile
more than its data, records and exchange code on both chips, and 2,436 B with twice the columns; products of layers, by
another tool, have none of that. Of the 54 convolutions whose cycles agree within 3 %, three quarters have 2.9 KB more,
in either half of the rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from abele.compiler import Executable, compile_program
from abele.errors import AbeleError, FileFormatError, InvalidOptionError
from abele.graph import Execute, Graph
from abele.machine import System, systems
from abele.machine.source import Cited, calibrated
from abele.report import Memory
from abele.validation.options import understood
from abele.validation.parameters import Parameters
from abele.validation.tools import tool
from abele.words import counted

# Published operator benchmarks: rows of a CSV file.

CHIPS = {"mk1": "gc2", "mk2": "gc200"}
"""Systems by the prefix of their columns."""
_COLUMNS = "name", "tool", "params"
_FIGURES = "cycles", "total_mem_bytes", "max_tile_mem_bytes"


@dataclass(frozen=True)
class Reference:
    """Published figures of one operator on one chip.

    Attributes:
        cycles: Cycles of all its programs, or None.
        total_bytes: Bytes over all tiles, gaps left out; or None.
        top_bytes: Highest address that the fullest tile takes; or None.
    """

    cycles: int | None
    total_bytes: int | None
    top_bytes: int | None = None


@dataclass(frozen=True)
class BenchmarkRow:
    """One operator benchmark.

    Attributes:
        name: Its name.
        tool: Kind of operator.
        parameters: Parameters of the benchmark.
        references: Published figures by name of the system; a chip without figures is left out.
        unread: Why the parameters could not be read; empty where they could.
    """

    name: str
    tool: str
    parameters: Parameters
    references: dict[str, Reference]
    unread: str = ""


def read_rows(path: str | Path) -> list[BenchmarkRow]:
    """The rows of a CSV file: ``name``, ``tool``, ``params``, and where published cycles and bytes for each chip.

    Raises:
        FileFormatError: There is no such file, a column is missing, or a figure is no number.
    """
    path = Path(path)
    if not path.is_file():
        raise FileFormatError(f"there is no file {path}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        table = csv.DictReader(file, skipinitialspace=True)
        for column in _COLUMNS:
            if column not in (table.fieldnames or ()):
                raise FileFormatError(f"{path.name} has no column {column!r}", at="line 1")
        return [_row(path.name, table.line_num, fields) for fields in table if fields["name"]]


def _row(file: str, line: int, fields: dict[str, str | None]) -> BenchmarkRow:
    name, kind, given = (fields[column] or "" for column in _COLUMNS)
    references = {}
    for chip, system in CHIPS.items():
        try:
            cycles, held, top = (_figure(fields.get(f"{chip}_{what}")) for what in _FIGURES)
        except ValueError as wrong:
            raise FileFormatError(f"{file}: {wrong}", at=f"line {line}") from None
        if cycles is not None or held is not None:
            references[system] = Reference(cycles, held, top)
    # Solvers say the side of the matrix in the row's name alone.
    if kind == "matrix_solver" and name.endswith("_right") and "--left-side" not in given:
        given = f"--left-side false {given}"
    try:
        return BenchmarkRow(name, kind, Parameters.parse(given), references)
    except AbeleError as wrong:
        return BenchmarkRow(name, kind, Parameters({}), references, unread=f"{type(wrong).__name__}: {wrong}")


def _figure(text: str | None) -> int | None:
    """A whole number, or None where nothing stands."""
    return int(float(text)) if text and text.strip() else None


# Published programs that hold compiled code.
#
# The totals of factorisations and solves have some 16 KB on every tile that runs a vertex: 17.4 KB for one 16 x 16
# Cholesky, twice that for two side by side, and 1.05 MB for a solve whose 64 rows are masked where they lie. Whether
# elements have 2 or 4 bytes hardly changes them, and no other kind of operator has such bytes: their tool compiles
# codelets, which the others leave out. So a tile with vertices is counted with what a compiled program takes there;
# code of vertices and of control and stacks are in it.

SOLVERS = frozenset({"cholesky", "matrix_solver"})
"""Kinds of operators whose compiled code is a number of its own, as theirs is compiled C++ for the most part."""
COMPILED = frozenset({"conv", "gemm", "oct_conv"})
"""Kinds of operators whose published totals hold compiled code; ours has it by category."""
TILE_BYTES = 15_964
"""Bytes of a compiled program on each tile that runs vertices. Calibrated on one 16 x 16 Cholesky on GC2: the
totals less the matrix, its factor and the vertex are 15,584 B in f32 and 16,344 B in f16; their mean.
"""


def calibrations() -> Iterator[tuple[str, Cited]]:
    """Calibrated numbers by name."""
    row = "cholesky_batch_1_dim_16_block_16"
    text = "totals less the matrix, its factor and the vertex, 15,584 B in f32 and 16,344 B in f16; their mean"
    on = tuple(
        f"memory: {row}_lower_{lower}_type_{dtype}, {chip}"
        for lower, dtype in (("false", "float"), ("false", "half"), ("true", "half"))
        for chip in ("gc2", "gc200")
    )
    yield "validation.compiled.TILE_BYTES", calibrated(TILE_BYTES, text, on=on)


def compiled_bytes(kind: str, memory: Memory) -> int:
    """Bytes over all tiles of the compiled program of a solver; 0 for other operators."""
    if kind not in SOLVERS:
        return 0
    runs_vertices = memory.run_bytes[memory.categories.index("vertex_code")] > 0
    return TILE_BYTES * int(np.asarray(memory.run_tiles)[runs_vertices].sum())


_CODE = ("vertex_code", "control_code", "stacks")


def published_bytes(kind: str, memory: Memory) -> int:
    """Bytes over all tiles of what the published totals of a kind of operator hold."""
    left_out = ("gaps",) if kind in COMPILED else ("gaps", *_CODE)
    return memory.total_bytes - sum(memory.totals()[name] for name in left_out) + compiled_bytes(kind, memory)


# Partial sums.
#
# Matrix units leave them in interleaved memory, and little else lies there: the published highest address tells how
# large they are, and so which plan was taken. A 384 x 64 x 384 product of 12 groups ends 6,168 B behind the start of
# that memory on a GC2, 4,952 B on a GC200; its largest partial sums take 6,144 and 4,928 B of a tile here.

_BEHIND_PARTIALS = 24
"""Bytes taken behind partial sums. Derived: so many in each of 103 rows whose partial sums agree to the byte."""


def partials_top(executable: Executable) -> int:
    """Bytes from the start of interleaved memory to the end of the largest partial sums; 0 without products."""
    layout, shares, largest = executable.layout, executable.memory.shares, 0
    for step in executable.steps:
        for group in step.node.compute_set.groups if isinstance(step.node, Execute) else ():
            if group.codelet.name.startswith("ConvPartial"):
                written = group.edges["out"].regions
                for variable in np.unique(layout.variables_at(layout.cut(written.begin, written.length).share)):
                    largest = max(largest, int(shares.bytes[shares.of_variable(int(variable))].max()))
    return largest + _BEHIND_PARTIALS if largest else 0


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
        predicted_partials: Modelled bytes to the end of the largest partial sums, 0 where there are none.
        reference_partials: Published ones, or None where nothing lies in interleaved memory.
        left_out: Names of parameters that the kind of operator does not know, so that they change nothing.
    """

    name: str
    tool: str
    chip: str
    predicted_cycles: int
    reference_cycles: int | None
    predicted_bytes: int
    reference_bytes: int | None
    predicted_partials: int = 0
    reference_partials: int | None = None
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
    system = systems.get(chip)
    executable = compile_row(row.tool, row.parameters, system)
    report, reference = executable.report, row.references.get(chip, Reference(None, None))
    above = (reference.top_bytes or 0) - system.ipu.tile.plain_bytes
    _, left_out = understood(row.tool, row.parameters)
    cycles = round(report.cycles().total)
    return RowResult(
        name=row.name,
        tool=row.tool,
        chip=chip,
        predicted_cycles=cycles,
        reference_cycles=reference.cycles,
        predicted_bytes=published_bytes(row.tool, report.memory),
        reference_bytes=reference.total_bytes,
        predicted_partials=partials_top(executable),
        reference_partials=above if above > 0 else None,
        left_out=left_out,
    )
