"""Steps of a run: the time of each execution, its IPUs, and the work of each tile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.pva.missing import missing
from abele.pva.program_nodes import ProgramNodes
from abele.pva.programs import Program
from abele.pva.sequences import LazySequence
from abele.report import Text
from abele.report.block_runs import meets_host

# Executions of steps in a run, as columns: spans of sync groups put together step by step.

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


@dataclass(frozen=True, slots=True)
class CycleRange:
    """A cycle that may differ from sync group to sync group.

    Attributes:
        min: That of the first.
        max: That of the last.
    """

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class ActiveCycles:
    """From when to when an IPU executes a step; zeros if it does not take part."""

    _begin: CycleRange
    _end: CycleRange

    @property
    def cyclesFrom(self) -> CycleRange:
        """Cycles at which tiles start it."""
        return self._begin

    @property
    def cyclesTo(self) -> CycleRange:
        """Cycles at which tiles end it."""
        return self._end


@dataclass(frozen=True, slots=True)
class StepIpu:
    """Execution of a step on one IPU.

    Attributes:
        id: The IPU.
        cycles: Cycles from its start there to its end; 0 if the IPU does not take part.
    """

    id: int
    cycles: int
    _active: ActiveCycles

    @property
    def activeCycles(self) -> ActiveCycles:
        """Cycles of its begin and of its end."""
        return self._active


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Execution of a step on one sync group.

    Attributes:
        name: The group.
        begin: Cycle at which it starts there.
        end: Cycle at which it ends there.
    """

    name: str
    begin: int
    end: int


class RunContext:
    """Context that the steps of a program's runs share.

    Args:
        nodes: The program tree.
        program: Index of the control program.
    """

    def __init__(self, nodes: ProgramNodes, program: int) -> None:
        self.nodes = nodes
        self.program = program
        self.executions = Executions(nodes, program)
        self.ipu_of_group = ipu_of_groups(nodes)
        self.num_ipus = max(int(nodes.report.target["num_ipus"]), 1)

    @cached_property
    def last_run(self) -> int:
        """Number of the last run of the program that ended, from 1 on; 0 for none."""
        runs = self.nodes.report.runs
        mine = np.flatnonzero((runs["program"] == self.program) & (runs["cycles"] > 0))
        return int(mine[-1]) + 1 if len(mine) else 0

    @cached_property
    def data_decides(self) -> bool:
        """True if what the program does in a run depends on data."""
        steps = self.nodes.report.steps
        basis = steps.columns["basis"]
        assert isinstance(basis, Text)
        words = np.array([word in ("assumed", "counted") for word in basis.words] or [False], bool)
        return bool((words[basis.codes] & (steps["program"] == self.program)).any())

    @cached_property
    def is_wait(self) -> npt.NDArray[np.bool_]:
        """True for steps at which several sync groups meet and some may only wait for the host, bool[steps]."""
        found, table = self.executions, self.nodes.report.spans
        waits = meets_host(self.nodes.report)
        several = np.zeros(len(waits), bool)
        step, group = table["step"][found.spans], table["group"][found.spans]
        pairs = np.unique(step.astype(np.int64) * (len(self.ipu_of_group) + 1) + group)
        met, count = np.unique(pairs // (len(self.ipu_of_group) + 1), return_counts=True)
        several[met[count > 1]] = True
        return waits & several


class Step:
    """One execution of a step in a run."""

    __slots__ = ("_context", "_origin", "_place")

    def __init__(self, context: RunContext, place: int, origin: int) -> None:
        self._context = context
        self._place = place
        self._origin = origin

    @property
    def row(self) -> int:
        """Row of the report's steps table."""
        return int(self._context.executions.step[self._place])

    @property
    def program(self) -> Program:
        """The program that it executes."""
        nodes = self._context.nodes
        return Program(nodes, int(nodes.of_step[self.row]))

    @property
    def cycles(self) -> int:
        """Cycles from its start on the first IPU to its end on the last."""
        found = self._context.executions
        return int(found.end[self._place] - found.begin[self._place])

    @property
    def cyclesFrom(self) -> int:
        """Cycle at which it starts; runs are counted one behind the other."""
        return int(self._context.executions.begin[self._place]) + self._origin

    @property
    def cyclesTo(self) -> int:
        """Cycle at which it ends."""
        return int(self._context.executions.end[self._place]) + self._origin

    @property
    def ipus(self) -> LazySequence[StepIpu]:
        """Its execution on each IPU of the target.

        Raises:
            MissingDatumError: It runs on a sync group of which the report does not say on which IPUs its tiles are.
        """
        group, begin, end = self._spans()
        ipu = self._context.ipu_of_group[group]
        if (ipu == UNKNOWN_IPU).any():
            name = self._context.nodes.report.groups["name"][group[ipu == UNKNOWN_IPU][0]]
            raise missing(f"on which IPUs the tiles of sync group {name!r} are", remedy="step.groups")

        def make(number: int) -> StepIpu:
            at = ipu == number
            if not at.any():
                return StepIpu(number, 0, ActiveCycles(CycleRange(0, 0), CycleRange(0, 0)))
            first, last = begin[at], end[at]
            active = ActiveCycles(_range(first), _range(last))
            return StepIpu(number, int(last.max() - first.min()), active)

        return LazySequence(self._context.num_ipus, make, "IPU")

    @property
    def groups(self) -> LazySequence[StepGroup]:
        """Its execution on each sync group that it keeps busy."""
        group, begin, end = self._spans()
        names = self._context.nodes.report.groups["name"]
        return LazySequence(
            len(group), lambda k: StepGroup(str(names[group[k]]), int(begin[k]), int(end[k])), "sync group"
        )

    @property
    def cyclesByTile(self) -> Int64:
        """Cycles that each tile computes in it, int64[tiles]."""
        return self._context.nodes.report.step_by_tile("compute_cycles", self.row)

    def _spans(self) -> tuple[Int64, Int64, Int64]:
        """Group, begin and end of its spans, int64[n] each."""
        found, table = self._context.executions, self._context.nodes.report.spans
        rows = found.spans[found.first_span[self._place] : found.first_span[self._place + 1]]
        begin = table["start_cycle"][rows] + self._origin
        return table["group"][rows].astype(np.int64), begin, begin + table["cycles"][rows]

    def __repr__(self) -> str:
        return f"Step({self.program.name!r}, {self.cycles:,} cycles from {self.cyclesFrom:,})"


def _range(values: Int64) -> CycleRange:
    return CycleRange(int(values.min()), int(values.max()))


class RunSteps(LazySequence[Step]):
    """The executions of steps in a run: objects one by one, or arrays of all.

    Args:
        context: The program's.
        origin: Cycle at which the run starts.
    """

    def __init__(self, context: RunContext, origin: int) -> None:
        super().__init__(len(context.executions), lambda place: Step(context, place, origin), "step")
        self._context = context
        self._origin = origin

    @property
    def isWhole(self) -> bool:
        """True if the report holds all executions of the run, and not only the first ones."""
        return self._context.executions.is_whole

    @property
    def stepRows(self) -> Int64:
        """Row of the report's steps table of each, int64[n]."""
        return self._context.executions.step[self.rows]

    @property
    def cyclesFrom(self) -> Int64:
        """Start of each execution in cycles, int64[n]."""
        return self._context.executions.begin[self.rows] + self._origin

    @property
    def cyclesTo(self) -> Int64:
        """End of each execution in cycles, int64[n]."""
        return self._context.executions.end[self.rows] + self._origin

    @property
    def cycles(self) -> Int64:
        """Cycles that each execution takes, int64[n]."""
        return self.cyclesTo - self.cyclesFrom


class AllSteps(LazySequence[Step]):
    """The steps of several runs, one run after the other.

    Args:
        runs: The steps of each run.
    """

    def __init__(self, runs: list[RunSteps]) -> None:
        ends = np.cumsum([len(steps) for steps in runs], dtype=np.int64)

        def make(place: int) -> Step:
            run = int(np.searchsorted(ends, place, side="right"))
            steps = runs[run]
            return steps[place - (int(ends[run]) - len(steps))]

        super().__init__(int(ends[-1]) if len(ends) else 0, make, "step")
