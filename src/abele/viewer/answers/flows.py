"""Data flow between operations: the writer of each operand.

Accesses of supersteps, in the order of the steps table, make epochs of each variable: writes that follow each other are
one, and what is read belongs to the epoch before. A read before any write belongs to the last epoch: what goes round in
a loop. Reports without accesses tell of each variable from which step to which it lives; then an edge leads from the
operation that brings it to life to the last one that needs it, and operations are strung up in order besides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.report import Report
from abele.viewer.answers.costs import flat, occurrences

_MOST_WRITERS = 32
_MOST_ACCESSES = 20_000_000


@dataclass(frozen=True)
class Flows:
    """Edges between operations.

    Attributes:
        source: Row of the operation that writes, int64[edges].
        target: Row of the one that reads, int64[edges].
        variable: Variable that it reads, −1 for mere order, int64[edges].
        bytes: That it reads, int64[edges].
        round: True for what an earlier trip of a loop wrote, bool[edges].
        told: True where the report holds accesses.
    """

    source: Int64
    target: Int64
    variable: Int64
    bytes: Int64
    round: npt.NDArray[np.bool_]
    told: bool


def flows_of(report: Report) -> Flows:
    """The edges between a report's operations."""
    if len(report.superstep_variables) and len(report.superstep_variables) < _MOST_ACCESSES:
        return _told(report)
    return _guessed(report)


def _told(report: Report) -> Flows:
    table, places = report.superstep_variables, occurrences(report)
    low = np.searchsorted(table["superstep"], places.superstep)
    rows, owner = flat(low, np.searchsorted(table["superstep"], places.superstep + 1) - low)
    owned = places.op[owner] >= 0
    rows, owner = rows[owned], owner[owned]
    variable, op = table["variable"][rows].astype(np.int64), places.op[owner]
    order = np.lexsort((owner, variable))
    rows, variable, op = rows[order], variable[order], op[order]
    return _joined(variable, op, table["read_bytes"][rows], table["written_bytes"][rows])


def _joined(variable: Int64, op: Int64, read_bytes: Int64, written_bytes: Int64) -> Flows:
    """Edges from accesses in order of variables and time."""
    reads, writes = read_bytes > 0, written_bytes > 0
    begins = np.ones(len(variable), dtype=bool)
    begins[1:] = variable[1:] != variable[:-1]
    read_before = np.append(False, reads[:-1])[: len(variable)]
    starts = writes & (begins | reads | read_before)
    epoch = np.cumsum(starts)
    seen = epoch - starts
    before = np.maximum.accumulate(np.where(begins, seen, 0))
    # The last epoch of each variable, for what is read before it is written.
    last_row = np.append(np.flatnonzero(begins)[1:], len(variable)) - 1
    final = np.repeat(epoch[last_row], np.diff(np.append(last_row[::-1], -1)[::-1])) if len(variable) else epoch
    early = reads & (seen == before)
    wanted = np.where(early, final, seen)
    has = reads & (wanted > before)
    writers = _firsts(epoch[writes], op[writes], _MOST_WRITERS)
    reader_epoch, reader_op = wanted[has], op[has]
    low = np.searchsorted(writers[0], reader_epoch)
    count = np.searchsorted(writers[0], reader_epoch, side="right") - low
    at, owner = flat(low, count)
    source, target = writers[1][at], reader_op[owner]
    apart = source != target
    source, target, owner = source[apart], target[apart], owner[apart]
    read = np.flatnonzero(has)[owner]
    keys = np.stack([source, target, variable[read]], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    return Flows(
        source[first],
        target[first],
        variable[read][first],
        read_bytes[read][first].astype(np.int64),
        early[read][first],
        True,
    )


def _firsts(group: Int64, values: Int64, most: int) -> tuple[Int64, Int64]:
    """Distinct values of each group, at most so many of the last, in order of groups."""
    pairs = np.unique(np.stack([group, values], axis=1), axis=0)
    end = np.searchsorted(pairs[:, 0], pairs[:, 0], side="right")
    kept = end - np.arange(len(pairs)) <= most
    return pairs[kept, 0], pairs[kept, 1]


def _guessed(report: Report) -> Flows:
    """Edges from lifetimes, and the order of operations."""
    steps, variables = report.steps, report.variables
    op = steps["op"].astype(np.int64)
    first, last = variables["first_step"].astype(np.int64), variables["last_step"].astype(np.int64)
    lives = np.flatnonzero((first >= 0) & (last >= 0) & (first < len(steps)) & (last < len(steps)))
    source, target = op[first[lives]], op[last[lives]]
    apart = (source >= 0) & (target >= 0) & (source != target)
    lives, source, target = lives[apart], source[apart], target[apart]
    some = np.flatnonzero(op >= 0)
    _, at = np.unique(op[some], return_index=True)
    program = steps["program"][some[np.sort(at)]]
    chain = op[some[np.sort(at)]]
    follows = program[1:] == program[:-1]
    before, after = chain[:-1][follows], chain[1:][follows]
    size = variables["bytes"].astype(np.int64)[lives]
    return Flows(
        np.concatenate([source, before]),
        np.concatenate([target, after]),
        np.concatenate([lives, np.full(len(before), -1)]),
        np.concatenate([size, np.zeros(len(before), dtype=np.int64)]),
        np.zeros(len(lives) + len(before), dtype=bool),
        False,
    )
