"""Executions of steps in a run, as columns: spans of sync groups put together step by step."""

from __future__ import annotations

import re

import numpy as np

from abele.arrays import Int64
from abele.pva.missing import missing
from abele.pva.program_nodes import ProgramNodes

_OF_IPU = re.compile(r"IPU (\d{1,9})")
UNKNOWN_IPU = -1


class Executions:
    """The executions of steps in one run of a control program, in order of when they start.

    A span of the report is what one execution of a step keeps one sync group busy for. The k-th span of a step on each
    of its groups belongs to its k-th execution.

    Args:
        nodes: The program tree.
        program: Index of the control program.

    Attributes:
        step: Row of the steps table, int64[n].
        begin: Cycle of the run at which the first of its sync groups starts it, int64[n].
        end: Cycle at which the last one ends it, int64[n].
        first_span: Place of its first span in ``spans``, int64[n + 1].
        spans: Rows of the report's spans table, int64[spans]: those of one execution beside each other.
        is_whole: True if the report holds all executions of the run, and not only the first ones.
    """

    def __init__(self, nodes: ProgramNodes, program: int) -> None:
        table = nodes.report.spans
        rows = np.flatnonzero(table["program"] == program)
        step, group, begin = (table[name][rows].astype(np.int64) for name in ("step", "group", "start_cycle"))
        end = begin + table["cycles"][rows]
        order = np.lexsort((begin, group, step))
        rank = np.empty(len(rows), np.int64)
        rank[order] = _places(step[order], group[order])
        order = np.lexsort((group, rank, step))
        first = np.flatnonzero(_changes(step[order], rank[order]))
        starts = _reduced(np.minimum, begin[order], first)
        # In order of time; of several that start at once, in order of the program.
        by_time = np.lexsort((step[order][first], starts))
        lengths = np.diff(np.append(first, len(rows)))[by_time]
        self.step = step[order][first][by_time]
        self.begin = starts[by_time]
        self.end = _reduced(np.maximum, end[order], first)[by_time]
        self.first_span = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        at = np.repeat(first[by_time] - self.first_span[:-1], lengths) + np.arange(len(rows))
        self.spans = rows[order][at]
        self.is_whole = self._num_expected(nodes, program) <= len(self.step)

    def __len__(self) -> int:
        return len(self.step)

    @staticmethod
    def _num_expected(nodes: ProgramNodes, program: int) -> int:
        steps = nodes.report.steps
        mine = steps["program"] == program
        return int(steps["executions"][mine & (steps["start_cycle"] >= 0)].sum())


def ipu_of_groups(nodes: ProgramNodes) -> Int64:
    """The IPU of each row of the groups table, int64[groups]; ``UNKNOWN_IPU`` where the report does not say."""
    report = nodes.report
    count = int(report.target["num_ipus"])
    names = report.groups["name"].tolist()
    if count == 1:
        return np.zeros(len(names), np.int64)
    matches = [_OF_IPU.fullmatch(name) for name in names]
    found = np.array([int(match[1]) if match else UNKNOWN_IPU for match in matches], np.int64)
    return np.where(found < count, found, UNKNOWN_IPU)


def group_of_tile(nodes: ProgramNodes, program: int, tile: int) -> int:
    """The row of the groups table that a tile belongs to in a program; -1 if its IPU takes no part.

    Raises:
        MissingDatumError: The report does not say which of several sync groups it belongs to.
    """
    report = nodes.report
    mine = np.flatnonzero(report.groups["program"] == program)
    tiles, ipus = report.memory.num_tiles, max(int(report.target["num_ipus"]), 1)
    each = max(tiles // ipus, 1)
    sizes = report.groups["tiles"][mine]
    whole = mine[(sizes == each) & (ipu_of_groups(nodes)[mine] == tile // each)]
    if len(whole):
        return int(whole[0])
    names = report.groups["name"][mine].tolist()
    if all(_OF_IPU.fullmatch(name) for name in names) and (sizes == each).all():
        return -1
    raise missing(
        f"to which of the sync groups {', '.join(map(repr, names))} tile {tile:,} belongs",
        remedy="run.blocksOfGroup(name)",
    )


def _changes(*columns: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """True where any of the columns differs from the row before, bool[n]; True at row 0."""
    found = np.zeros(len(columns[0]), bool)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def _places(*columns: Int64) -> Int64:
    """Number of rows with the same values directly before each row, int64[n]."""
    at = np.arange(len(columns[0]))
    return at - np.maximum.accumulate(np.where(_changes(*columns), at, 0))


def _reduced(function: np.ufunc, values: Int64, first: Int64) -> Int64:
    """A reduction over stretches that begin at ``first``, int64[stretches]."""
    return np.asarray(function.reduceat(values, first) if len(first) else values[:0], dtype=np.int64)
