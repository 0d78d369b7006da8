"""The tree of control programs, and what one of its steps does."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array, Int64
from abele.errors import InvalidOptionError
from abele.report import Report, Table
from abele.report.relations import joined_rows, rows_of
from abele.report.text_column import Text
from abele.viewer.answers.costs import PARTS, step_costs
from abele.viewer.answers.registry import Frozen, once, question
from abele.viewer.answers.tree import Tree, tree_of
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer

MOST_LISTED = 200
"""Rows of a list of details."""
_FROZEN_STEPS = 300
_MOST_PROGRAMS = 1 << 16


def tree(opened: Opened) -> Tree:
    """The tree of a report's programs."""
    return opened.once("program tree", lambda: tree_of(opened.report, step_costs(opened)))


@question("program", frozen=once, rank=4)
def program(opened: Opened, params: Params) -> Answer:
    """All nodes of the tree, each before its contents.

    Answer: head ``parts`` (names), ``names``, ``kinds``, ``titles`` (words of the codes), ``told`` (whether the report
    holds the tree), ``cycles`` of a run of each program; arrays ``depth``, ``size``, ``name``, ``kind``, ``title``,
    ``part`` (number of the colour), ``step``, ``num_steps``, ``op``, ``count``, ``executions``, ``function`` (node),
    ``source`` (row of the report's table) and ``cycles`` [nodes, parts].
    """
    found, costs = tree(opened), step_costs(opened)
    steps = opened.report.steps
    own = np.maximum(found.step, 0)
    executions = steps["executions"][own] if len(steps) else np.zeros(len(found), dtype=np.int64)
    # A node is carried out as often as its steps, where these agree.
    turns = np.append(0, np.cumsum(np.append(False, np.diff(steps["executions"]) != 0)))[: len(steps) + 1]
    has = found.num_steps > 0
    if len(steps):
        end = own + np.maximum(found.num_steps, 1)
        has &= turns[end] == turns[own + 1]
    part = np.where(found.is_step, costs.part[own] if len(steps) else 0, found.cycles.argmax(axis=1))
    # A number that no report of ours has is left out, and takes no room.
    told = steps["program"] < _MOST_PROGRAMS
    totals = np.bincount(steps["program"][told], costs.total[told])
    head = {
        "parts": list(PARTS),
        "told": found.told,
        "names": list(found.name.words),
        "kinds": list(found.kind.words),
        "titles": list(found.title.words),
        "cycles": totals,
        "num_steps": len(steps),
    }
    arrays: dict[str, Array] = {
        "depth": found.depth.astype(np.uint8),
        "size": found.size.astype(np.int32),
        "name": found.name.codes,
        "kind": found.kind.codes.astype(np.uint16),
        "title": found.title.codes.astype(np.uint16),
        "part": part.astype(np.uint8),
        "is_step": found.is_step,
        "step": found.step.astype(np.int32),
        "num_steps": found.num_steps.astype(np.int32),
        "op": found.op.astype(np.int32),
        "count": found.count,
        "executions": np.where(has, executions, 0),
        "function": found.function.astype(np.int32),
        "source": found.source.astype(np.int32),
        "cycles": found.cycles.astype(np.float32),
    }
    return Answer(head, arrays)


def _costliest(opened: Opened) -> Frozen:
    order = np.argsort(-step_costs(opened).total, kind="stable")[:_FROZEN_STEPS]
    for step in order.tolist():
        yield {"step": str(step)}


@question("step", frozen=_costliest, rank=6)
def step(opened: Opened, params: Params) -> Answer:
    """One step: its facts, variables, vertices and cycles.

    Parameters: ``step`` its row.

    Answer: head ``facts`` (its row in the steps table), ``op`` (its operation's row), ``groups``, ``superstep``,
    ``vertices`` by codelet and ``variables`` that it reads and writes, each a list of rows, None where the report does
    not tell; ``node`` its row in the tree, ``moves`` what its tiles do; array ``cycles`` by part.
    """
    report = opened.report
    row = checked_row(report, params.number("step", -1, low=-1))
    superstep = int(report.steps["superstep"][row])
    head: dict[str, Any] = {
        "step": row,
        "facts": record(report.steps, row),
        "op": record(report.ops, int(report.steps["op"][row])),
        "groups": report.groups_of(row)[:MOST_LISTED],
        "superstep": record(report.supersteps, superstep),
        "vertices": vertices_of(report, np.array([superstep])),
        "variables": variables_of(report, np.array([superstep])),
        "same_op": int(np.count_nonzero(report.steps["op"] == report.steps["op"][row])),
        "node": node_of(tree(opened), row),
        "moves": _moves(report, int(report.steps["phase"][row])),
    }
    return Answer(head, {"cycles": step_costs(opened).cycles[row]})


def checked_row(report: Report, row: int) -> int:
    """A row of the steps table.

    Raises:
        InvalidOptionError: There is none of that number.
    """
    return checked(report.steps, row, "step")


def checked(table: Table, row: int, noun: str) -> int:
    """A row of a table.

    Raises:
        InvalidOptionError: There is none of that number.
    """
    if 0 <= row < len(table):
        return row
    has = f"the report has rows 0 to {len(table) - 1}" if len(table) else f"the report has no {noun}s"
    raise InvalidOptionError(f"no {noun} {row}", remedy=has)


def record(table: Table, row: int) -> dict[str, Any] | None:
    """A row of a table as plain values; None where there is no such row."""
    if not 0 <= row < len(table):
        return None
    return {
        name: column.words[column.codes[row]] if isinstance(column, Text) else column[row].item()
        for name, column in table.columns.items()
    }


def node_of(found: Tree, row: int) -> int:
    """The deepest node of the tree that a step is in, −1 for none: the step itself where the tree has it."""
    itself = np.flatnonzero(found.is_step & (found.step == row))
    if len(itself):
        return int(itself[0])
    around = np.flatnonzero((found.num_steps > 0) & (found.step <= row) & (row < found.step + found.num_steps))
    return int(around[found.depth[around].argmax()]) if len(around) else -1


def vertices_of(report: Report, supersteps: Int64) -> list[dict[str, Any]] | None:
    """Vertices of some supersteps by codelet, most cycles first; None where the report does not tell them."""
    table, codelets = report.vertices, report.codelets
    if not len(report.supersteps):
        return None
    rows, _ = joined_rows(table, "superstep", np.unique(supersteps))
    codelet = table["codelet"][rows]
    found = []
    for number in np.unique(codelet).tolist():
        mine = rows[codelet == number]
        slowest = mine[table["max_cycles"][mine].argmax()]
        found.append(
            {
                **{key: value for key, value in (record(codelets, number) or {}).items() if key != "tiles"},
                "codelet": number,
                **{key: int(table[key][mine].sum()) for key in ("num_vertices", "state_bytes", "cycles")},
                "tiles": int(table["tiles"][mine].max()),
                "max_cycles": int(table["max_cycles"][slowest]),
                "slowest_tile": int(table["slowest_tile"][slowest]),
                "assumed": bool(table["assumed"][mine].any()),
            }
        )
    return sorted(found, key=lambda each: -each["cycles"])[:MOST_LISTED]


def variables_of(report: Report, supersteps: Int64) -> list[dict[str, Any]] | None:
    """Variables that some supersteps read and write, most bytes first; None where the report does not tell them."""
    table, variables = report.superstep_variables, report.variables
    if not len(report.supersteps):
        return None
    rows, _ = joined_rows(table, "superstep", np.unique(supersteps))
    number, place = np.unique(table["variable"][rows], return_inverse=True)
    read, written = np.zeros(len(number)), np.zeros(len(number))
    np.maximum.at(read, place, table["read_bytes"][rows])
    np.maximum.at(written, place, table["written_bytes"][rows])
    order = np.argsort(-(read + written), kind="stable")[:MOST_LISTED]
    return [
        {
            "variable": int(number[i]),
            "read": read[i],
            "written": written[i],
            **(record(variables, int(number[i])) or {}),
        }
        for i in order
    ]


def _moves(report: Report, phase: int) -> dict[str, Any] | None:
    """Work of a phase on its tiles: how many take part, and the busiest in each respect."""
    if phase < 0:
        return None
    table = report.phase_tiles
    rows = rows_of(table, "phase", phase)
    first, count = table["first_tile"][rows], table["num_tiles"][rows].astype(np.int64)
    if not len(first):
        return None
    told: dict[str, Any] = {"tiles": int(count.sum())}
    for name in ("compute_cycles", "sent_bytes", "received_bytes"):
        values = table[name][rows]
        busiest = int(values.argmax())
        told[name] = {
            "total": int((values * count).sum()),
            "tiles": int(count[values > 0].sum()),
            "most": int(values[busiest]),
            "tile": int(first[busiest]),
        }
    return told
