"""Costs of steps in a run, by part, and their supersteps: what several views add up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Float64, Int64
from abele.report import Report
from abele.report.text_column import Column, Text
from abele.viewer.open_reports import Opened

PARTS = ("compute", "arrange", "exchange", "replicas", "sync", "host", "memory")
"""Parts of a run's cycles, in the order in which the page stacks them; its colours are known by these names."""

_KIND_PARTS = {"compute": 0, "exchange": 2, "copy": 1, "stream": 5, "control": 4}


@dataclass(frozen=True)
class StepCosts:
    """Costs of steps in one run of their programs.

    Attributes:
        cycles: Cycles of all executions by part, float64[steps, parts].
        part: The part whose colour a step has, uint8[steps].
        sums: Sums of ``cycles`` of the rows before each, float64[steps + 1, parts].
    """

    cycles: Float64
    part: npt.NDArray[np.uint8]
    sums: Float64

    @property
    def total(self) -> Float64:
        """Cycles of all executions, float64[steps]."""
        return np.asarray(self.cycles.sum(axis=1))

    def between(self, first: Int64, end: Int64) -> Float64:
        """Cycles by part of rows ``first`` to ``end``, float64[n, parts]."""
        return np.asarray(self.sums[end] - self.sums[first])


def step_costs(opened: Opened) -> StepCosts:
    """The costs of a report's steps."""
    return opened.once("costs of steps", lambda: costs_of(opened.report))


def costs_of(report: Report) -> StepCosts:
    """The costs of a report's steps: each part of a step goes where its kind and its partner say.

    Copies on a tile are arranging, exchanges between replicas and traffic of streaming memory are told apart.
    """
    steps = report.steps
    kind, partner = steps.columns["kind"], steps.columns["partner"]
    executions = steps["executions"].astype(np.float64)
    compute, exchange, sync, host = (
        steps[f"{name}_cycles"] * executions for name in ("compute", "exchange", "sync", "host")
    )
    copies, replicas, memory = holds(kind, "copy"), holds(partner, "replicas"), holds(partner, "streaming memory")
    zero = np.zeros_like(compute)
    cycles = np.stack(
        [
            np.where(copies, zero, compute),
            np.where(copies, compute, zero),
            np.where(replicas | memory, zero, exchange),
            np.where(replicas, exchange, zero),
            sync,
            np.where(memory, zero, host),
            np.where(memory, host + exchange, zero),
        ],
        axis=1,
    )
    part = np.zeros(len(steps), dtype=np.uint8)
    for name, number in _KIND_PARTS.items():
        part[holds(kind, name)] = number
    part[replicas] = PARTS.index("replicas")
    part[memory] = PARTS.index("memory")
    return StepCosts(cycles, part, np.concatenate([np.zeros((1, len(PARTS))), np.cumsum(cycles, axis=0)]))


def holds(column: Column, word: str) -> npt.NDArray[np.bool_]:
    """True for rows of a text column that hold a word, bool[rows]."""
    assert isinstance(column, Text)
    return np.asarray(column.codes == (column.words.index(word) if word in column.words else -1))


@dataclass(frozen=True)
class Occurrences:
    """Supersteps in the order of the steps table: rows of one operation and number that follow each other are one.

    Attributes:
        superstep: Its number, int64[n].
        first: Its first row, int64[n].
        last: Its last row, int64[n].
        op: Row of its operation, −1 for none, int64[n].
        executions: In a run, int64[n].
    """

    superstep: Int64
    first: Int64
    last: Int64
    op: Int64
    executions: Int64


def occurrences(report: Report) -> Occurrences:
    """The supersteps that steps are of; steps that are of none are left out."""
    steps = report.steps
    superstep = steps["superstep"].astype(np.int64)
    starts = np.ones(len(steps), dtype=bool)
    starts[1:] = superstep[1:] != superstep[:-1]
    for column in ("program", "op"):
        starts[1:] |= steps[column][1:] != steps[column][:-1]
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(steps)) - 1
    told = superstep[first] >= 0
    first, last = first[told], last[told]
    return Occurrences(
        superstep[first], first, last, steps["op"].astype(np.int64)[last], steps["executions"].astype(np.int64)[last]
    )
