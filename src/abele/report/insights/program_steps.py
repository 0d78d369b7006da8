"""Steps of one program as arrays: executions on the chain that bounds the run, and costs.

Only what is on the critical path takes time off the run when it gets faster. All cycles here are therefore those on
that path: a step that is executed eight times of which the path holds two counts twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Bool, Float64, Int64
from abele.report.insights.model import SourceLine
from abele.report.rearrangements import WRITTEN_ANEW
from abele.report.relations import rows_of, sums_of
from abele.report.schema import PHASE_TILES
from abele.report.table import Table
from abele.report.text import full_name
from abele.report.text_column import Text
from abele.words import visible

if TYPE_CHECKING:
    from abele.report.report import Report


SIDES = ("compute", "arrange", "exchange", "replicas", "sync", "host", "streaming memory")
"""Kinds of cycles of a step."""
MOST_TILE_RUNS = 4_000_000
"""Rows of ``phase_tiles`` up to which the slowest or busiest tile is looked up.

A column of a file is checked as a whole, which takes seconds where there are more.
"""
_ANEW = re.compile("|".join(WRITTEN_ANEW))


def text_at(table: Table, column: str, row: int) -> str:
    """One string of a column of text, without making the strings of all rows."""
    found = table.columns[column]
    return found.words[int(found.codes[row])] if isinstance(found, Text) else str(found[row])


def source_line(table: Table, row: int) -> SourceLine | None:
    """Source line of a row of a table with ``file`` and ``line``; None where it has none."""
    file = text_at(table, "file", row)
    return SourceLine(visible(file), int(table["line"][row])) if file else None


@dataclass(frozen=True, eq=False)
class ProgramSteps:
    """Steps of one program of a report.

    Attributes:
        report: The report.
        program: Index of the program.
    """

    report: Report
    program: int

    @cached_property
    def rows(self) -> Int64:
        """Rows of the steps table, int64[steps]."""
        return np.flatnonzero(self.report.steps["program"] == self.program).astype(np.int64)

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of the steps table, [steps]."""
        return np.asarray(self.report.steps[name][self.rows])

    @cached_property
    def run_cycles(self) -> int:
        """Cycles of a run."""
        return int(self.report.cycles(self.program).total)

    @cached_property
    def has_path(self) -> bool:
        """True if the report holds the critical path of the program."""
        return bool((self.report.critical["program"] == self.program).any())

    @cached_property
    def executions(self) -> Float64:
        """Executions of each step in a run, float64[steps]."""
        return self.column("executions").astype(np.float64)

    @cached_property
    def times(self) -> Float64:
        """Executions of each step that are on the critical path, float64[steps]; all where the report has no path."""
        if not self.has_path:
            return self.executions
        mine = self.report.critical["program"] == self.program
        on_path = np.zeros(len(self.report.steps))
        np.add.at(on_path, self.report.critical["step"][mine], self.report.critical["cycles"][mine])
        # Never more than there are: a damaged table must not make cycles.
        times: Float64 = np.minimum(on_path[self.rows] / np.maximum(self.column("cycles"), 1), self.executions)
        return times

    @cached_property
    def op(self) -> Int64:
        """Row in the ops table of each step, -1 for none, int64[steps]."""
        return self.column("op").astype(np.int64)

    @cached_property
    def is_copy(self) -> Bool:
        """True for steps that copy data on tiles, bool[steps]."""
        return np.asarray(self.column("kind") == "copy", dtype=bool)

    @cached_property
    def is_written_anew(self) -> Bool:
        """True for compute sets that write operands or results of products in another order, bool[steps]."""
        if not len(self.report.ops) or not len(self.rows):
            return np.zeros(len(self.rows), dtype=bool)
        column = self.report.steps.columns["name"]
        assert isinstance(column, Text)
        # Few names hold one of these words at all.
        maybe = [n for n, word in enumerate(column.words) if _ANEW.search(word)]
        last = [column.words[n].split(":", 1)[0].rsplit("/", 1)[-1] for n in maybe]
        anew = np.zeros(max(len(column.words), 1), dtype=bool)
        anew[[n for n, name in zip(maybe, last, strict=True) if name in WRITTEN_ANEW]] = True
        is_call = np.asarray(self.report.ops["kind"] != "compute set", dtype=bool)
        found: Bool = anew[column.codes[self.rows]] & (self.op >= 0) & is_call[self.op]
        return found

    @cached_property
    def arranges(self) -> Bool:
        """True for steps that only bring data into another order, bool[steps]."""
        return self.is_copy | self.is_written_anew

    @cached_property
    def sides(self) -> dict[str, Float64]:
        """Cycles of one execution of each step by ``SIDES``, float64[steps] each."""
        compute, exchange, host, sync = (
            self.column(f"{part}_cycles").astype(np.float64) for part in ("compute", "exchange", "host", "sync")
        )
        partner = self.column("partner")
        between, is_memory = partner == "replicas", partner == "streaming memory"
        nothing = np.zeros(len(self.rows))
        return {
            "compute": np.where(self.arranges, nothing, compute),
            "arrange": np.where(self.arranges, compute, nothing),
            "exchange": np.where(between, nothing, exchange),
            "replicas": np.where(between, exchange, nothing),
            "sync": sync,
            "host": np.where(is_memory, nothing, host),
            "streaming memory": np.where(is_memory, host, nothing),
        }

    @cached_property
    def tiles(self) -> Int64:
        """Tiles of the sync groups that each step keeps busy, int64[steps]; all tiles where there are no groups."""
        report = self.report
        every = report.memory.num_tiles
        found = np.zeros(len(report.steps), dtype=np.int64)
        if len(report.step_groups):
            before = np.concatenate([[0], np.cumsum(report.groups["tiles"].astype(np.int64))])
            first = report.step_groups["first_group"].astype(np.int64)
            end = np.minimum(first + report.step_groups["num_groups"], len(report.groups))
            np.add.at(found, report.step_groups["step"], before[end] - before[first])
        mine = found[self.rows]
        return np.where(mine > 0, mine, every)

    @cached_property
    def balance(self) -> Float64:
        """Mean tile / slowest tile of each step that computes, 1 for others, float64[steps]."""
        balance = np.clip(self.column("tile_balance").astype(np.float64), 0.0, 1.0)
        return np.where(self.column("compute_cycles") > 0, balance, 1.0)

    @cached_property
    def active_tiles(self) -> Int64:
        """Tiles with something to compute, int64[steps]."""
        return self.column("active_tiles").astype(np.int64)

    @cached_property
    def mean_of_active(self) -> Float64:
        """Compute cycles of one execution on the mean of the tiles that compute, float64[steps]."""
        compute = self.column("compute_cycles")
        spread = self.balance * self.tiles / np.maximum(self.active_tiles, 1)
        return np.asarray(compute * np.minimum(spread, 1.0), dtype=np.float64)

    def tile_runs(self, row: int) -> Table:
        """Cycles and bytes of one execution of a step by tile: rows of ``phase_tiles``, disjoint runs of tiles.

        Args:
            row: Row in the steps table.
        """
        table, phase = self.report.phase_tiles, int(self.report.steps["phase"][row])
        if phase < 0 or not self.has_tile_runs:
            return PHASE_TILES.empty()
        return table.select(rows_of(table, "phase", phase))

    def vertices_of(self, row: int) -> list[tuple[str, str, int]]:
        """Codelet, its kind and cycles of its slowest vertex, for each codelet that a step runs; none where unknown.

        Args:
            row: Row in the steps table.
        """
        report, superstep = self.report, int(self.report.steps["superstep"][row])
        found = report.vertices.select(rows_of(report.vertices, "superstep", superstep))
        codelets = report.codelets.select(found["codelet"])
        names, kinds, cycles = codelets["name"].tolist(), codelets["kind"].tolist(), found["max_cycles"].tolist()
        return list(zip(names, kinds, cycles, strict=True))

    @property
    def has_tile_runs(self) -> bool:
        """True if the report holds the work of each tile in a step."""
        return 0 < len(self.report.phase_tiles) <= MOST_TILE_RUNS

    def slowest_tile(self, row: int) -> int:
        """The tile that computes longest in one execution of a step; -1 where that cannot be looked up."""
        runs = self.tile_runs(row)
        return int(runs["first_tile"][int(np.argmax(runs["compute_cycles"]))]) if len(runs) else -1

    @cached_property
    def group_rows(self) -> Int64:
        """Rows of the groups table of the program, int64[groups]."""
        return np.flatnonzero(self.report.groups["program"] == self.program).astype(np.int64)

    def at_most(self, gain: float, step: int) -> int:
        """A gain on the steps around ``step``, no more than the other sync groups leave: the busiest of them bounds.

        Args:
            gain: Cycles of the run.
            step: Row in the steps table.
        """
        report, mine = self.report, self.group_rows
        gain = max(min(gain, self.run_cycles), 0)
        if len(mine) < 2 or step < 0:
            return int(gain)
        relation = report.step_groups
        busy = report.groups["busy_cycles"].astype(np.int64)
        other = np.zeros(len(report.groups), dtype=bool)
        other[mine] = True
        for row in np.flatnonzero(relation["step"] == step).tolist():
            first = int(relation["first_group"][row])
            other[first : first + int(relation["num_groups"][row])] = False
        return int(max(min(gain, self.run_cycles - int(busy[other].max(initial=0))), 0))

    @cached_property
    def even_workers(self) -> Float64:
        """Compute cycles of one execution if each worker of each active tile had the same to do, float64[steps].

        NaN where the report does not hold the vertices of a step, or their cycles are assumed.
        """
        report, superstep, vertices = self.report, self.column("superstep"), self.report.vertices
        workers = float(report.target.get("num_workers", 0))
        if not len(vertices) or not workers:
            return np.full(len(self.rows), np.nan)
        single = np.asarray(report.codelets["kind"] == "vertex", dtype=bool)[vertices["codelet"]]
        # Six single-worker vertices of a tile take as long as one.
        each = vertices["cycles"] / np.where(single, workers, 1.0)
        total = sums_of(vertices, "superstep", each, superstep)
        assumed = sums_of(vertices, "superstep", vertices["assumed"], superstep) > 0
        return np.where(assumed | (total <= 0), np.nan, total) / np.maximum(self.active_tiles, 1)

    def on_path(self, side: str) -> Float64:
        """Cycles of each step on the critical path that go to a side, float64[steps]."""
        return self.times * self.sides[side]

    def title_of(self, op: int, step: int) -> str:
        """An operation with its path; the step's name where there is none."""
        if op < 0:
            return visible(text_at(self.report.steps, "name", step)) if step >= 0 else "steps without an operation"
        path, name = text_at(self.report.ops, "path", op), text_at(self.report.ops, "name", op)
        return visible(full_name(path, name))

    def place_of(self, op: int) -> SourceLine | None:
        """The user's line of an operation."""
        return source_line(self.report.ops, op) if op >= 0 else None
