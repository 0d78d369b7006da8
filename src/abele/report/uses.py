"""Questions about data flow: variables of steps, steps of variables, and data between operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.report.relations import flat_ranges, ranges_of, rows_of
from abele.report.table import Table
from abele.report.tiles import checked_step, live_variables, variable_row

if TYPE_CHECKING:
    from abele.report.report import Report


_MOST_USES = 1 << 26
"""Most variables touched by all steps of a program that are put side by side: 2 GB."""
_MOST_WRITERS = 64
"""Most operations that write parts of a variable for one reader; the last are told."""


def variables_of(report: Report, step: int) -> Table:
    """The variables that a step touches: columns ``variable``, ``read_bytes`` and ``written_bytes``.

    Args:
        report: The report.
        step: Row in the steps table.

    Raises:
        InvalidOptionError: There is no such step.
    """
    superstep = int(report.steps["superstep"][checked_step(report, step)])
    table = report.superstep_variables
    rows = rows_of(table, "superstep", superstep)
    return Table({name: table[name][rows] for name in ("variable", "read_bytes", "written_bytes")})


def uses_of(report: Report, variable: int | str) -> Table:
    """The steps that touch a variable: columns ``step``, ``read_bytes`` and ``written_bytes``, in order of steps.

    All rows of a superstep are there: the exchange that brings a variable, what computes with it, and so on.

    Args:
        report: The report.
        variable: Row in the variables table, or the name of the first of that name.

    Raises:
        InvalidOptionError: There is no such variable.
    """
    table = report.superstep_variables
    at = np.flatnonzero(table["variable"] == variable_row(report, variable))
    superstep = report.steps["superstep"]
    owner = table["superstep"][at]
    found = np.searchsorted(owner, superstep)
    inside = np.flatnonzero(found < len(at))
    steps = inside[owner[found[inside]] == superstep[inside]]
    rows = at[found[steps]]
    columns = {name: table[name][rows] for name in ("read_bytes", "written_bytes")}
    return Table({"step": steps.astype(np.int32), **columns})


def exchange_of(report: Report, step: int) -> Table:
    """Bytes between sender and receiver tiles of an exchange, in blocks; empty where the report does not hold it.

    Reports hold the phases on which runs spend most cycles; an executable knows all (``exchange_pairs``).

    Args:
        report: The report.
        step: Row in the steps table.

    Returns:
        Rows ``source_tile``, ``target_tile``, ``block_tiles`` and ``bytes`` of one execution.

    Raises:
        InvalidOptionError: There is no such step.
    """
    phase = int(report.steps["phase"][checked_step(report, step)])
    table = report.exchange_blocks
    rows = rows_of(table, "phase", phase)
    return Table({name: table[name][rows] for name in ("source_tile", "target_tile", "block_tiles", "bytes")})


def live_at(report: Report, step: int) -> Table:
    """The variables that live while a step runs and not always: columns of variables after ``variable``, the row.

    The largest come first.

    Args:
        report: The report.
        step: Row in the steps table.

    Raises:
        InvalidOptionError: There is no such step.
    """
    rows = live_variables(report, step)
    chosen = report.variables.select(rows)
    columns = {"variable": rows.astype(np.int32), **{name: chosen.columns[name] for name in chosen.names}}
    return Table(columns).sort("bytes", descending=True)


def op_edges(report: Report, program: int = 0) -> Table:
    """Edges of a program's operation graph: data that one operation writes and another reads.

    Args:
        report: The report.
        program: Index of the program.

    Returns:
        Columns ``writer`` and ``reader`` (rows of the ops table), ``variable`` (row), its ``type`` and ``shape``, and
        ``bytes`` of it that a step of the writer writes at most; without repeats, in order of writers and readers.

    A reader has a variable from the operations before it in program order that wrote it since it was last written
    whole. Values that a loop carries into its next trip, and a run into the next, are left out.

    Raises:
        InvalidOptionError: Steps touch more than can be followed.
    """
    events = _events(report, program)
    variable, position, op, written = events[:4]
    changes = np.append(True, variable[1:] != variable[:-1])[: len(variable)]
    # A value of a variable begins where it is first touched, and where it is written whole.
    begins = changes | (written >= np.maximum(report.variables["bytes"][variable], 1))
    value = np.cumsum(begins) - 1
    reads = np.flatnonzero(events.reads)
    # What writes all of a variable and reads it as well reads the value before.
    wanted = value[reads] - (begins & ~changes)[reads]
    writes = np.flatnonzero(written > 0)
    width = int(position.max(initial=0)) + 1
    key = value[writes] * width + position[writes]
    low, high = np.searchsorted(key, wanted * width), np.searchsorted(key, wanted * width + position[reads])
    low = np.maximum(low, high - _MOST_WRITERS)
    at, read = flat_ranges(low, high - low)
    at, reader = writes[at], op[reads][read]
    kept = np.flatnonzero(op[at] != reader)
    ends = np.stack([op[at[kept]], reader[kept], variable[at[kept]]])
    order = np.lexsort((-written[at[kept]], *ends[::-1]))
    ends, size = ends[:, order], written[at[kept]][order]
    first = np.flatnonzero(np.append(True, (ends[:, 1:] != ends[:, :-1]).any(axis=0))[: len(size)])
    chosen = report.variables.select(ends[2, first])
    names = zip(("writer", "reader", "variable"), ends[:, first].astype(np.int32), strict=True)
    return Table({**dict(names), **{n: chosen.columns[n] for n in ("type", "shape")}, "bytes": size[first]})


class _UseEvents(NamedTuple):
    """Reads and writes of variables by steps, in order of variables and steps.

    Attributes:
        variable: Row of the variable, int64[n].
        position: First row of the step, int64[n].
        op: Its operation, int64[n].
        written: Bytes that it writes, int64[n].
        reads: True where it reads some, bool[n].
    """

    variable: Int64
    position: Int64
    op: Int64
    written: Int64
    reads: npt.NDArray[np.bool_]


def _events(report: Report, program: int) -> _UseEvents:
    steps, table = report.steps, report.superstep_variables
    superstep, op = steps["superstep"], steps["op"]
    # Steps have several rows, of which the first stands for all.
    first = np.append(True, (superstep[1:] != superstep[:-1]) | (op[1:] != op[:-1]))[: len(superstep)]
    rows = np.flatnonzero(first & (steps["program"] == program) & (op >= 0) & (superstep >= 0))
    first_use, count = ranges_of(table, "superstep", superstep[rows])
    if count.sum() > _MOST_USES:
        raise InvalidOptionError(
            f"steps touch {int(count.sum()):,} variables in all, and at most {_MOST_USES:,} are followed"
        )
    at, step = flat_ranges(first_use, count)
    position = rows[step]
    order = np.lexsort((position, table["variable"][at]))
    at, position = at[order], position[order]
    return _UseEvents(
        table["variable"][at].astype(np.int64),
        position,
        op[position].astype(np.int64),
        table["written_bytes"][at],
        table["read_bytes"][at] > 0,
    )
