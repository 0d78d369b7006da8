"""Questions about tiles and sync groups: work in a program or step, contents, and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.report.table import Table
from abele.report.tile_runs import spread

if TYPE_CHECKING:
    from abele.report.report import Report


def rows_of(table: Table, owner: str, number: int) -> slice:
    """The rows of a relation that belong to one owner; relations are sorted by their owner, so few pages are read.

    Args:
        table: A relation such as ``phase_tiles``.
        owner: Its first column.
        number: The owner.
    """
    owners = table[owner]
    number = min(max(number, -1), np.iinfo(owners.dtype).max - 1)  # No owner has a larger one.
    # Of the column's own type: otherwise the whole column is converted for each question.
    return slice(*np.searchsorted(owners, np.array([number, number + 1], dtype=owners.dtype)).tolist())


def by_tile(report: Report, table: Table, rows: slice, column: str) -> Int64:
    """A column of some rows of a relation with tiles, as one number for each tile, int64[tiles]."""
    first, count, values = (table[name][rows] for name in ("first_tile", "num_tiles", column))
    return spread(first, count, values, report.memory.num_tiles)


def program_by_tile(report: Report, column: str, program: int) -> Int64:
    """Cycles or bytes of a run of a program on each tile, int64[tiles]; a column of ``schema.PROGRAM_TILES``."""
    table = report.program_tiles
    return by_tile(report, table, rows_of(table, "program", program), column)


def step_by_tile(report: Report, column: str, step: int) -> Int64:
    """Cycles or bytes of one execution of a step on each tile, int64[tiles]; a column of ``schema.PHASE_TILES``."""
    phase = int(report.steps["phase"][checked_step(report, step)])
    table = report.phase_tiles
    return by_tile(report, table, rows_of(table, "phase", phase) if phase >= 0 else slice(0), column)


def groups_of(report: Report, step: int) -> list[str]:
    """Names of the sync groups that a step keeps busy."""
    table = report.step_groups
    rows = rows_of(table, "step", checked_step(report, step))
    pairs = zip(table["first_group"][rows].tolist(), table["num_groups"][rows].tolist(), strict=True)
    names = report.groups["name"]
    return [str(name) for first, count in pairs for name in names[first : first + count]]


def variable_by_tile(report: Report, variable: int | str) -> Int64:
    """Bytes that each tile holds of a variable, int64[tiles].

    Args:
        report: The report.
        variable: Row in the variables table, or the name of the first of that name.

    Raises:
        InvalidOptionError: There is no such variable.
    """
    row = variable_row(report, variable)
    table = report.variable_tiles
    return by_tile(report, table, rows_of(table, "variable", row), "bytes")


def variable_row(report: Report, variable: int | str) -> int:
    """Row of a variable that is given by its row or its name."""
    if isinstance(variable, str):
        named = np.flatnonzero(report.variables["name"] == variable)
        if not len(named):
            raise InvalidOptionError(f"the report knows no variable {variable!r}")
        return int(named[0])
    if not 0 <= variable < len(report.variables):
        raise InvalidOptionError(
            f"no variable {variable}", remedy=f"the report has rows 0 to {len(report.variables) - 1}"
        )
    return variable


def live_variables(report: Report, step: int) -> Int64:
    """Rows of the variables that are live while a step runs and not always so, int64[n], in order."""
    checked_step(report, step)
    table = report.lifetimes
    now = (table["first_step"] <= step) & (step <= table["last_step"])
    return np.unique(table["variable"][now]).astype(np.int64)


def memory_at(report: Report, step: int) -> Int64:
    """Bytes on each tile while a step runs, int64[tiles]: always-live data, live variables and data in motion."""
    memory, table = report.memory, report.variable_tiles
    live = np.zeros(len(report.variables), dtype=bool)
    live[live_variables(report, step)] = True
    shares = live[table["variable"]]
    first, count, size = (table[name][shares] for name in ("first_tile", "num_tiles", "padded_bytes"))
    held = spread(first, count, size, memory.num_tiles)
    superstep = int(report.steps["superstep"][step])
    moving = rows_of(report.buffer_tiles, "superstep", superstep)
    held += by_tile(report, report.buffer_tiles, moving, "bytes")
    temporaries = memory.categories.index("temporaries")
    at_worst = np.repeat(memory.run_bytes[temporaries], memory.run_tiles)
    total: Int64 = memory.by_tile - at_worst + held
    return total


def checked_step(report: Report, step: int) -> int:
    """A row of the steps table, of which it is known that it is there."""
    if not 0 <= step < len(report.steps):
        raise InvalidOptionError(f"no step {step}", remedy=f"the report has rows 0 to {len(report.steps) - 1}")
    return step
