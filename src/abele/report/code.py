"""Questions about state and code of the program: bytes of operations on tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, nearest
from abele.report.relations import joined_rows, ranges_of
from abele.report.table import Table
from abele.report.tiles import spread

if TYPE_CHECKING:
    from abele.report.report import Report

CODE = ("vertex_state", "vertex_code", "control_code", "exchange_code")
"""Memory categories of the program itself, which operations have parts of."""


def code_by_tile(report: Report, category: str, op: int | Int64 | None = None) -> Int64:
    """Bytes of state or code of an operation on each tile, int64[tiles]; without one, of all operations.

    Args:
        report: The report.
        category: One of ``vertex_state``, ``vertex_code``, ``control_code`` and ``exchange_code``.
        op: Row in the ops table, or several, int64[n], of which the bytes are added.

    Raises:
        InvalidOptionError: There is no such category or operation.
    """
    if category not in CODE:
        close = nearest(category, CODE)
        raise InvalidOptionError(
            f"no state or code is called {category!r}",
            remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(CODE),
        )
    asked = np.atleast_1d(np.empty(0, np.int64) if op is None else op)
    for unknown in asked[(asked < 0) | (asked >= len(report.ops))][:1]:
        raise InvalidOptionError(f"no operation {unknown}", remedy=f"the report has rows 0 to {len(report.ops) - 1}")
    uses, table, num_tiles = report.code_uses, report.code_tiles, report.memory.num_tiles
    chosen = np.arange(len(uses)) if op is None else np.flatnonzero(np.isin(uses["op"], asked))
    rows, use = joined_rows(table, "pattern", uses["pattern"][chosen])
    first = table["first_tile"][rows].astype(np.int64) + uses["shift_tiles"][chosen][use]
    count = table["num_tiles"][rows].astype(np.int64)
    # A file may say anything: what lies outside of the machine lies nowhere.
    end = np.clip(first + count, 0, num_tiles)
    first = np.clip(first, 0, num_tiles)
    return spread(first, end - first, table[category][rows], num_tiles)


def code_on(report: Report, tile: int) -> Table:
    """State and code on a tile by operation, most bytes first.

    Args:
        report: The report.
        tile: The tile.

    Returns:
        Columns ``op`` (row in the ops table), ``vertex_state``, ``vertex_code``, ``control_code``, ``exchange_code``
        and ``bytes``, their sum; operations without any are left out.

    Raises:
        InvalidOptionError: There is no such tile.
    """
    if not 0 <= tile < report.memory.num_tiles:
        raise InvalidOptionError(f"no tile {tile}", remedy=f"tiles are numbered 0 to {report.memory.num_tiles - 1}")
    uses, table = report.code_uses, report.code_tiles
    width, count = report.memory.num_tiles + 1, len(report.ops)
    begin, rows = ranges_of(table, "pattern", uses["pattern"])
    place = tile - uses["shift_tiles"].astype(np.int64)
    # Runs of a pattern are in order of tiles: the last that begins at the tile or before has it, if any does.
    key = table["pattern"].astype(np.int64) * width + table["first_tile"]
    inside = np.asarray(np.clip(place, 0, width - 1))
    at = np.searchsorted(key, uses["pattern"].astype(np.int64) * width + inside, side="right") - 1
    found = (rows > 0) & (at >= begin) & (place >= 0) & (place < width - 1)
    at, op = at[found], uses["op"][found]
    here = table["first_tile"][at] + table["num_tiles"][at].astype(np.int64) > inside[found]
    at, op = at[here], op[here]
    sums = {name: np.zeros(count, dtype=np.int64) for name in CODE}
    for name, held in sums.items():
        np.add.at(held, op, table[name][at])
    total = np.stack(list(sums.values())).sum(axis=0)
    order = np.argsort(-total, kind="stable")[: int(np.count_nonzero(total))]
    columns = {name: held[order] for name, held in sums.items()}
    return Table({"op": order.astype(np.int32), **columns, "bytes": total[order]})
