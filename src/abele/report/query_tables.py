"""Tables that queries may name: those of a report, each with the numbers of its rows, and bytes on tiles.

Columns are the report's own arrays, which the database reads in place. A text column becomes an array of pointers to
its distinct words: no string is made for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.report.schema import TABLES
from abele.report.text_column import Column, Text

if TYPE_CHECKING:
    from abele.report.report import Report

Columns = Mapping[str, Column]
ROW = "id"
"""Name of the column with the number of a row in its table: columns of other tables refer to it."""
_SQL_TYPES = {"<i4": "INTEGER", "<i8": "BIGINT", "<f8": "DOUBLE", "|b1": "BOOLEAN", "text": "VARCHAR"}


def table_columns(report: Report) -> dict[str, tuple[str, ...]]:
    """Names of the columns that each table has in queries."""
    found = {name: (ROW, *schema.columns) for name, schema in TABLES.items()}
    return found | {"memory": tuple(_memory_names(report)), "target": ("name", "value")}


def columns_of(report: Report, table: str) -> dict[str, npt.NDArray[Any]]:
    """The columns of a table as arrays that the database reads.

    Args:
        report: The report.
        table: One of :func:`table_columns`.
    """
    special: dict[str, Callable[[Report], dict[str, Column]]] = {"memory": _memory, "target": _target}
    if table in special:
        found = special[table](report)
    else:
        held = getattr(report, table)
        found = {
            ROW: np.arange(len(held), dtype=np.int32),
            **{name: held.columns[name] for name in TABLES[table].columns},
        }
    return {
        name: _strings(column) if isinstance(column, Text) else np.asarray(column) for name, column in found.items()
    }


def empty_table_sql(report: Report, table: str) -> str:
    """The statement that makes a table without rows: arrays of none have no type of text."""
    types = {ROW: "INTEGER"}
    types |= {name: _SQL_TYPES[spec.dtype] for name, spec in (TABLES[table].columns if table in TABLES else {}).items()}
    names = table_columns(report)[table]
    other = "VARCHAR" if table == "target" else "BIGINT"
    return f"CREATE TABLE {table} (" + ", ".join(f"{quoted(name)} {types.get(name, other)}" for name in names) + ")"


def quoted(name: str) -> str:
    """A name as SQL takes any."""
    return '"' + name.replace('"', '""') + '"'


def _strings(column: Text) -> npt.NDArray[Any]:
    """The strings of a text column: an array of n objects, of which equal ones are one."""
    words = column.words
    if not all(word.isascii() for word in words):
        # Halves of surrogate pairs, which a file may hold, are no text to a database.
        words = tuple(word.encode("utf-8", "replace").decode("utf-8") for word in words)
    return Text(column.codes, words).decode()


def _memory_names(report: Report) -> dict[str, int]:
    """Names of the columns of ``memory``, and which category each is, -1 for none.

    Categories come from a file: those that a database would take for another column are told apart by a number.
    """
    names = {"tile": -1, "total_bytes": -1}
    taken = {name.casefold() for name in names}
    for place, category in enumerate(report.memory.categories):
        name = category or "category"
        while name.casefold() in taken:
            name = f"{name}_{place}"
        taken.add(name.casefold())
        names[name] = place
    return names


def _memory(report: Report) -> dict[str, Column]:
    """Bytes on each tile, category by category."""
    memory = report.memory
    found: dict[str, Column] = {"tile": np.arange(memory.num_tiles, dtype=np.int32), "total_bytes": memory.by_tile}
    return found | {name: memory.bytes[at] for name, at in _memory_names(report).items() if at >= 0}


def _target(report: Report) -> dict[str, Column]:
    """The figures of the machine as text."""
    names = [str(name) for name in report.target]
    return {"name": Text.of(names), "value": Text.of([str(report.target[name]) for name in report.target])}
