"""Questions about tiles and sync groups: work in a program or step, contents, and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.report.relations import rows_of
from abele.report.table import Table

if TYPE_CHECKING:
    from abele.report.report import Report


# Runs of tiles: numbers per tile, stored once for equal neighbours.
#
# Most steps touch few tiles, and those that touch all do the same on long stretches of them. A run ``(first tile,
# number of tiles, values)`` says so in one row, so that a relation between steps and tiles grows with what differs and
# not with the machine: five tiles of a Pod take five rows at most, and a program that does the same on 94,208 tiles
# takes one.

Runs = tuple[Int64, Int64, dict[str, Int64]]
"""First tile and number of tiles of each run, and the values of its tiles by name, int64[runs] each."""


def runs_of(tiles: npt.NDArray[np.integer[Any]], **values: npt.NDArray[np.integer[Any]]) -> Runs:
    """Runs of neighbouring tiles with equal values; tiles whose values are all zero are left out.

    Args:
        tiles: Tiles, each once and in order, integer[n].
        values: Values of each of them, integer[n] by name.
    """
    tile = np.asarray(tiles)
    columns = {name: np.asarray(each, dtype=np.int64) for name, each in values.items()}
    return joined(tile, np.ones(len(tile), dtype=np.int64), **columns)


def dense_runs(**values: npt.NDArray[np.integer[Any]]) -> Runs:
    """Runs of arrays that have an entry for each tile, integer[tiles] by name."""
    return runs_of(np.arange(max(len(each) for each in values.values())), **values)


def spread(first: npt.ArrayLike, count: npt.ArrayLike, values: npt.ArrayLike, num_tiles: int) -> Int64:
    """Values of runs as one for each tile, int64[num_tiles]; runs on the same tile add up.

    Args:
        first: First tile of each run, integer[runs].
        count: Tiles of each, integer[runs].
        values: Value of each of these tiles, int64[runs].
        num_tiles: Tiles in all.
    """
    begin = np.asarray(first, dtype=np.int64)
    steps = np.zeros(num_tiles + 1, dtype=np.int64)
    amount = np.asarray(values, dtype=np.int64)
    # Add where a run begins, subtract behind its end: the running sum is what lies on each tile.
    np.add.at(steps, begin, amount)
    np.subtract.at(steps, begin + np.asarray(count, dtype=np.int64), amount)
    return np.cumsum(steps[:-1])


def summed(first: npt.ArrayLike, count: npt.ArrayLike, **values: npt.ArrayLike) -> Runs:
    """Runs that may lie on the same tiles, added up where they do: disjoint runs in order of their tiles.

    Works on the places where a run begins or ends, of which there are two for each, so that the cost does not depend on
    how many tiles a run spans.

    Args:
        first: First tile of each run, integer[runs].
        count: Tiles of each, integer[runs].
        values: Values of each of these tiles, int64[runs] by name.
    """
    begin, length = np.asarray(first, dtype=np.int64), np.asarray(count, dtype=np.int64)
    # The same, over places where something changes instead of over tiles.
    edges, place = np.unique(np.concatenate([begin, begin + length]), return_inverse=True)
    columns: dict[str, Int64] = {}
    for name, each in values.items():
        change = np.zeros(len(edges), dtype=np.int64)
        amount = np.asarray(each, dtype=np.int64)
        np.add.at(change, place[: len(begin)], amount)
        np.subtract.at(change, place[len(begin) :], amount)
        columns[name] = np.cumsum(change)[:-1]
    lengths = np.diff(edges)
    return joined(edges[:-1], lengths, **columns)


def joined(first: npt.NDArray[Any], count: npt.NDArray[Any], **values: Int64) -> Runs:
    """Disjoint runs in order of their tiles, without those that hold zeros, neighbours with equal values as one."""
    some = np.zeros(len(first), dtype=bool)
    for column in values.values():
        some |= column != 0
    begin, length = first[some], count[some]
    columns = {name: column[some] for name, column in values.items()}
    starts = np.ones(len(begin), dtype=bool)
    if len(begin):
        # A run ends at a gap, or where any of the values changes.
        starts[1:] = begin[1:] != begin[:-1] + length[:-1]
        for column in columns.values():
            starts[1:] |= np.diff(column) != 0
    at = np.flatnonzero(starts)
    total = np.add.reduceat(length, at) if len(at) else length
    return begin[at].astype(np.int64), total.astype(np.int64), {name: column[at] for name, column in columns.items()}


def by_tile(report: Report, table: Table, rows: slice | Int64, column: str) -> Int64:
    """A column of some rows of a relation with tiles, as one number for each tile, int64[tiles]."""
    first, count, values = (table[name][rows] for name in ("first_tile", "num_tiles", column))
    return spread(first, count, values, report.memory.num_tiles)


def program_by_tile(report: Report, column: str, program: int = 0) -> Int64:
    """Cycles or bytes of one run of a program on each tile, int64[tiles].

    Args:
        report: The report.
        column: ``compute_cycles``, ``sent_bytes`` or ``received_bytes``.
        program: Index of the program.
    """
    table = report.program_tiles
    return by_tile(report, table, rows_of(table, "program", program), column)


def step_by_tile(report: Report, column: str, step: int) -> Int64:
    """Cycles or bytes of one execution of a step on each tile, int64[tiles].

    Args:
        report: The report.
        column: ``compute_cycles``, ``sent_bytes`` or ``received_bytes``.
        step: Row in the steps table.

    Raises:
        InvalidOptionError: There is no such step or column.
    """
    phase = int(report.steps["phase"][checked_step(report, step)])
    table = report.phase_tiles
    return by_tile(report, table, rows_of(table, "phase", phase), column)


def groups_of(report: Report, step: int) -> list[str]:
    """Names of the sync groups that a step keeps busy.

    Args:
        report: The report.
        step: Row in the steps table.

    Raises:
        InvalidOptionError: There is no such step.
    """
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
    """Rows of the variables that are live while a step runs and not always so, int64[n], in order.

    On some tiles their shares may be free already: those of ``sent_tiles``.
    """
    checked_step(report, step)
    table = report.lifetimes
    now = (table["first_step"] <= step) & (step <= table["last_step"])
    return np.unique(table["variable"][now]).astype(np.int64)


def memory_at(report: Report, step: int) -> Int64:
    """Bytes on each tile while a step runs, int64[tiles]: always-live data, live variables and data in motion.

    Args:
        report: The report.
        step: Row in the steps table.

    Raises:
        InvalidOptionError: There is no such step.
    """
    memory, table = report.memory, report.variable_tiles
    live = np.zeros(len(report.variables), dtype=bool)
    live[live_variables(report, step)] = True
    shares = live[table["variable"]]
    first, count, size = (table[name][shares] for name in ("first_tile", "num_tiles", "padded_bytes"))
    held = spread(first, count, size, memory.num_tiles)
    sent = report.sent_tiles
    free = np.flatnonzero((sent["first_step"] <= step) & (step <= sent["last_step"]))
    held -= by_tile(report, sent, free, "bytes")
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
