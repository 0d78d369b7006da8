"""Operations: more columns than their table has, grouped and summed, and everything about one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Array, Float64, Int64
from abele.report import CODE_COLUMNS, Report
from abele.report.nodes import sizes
from abele.report.relations import joined_rows, summed_by, sums_of
from abele.report.schema import OPS
from abele.report.table import Table
from abele.report.text import full_name
from abele.report.text_column import Text
from abele.report.tiles import summed
from abele.viewer.answers.costs import PARTS, occurrences, step_costs
from abele.viewer.answers.pages import page_of
from abele.viewer.answers.program import MOST_LISTED, checked, record, variables_of, vertices_of
from abele.viewer.answers.registry import Frozen, question
from abele.viewer.answers.table import MOST_ROWS
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

# Trees from paths: rows with the same outer levels stand together, each node before its contents.

_CLASS = re.compile(r"^(?P<path>.*?)\s*\((?P<type>[^()]*)\)$")
DEEPEST = 24
"""Levels of a path that are told apart."""


@dataclass(frozen=True)
class Nested:
    """A tree whose leaves are the rows of a table.

    Attributes:
        depth: Levels above each node, int64[nodes].
        level: Number that its own level has, −1 for leaves, int64[nodes].
        row: The row of a leaf, −1 for others, int64[nodes].
        first: Its first leaf in ``leaves``, int64[nodes].
        leaves: Rows in the order of the tree, int64[rows].
        num_leaves: Leaves of its subtree, int64[nodes].
        size: Nodes of its subtree, itself included, int64[nodes].
    """

    depth: Int64
    level: Int64
    row: Int64
    first: Int64
    leaves: Int64
    num_leaves: Int64
    size: Int64


def nested(levels: Int64) -> Nested:
    """The tree of some paths.

    Args:
        levels: Numbers of the levels of each row, outermost first, −1 behind the last, int64[rows, levels].

    Groups stand in the order in which they come up first, rows inside one in their own.
    """
    num, width = levels.shape
    ranks = np.stack([_appearance(levels[:, : k + 1]) for k in range(width)], axis=1) if width else levels
    leaves = np.lexsort((np.arange(num), *ranks.T[::-1])) if width else np.arange(num)
    ordered, place = levels[leaves], ranks[leaves]
    new = np.ones((num, width), dtype=bool)
    new[1:] = np.logical_or.accumulate(place[1:] != place[:-1], axis=1)
    given = ordered >= 0
    begins = np.concatenate([new & given, np.ones((num, 1), dtype=bool)], axis=1)
    at, column = np.nonzero(begins)
    is_leaf = column == width
    depth = np.where(is_leaf, given.sum(axis=1)[at] if num else 0, column)
    level = np.where(is_leaf, -1, np.concatenate([ordered, np.full((num, 1), -1)], axis=1)[at, column])
    size = sizes(depth.astype(np.int64))
    ends = np.append(at, num)[np.arange(len(at)) + size]
    return Nested(
        depth=depth,
        level=level,
        row=np.where(is_leaf, leaves[at] if num else 0, -1),
        first=at,
        leaves=leaves,
        num_leaves=ends - at,
        size=size,
    )


def _appearance(columns: Int64) -> Int64:
    """First row with the same levels as each row, int64[rows]."""
    if not len(columns):
        return np.zeros(0, dtype=np.int64)
    _, first, place = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[place.reshape(-1)], dtype=np.int64)


def split_path(path: str) -> tuple[list[str], str]:
    """The modules that a path of scopes names, outermost first, and the class of the innermost where it is told.

    ``model.conv1 (Conv2d)`` is ``model``, ``conv1`` of class ``Conv2d``.
    """
    found = _CLASS.match(path)
    kind = found["type"] if found else ""
    text = found["path"] if found else path
    return [part for part in re.split(r"[/.]", text) if part][:DEEPEST], kind


GROUPINGS = ("path", "kind", "source", "block")
"""Properties by which operations may be grouped."""

_MORE = {
    "moved_bytes": "bytes that its exchanges and streams move in one run",
    "read_bytes": "distinct bytes of variables that its supersteps read, times executions",
    "written_bytes": "distinct bytes of variables that its supersteps write, times executions",
    "num_vertices": "vertices executed in one run",
    "num_steps": "rows in the steps table",
    "balance": "mean compute cycles of tiles / those of the slowest tile, weighted by cycles",
    "intensity": "floating-point operations for each byte moved",
    "flops_per_second": "floating-point operations a second of the modelled machine while it runs",
    "block": "block of its first step",
}
_SUMMED = (
    "cycles",
    "compute_cycles",
    "exchange_cycles",
    "sync_cycles",
    "host_cycles",
    "flops",
    "moved_bytes",
    "read_bytes",
    "written_bytes",
    "num_vertices",
    "num_steps",
    *CODE_COLUMNS,
    "share",
)
"""Columns of which groups have sums; what operations share counts for the first in those of code."""
MOST_POINTS = 20_000


def operations(opened: Opened) -> Table:
    """The table of operations with more columns."""
    return opened.once("operations", lambda: Table(_columns(opened)))


def _columns(opened: Opened) -> dict[str, Any]:
    report = opened.report
    num, steps = len(report.ops), report.steps
    op = steps["op"].astype(np.int64)
    mine = np.flatnonzero(op >= 0)
    times = steps["executions"].astype(np.float64)

    def total(values: Array) -> Float64:
        return summed_by(op, values, num)[:num]

    compute = np.where(step_costs(opened).part == PARTS.index("compute"), steps["compute_cycles"] * times, 0.0)
    read, written = _touched(report, num)
    cycles, flops = report.ops["cycles"].astype(np.float64), report.ops["flops"].astype(np.float64)
    moved, heavy = total(steps["exchanged_bytes"] * times), total(compute)
    clock = float(report.target.get("clock_hz", 0) or 0)
    first = np.full(num, -1, dtype=np.int64)
    first[op[mine][::-1]] = mine[::-1]
    blocks = steps.columns["block"]
    assert isinstance(blocks, Text)
    words = (*blocks.words, "")
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            **report.ops.columns,
            "moved_bytes": moved,
            "read_bytes": read,
            "written_bytes": written,
            "num_vertices": total(steps["num_vertices"] * times),
            "num_steps": total(np.ones(len(steps))),
            "balance": np.where(heavy > 0, total(compute * steps["tile_balance"]) / np.maximum(heavy, 1), 0.0),
            "intensity": np.where(moved > 0, flops / np.maximum(moved, 1), 0.0),
            "flops_per_second": np.where(cycles > 0, flops * clock / np.maximum(cycles, 1), 0.0),
            "block": Text(np.append(blocks.codes, np.int32(len(words) - 1))[first].astype(np.int32), words),
        }


def _touched(report: Report, num: int) -> tuple[Float64, Float64]:
    """Bytes that each operation reads and writes in a run, float64[ops] each."""
    read, written = np.zeros(num), np.zeros(num)
    if not len(report.supersteps):
        return read, written
    table, places = report.superstep_variables, occurrences(report)
    own = places.op >= 0
    superstep, op, times = places.superstep[own], places.op[own], places.executions[own]
    known = superstep < len(report.supersteps)
    superstep, op, times = superstep[known], op[known], times[known]
    np.add.at(read, op, sums_of(table, "superstep", table["read_bytes"], superstep) * times)
    np.add.at(written, op, sums_of(table, "superstep", table["written_bytes"], superstep) * times)
    return read, written


def _frozen_rows(opened: Opened) -> Frozen:
    del opened
    yield {"sort": "-cycles", "count": str(MOST_ROWS)}


@question("operations", frozen=_frozen_rows, rank=3)
def rows(opened: Opened, params: Params) -> Answer:
    """Rows of operations, as ``table`` answers them, with more columns and their sums.

    Parameters: ``filter``, ``sort``, ``first``, ``count`` as of ``table``.

    Answer: as of ``table``; the head has ``sums`` of what the filter leaves as well.
    """
    whole = operations(opened)
    page = page_of(whole, {name: _doc(name) for name in whole.names}, params)
    sums = {name: float(whole[name][page.found].sum()) for name in _SUMMED}
    return Answer(page.head | {"sums": sums}, {"row": page.rows, **page.arrays})


def _doc(name: str) -> str:
    return _MORE.get(name) or (OPS.columns[name].doc if name in OPS.columns else "")


def _frozen_groups(opened: Opened) -> Frozen:
    del opened
    for by in GROUPINGS:
        yield {"by": by}


@question("operations.groups", frozen=_frozen_groups, rank=5)
def groups(opened: Opened, params: Params) -> Answer:
    """Operations as a tree of groups with sums.

    Parameters: ``by`` one of GROUPINGS.

    Answer: head ``names`` (words of ``name``), ``columns`` (summed); arrays ``depth``, ``size``, ``name``, ``op`` (row,
    −1 for groups), ``count`` (operations inside), ``sums`` float64[nodes, columns].
    """
    whole, by = operations(opened), params.choice("by", GROUPINGS)
    levels, words = _levels(whole, by)
    found = nested(levels)
    values = np.stack([whole[name].astype(np.float64) for name in _SUMMED], axis=1)[found.leaves]
    running = np.concatenate([np.zeros((1, len(_SUMMED))), np.cumsum(values, axis=0)])
    names = whole.columns["name"]
    assert isinstance(names, Text)
    codes = np.where(found.row >= 0, names.codes[found.row] + len(words) if len(whole) else 0, found.level)
    arrays: dict[str, Array] = {
        "depth": found.depth.astype(np.uint8),
        "size": found.size.astype(np.int32),
        "name": codes.astype(np.int32),
        "op": found.row.astype(np.int32),
        "count": found.num_leaves.astype(np.int32),
        "sums": running[found.first + found.num_leaves] - running[found.first],
    }
    return Answer({"names": [*words, *names.words], "columns": list(_SUMMED), "by": by}, arrays)


def _levels(whole: Table, by: str) -> tuple[Int64, list[str]]:
    """Levels of the groups that each operation is in, int64[ops, levels], and their names."""
    if by == "path":
        return path_levels(whole)
    if by == "source":
        return _coded(
            [
                f"{file}:{line}" if file else "(no source)"
                for file, line in zip(whole["file"].tolist(), whole["line"].tolist(), strict=True)
            ]
        )
    names = [str(name) or f"(no {by})" for name in whole[by].tolist()]
    return _coded(names)


def _coded(names: list[str]) -> tuple[Int64, list[str]]:
    column = Text.of(names)
    return column.codes.astype(np.int64)[:, None], list(column.words)


def path_levels(whole: Table) -> tuple[Int64, list[str]]:
    """The modules around each operation as numbers, outermost first, −1 behind the last, and their names."""
    column = whole.columns["path"]
    assert isinstance(column, Text)
    split = [split_path(word) for word in column.words]
    kinds = {tuple(parts): kind for parts, kind in split if kind}
    numbers: dict[tuple[str, ...], int] = {}
    width = max((len(parts) for parts, _ in split), default=0)
    coded = np.full((max(len(split), 1), width), -1, dtype=np.int64)
    for row, (parts, _) in enumerate(split):
        for k in range(len(parts)):
            coded[row, k] = numbers.setdefault(tuple(parts[: k + 1]), len(numbers))
    words = [f"{path[-1]} ({kinds[path]})" if path in kinds else path[-1] for path in numbers]
    return coded[column.codes], words


def _costliest(opened: Opened) -> Frozen:
    for op in np.argsort(-opened.report.ops["cycles"], kind="stable")[:100].tolist():
        yield {"op": str(op)}


@question("operation", frozen=_costliest, rank=6)
def operation(opened: Opened, params: Params) -> Answer:
    """Everything about one operation.

    Parameters: ``op`` its row.

    Answer: head ``facts`` (its row, with more columns), ``steps`` (its rows of the steps table, as far as MOST_LISTED),
    ``num_steps``, ``vertices`` by codelet, ``variables`` read and written, ``modules`` around it and ``module_kind``,
    the class of the innermost, ``parts``; arrays ``cycles`` by part, and ``first``, ``count``, ``busy``: runs of tiles
    that compute, with their cycles in a run.
    """
    report, whole = opened.report, operations(opened)
    row = checked(whole, params.number("op", -1, low=-1), "operation")
    steps = np.flatnonzero(report.steps["op"] == row)
    supersteps = np.unique(report.steps["superstep"][steps].astype(np.int64))
    listed = [{"step": int(s), **(record(report.steps, int(s)) or {})} for s in steps[:MOST_LISTED].tolist()]
    parts, kind = split_path(str(whole["path"][row]))
    head: dict[str, Any] = {
        "op": row,
        "facts": record(whole, row),
        "steps": listed,
        "num_steps": len(steps),
        "vertices": vertices_of(report, supersteps),
        "variables": variables_of(report, supersteps),
        "parts": list(PARTS),
        "modules": parts,
        "module_kind": kind,
    }
    cycles = step_costs(opened).cycles[steps].sum(axis=0)
    first, count, busy = _tiles(report, steps)
    return Answer(head, {"cycles": cycles, "first": first, "count": count, "busy": busy})


def _tiles(report: Report, steps: Int64) -> tuple[Int64, Int64, Int64]:
    """Compute cycles of a run on each tile that some steps use: first tile, number and cycles of runs of tiles."""
    table = report.phase_tiles
    phases = report.steps["phase"][steps].astype(np.int64)
    told = phases >= 0
    phases, times = phases[told], report.steps["executions"][steps].astype(np.int64)[told]
    rows_, owner = joined_rows(table, "phase", phases)
    cycles = table["compute_cycles"][rows_] * times[owner]
    if not len(rows_):
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    first, count, values = summed(table["first_tile"][rows_], table["num_tiles"][rows_], cycles=cycles)
    return first, count, values["cycles"]


@question("roofline", frozen=lambda opened: iter([{}]), rank=5)
def roofline(opened: Opened, params: Params) -> Answer:
    """Arithmetic of each operation per byte that it moves, and its rate, beside the peaks of the machine.

    Answer: head ``peaks`` (flops_per_second of float8, float16 and float32, exchange and memory bytes_per_second) and
    ``names`` with their modules; arrays ``op``, ``intensity`` (flop for each byte moved), ``local`` (flop for each byte
    read and written, 0 where unknown), ``rate`` (flop/s) and ``cycles``, of operations that compute, most cycles first.
    """
    del params
    whole, target = operations(opened), opened.report.target
    with np.errstate(divide="ignore", invalid="ignore"):
        touched = whole["read_bytes"] + whole["written_bytes"]
        local = np.where(touched > 0, whole["flops"] / np.maximum(touched, 1), 0.0)
    some = np.flatnonzero((whole["flops"] > 0) & (whole["cycles"] > 0))
    some = some[np.argsort(-whole["cycles"][some], kind="stable")][:MOST_POINTS]
    flops, moved = (f"{t}_flops_per_second" for t in ("f8", "f16", "f32")), ("exchange", "memory")
    names = (*flops, *(f"{what}_bytes_per_second" for what in moved))
    places = zip(whole["path"][some], whole["name"][some], strict=True)
    titles = [full_name(path, name) for path, name in places]
    return Answer(
        {"peaks": {name: target.get(name) for name in names}, "names": titles},
        {
            "op": some.astype(np.int32),
            "intensity": whole["intensity"][some],
            "local": local[some],
            "rate": whole["flops_per_second"][some],
            "cycles": whole["cycles"][some].astype(np.float64),
        },
    )
