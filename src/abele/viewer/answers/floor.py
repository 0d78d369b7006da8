"""Positions of tiles on the chip, and numbers by tile for a picture of it.

The order of tiles on a die is known from others' measurements only in part: 16 columns, in which pairs of tiles with
neighbouring numbers lie beside each other, and numbers go along one column up and along the next one down. Sizes of
chips that are not a multiple of 16 columns are laid out in a square. Source: reference on machines, "Hardware exchange
mechanics" (third party: 23 rows × 16 columns × 4, a snake of pairs).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.report import Report
from abele.report.code import CODE
from abele.viewer.answers.buckets import small
from abele.viewer.answers.registry import once, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

COLUMNS = 16
"""Columns of tiles on a die."""

_MOST_IPUS = 1_024
"""IPUs that are told apart: a file may say that each has one tile."""


def ipu_tiles(report: Report) -> int:
    """Tiles of one IPU: of the target, or all where it does not say, or says what no machine is like."""
    said = report.target.get("tiles_per_ipu")
    most = max(report.memory.num_tiles, 1)
    return min(int(said), most) if isinstance(said, int) and said * _MOST_IPUS >= most else most


def places(num_tiles: int) -> tuple[Int64, Int64]:
    """Column and row of each tile of an IPU, int64[tiles] each.

    Args:
        num_tiles: Tiles of the IPU.
    """
    tile = np.arange(num_tiles, dtype=np.int64)
    if num_tiles % (2 * COLUMNS) or not num_tiles:
        wide = max(1, math.isqrt(max(num_tiles - 1, 0)) + 1)
        return tile % wide, tile // wide
    height = num_tiles // (2 * COLUMNS)
    column, place = np.divmod(tile, 2 * height)
    row = place // 2
    return 2 * column + place % 2, np.where(column % 2, height - 1 - row, row)


def physical_order(num_tiles: int, per_ipu: int) -> Int64:
    """Tiles row by row as they lie on each IPU, int64[tiles]."""
    column, row = places(per_ipu)
    rank = np.empty(per_ipu, np.int64)
    rank[np.lexsort((column, row))] = np.arange(per_ipu)
    tile = np.arange(num_tiles)
    return np.argsort(tile // per_ipu * per_ipu + rank[tile % per_ipu], kind="stable")


@question("floor", frozen=once, rank=1)
def floor(opened: Opened, params: Params) -> Answer:
    """The floor plan of an IPU, and how many there are.

    Answer: head ``num_tiles``, ``tiles_per_ipu``, ``num_ipus``, ``columns``, ``rows``; arrays ``column`` and ``row`` of
    each tile of an IPU.
    """
    del params
    tiles, per_ipu = opened.report.memory.num_tiles, ipu_tiles(opened.report)
    column, row = places(per_ipu)
    head = {
        "num_tiles": tiles,
        "tiles_per_ipu": per_ipu,
        "num_ipus": -(-tiles // per_ipu) if tiles else 0,
        "columns": int(column.max(initial=0)) + 1,
        "rows": int(row.max(initial=0)) + 1,
    }
    return Answer(head, {"column": column.astype(np.uint16), "row": row.astype(np.uint16)})


def _frozen(opened: Opened) -> Iterator[Mapping[str, str]]:
    yield {"metric": "total"}
    yield from ({"metric": name} for name in opened.report.memory.categories)
    yield from ({"metric": name} for name in _TRAFFIC)


@question("floor.metric", frozen=_frozen, rank=4)
def metric(opened: Opened, params: Params) -> Answer:
    """A number for each tile.

    Parameters: ``metric``, one of ``total``, ``free``, a category of memory, ``compute_cycles``, ``sent_bytes``,
    ``received_bytes`` (of a run of ``program``), ``variable:ROW``, ``operation:ROW`` (its state and code).

    Answer: head ``title`` and ``unit``; array ``values`` [tiles].
    """
    asked = params.text("metric", "total")
    report = opened.report
    name, _, row = asked.partition(":")
    if name == "variable" and row.isdigit() and int(row) < len(report.variables):
        values = report.variable_by_tile(int(row))
        return Answer({"title": str(report.variables["name"][int(row)]), "unit": "bytes"}, {"values": small(values)})
    if name == "operation" and row.isdigit() and int(row) < len(report.ops):
        values = np.sum([report.code_by_tile(each, int(row)) for each in CODE], axis=0)
        title = f"state and code of {report.ops['name'][int(row)]}"
        return Answer({"title": title, "unit": "bytes"}, {"values": small(values)})
    if name in _TRAFFIC:
        values = report.program_by_tile(name, params.number("program"))
        return Answer({"title": _TRAFFIC[name], "unit": name.rpartition("_")[2]}, {"values": small(values)})
    makers: dict[str, Callable[[], Int64]] = {
        "total": lambda: report.memory.by_tile,
        "free": lambda: np.maximum(report.memory.available_bytes - report.memory.by_tile, 0),
        **{each: _category(report, at) for at, each in enumerate(report.memory.categories)},
    }
    if name not in makers:
        known = ", ".join([*makers, *_TRAFFIC, "variable:ROW", "operation:ROW"])
        raise InvalidOptionError(f"{asked[:60]!r} is no number of a tile", remedy=f"one of {known}")
    title = {"total": "memory, gaps included", "free": "memory that is free"}.get(name, name.replace("_", " "))
    return Answer({"title": title, "unit": "bytes"}, {"values": small(makers[name]())})


_TRAFFIC = {
    "compute_cycles": "cycles that a tile computes in a run",
    "sent_bytes": "bytes sent in a run",
    "received_bytes": "bytes received in a run",
}


def _category(report: Report, at: int) -> Callable[[], Int64]:
    return lambda: np.repeat(report.memory.run_bytes[at], report.memory.run_tiles)
