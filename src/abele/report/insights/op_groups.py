"""Operations that one line of the user's source made, as one: the same layer twenty-four times is one cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.arrays import Bool, Float64, Int64
from abele.report.insights.model import SourceLine
from abele.report.insights.program_steps import ProgramSteps, text_at
from abele.report.relations import summed_by
from abele.report.text_column import Text


@dataclass(frozen=True, eq=False)
class OpGroups:
    """Operations of one name and kind on one line.

    Attributes:
        steps: The steps of the program.
    """

    steps: ProgramSteps

    @cached_property
    def of_op(self) -> Int64:
        """Group of each row of the ops table, int64[ops]; those of unknown lines are by themselves."""
        ops = self.steps.report.ops
        if not len(ops):
            return np.zeros(0, dtype=np.int64)
        codes = []
        for name in ("name", "kind", "file"):
            column = ops.columns[name]
            assert isinstance(column, Text)
            codes.append(column.codes.astype(np.int64))
        line = ops["line"].astype(np.int64)
        alone = np.where(line > 0, -1, np.arange(len(ops)))
        return np.unique(np.stack([*codes, line, alone]), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)

    @cached_property
    def of_step(self) -> Int64:
        """Group of each step, -1 for steps without an operation, int64[steps]."""
        if not len(self.of_op):
            return np.full(len(self.steps.rows), -1, dtype=np.int64)
        return np.where(self.steps.op >= 0, self.of_op[self.steps.op], -1)

    def largest(self, side: str, count: int) -> list[OpGroup]:
        """The groups with most cycles of a side on the critical path, at most ``count``."""
        cycles = self.steps.on_path(side)
        total = summed_by(self.of_step, cycles, 0)
        order = np.argsort(-total, kind="stable")[:count]
        return [OpGroup(self.steps, self.of_step == n, cycles) for n in order.tolist() if total[n] > 0]


@dataclass(frozen=True, eq=False)
class OpGroup:
    """Operations that belong together, and the cost of one side of them.

    Attributes:
        steps: The steps of the program.
        mask: True for the steps that are theirs, bool[steps].
        cycles: Cycles of each step on the critical path, of the side, float64[steps].
    """

    steps: ProgramSteps
    mask: Bool
    cycles: Float64

    @cached_property
    def at(self) -> Int64:
        """Their steps that cost something, the most expensive first, as places among those of the program."""
        mine = np.flatnonzero(self.mask & (self.cycles > 0))
        return mine[np.argsort(-self.cycles[mine], kind="stable")].astype(np.int64)

    @cached_property
    def total(self) -> int:
        """Cycles of all."""
        return round(float(self.cycles[self.mask].sum()))

    @property
    def worst(self) -> int:
        """The most expensive step, as a place among those of the program."""
        return int(self.at[0])

    @property
    def worst_row(self) -> int:
        """The same as a row of the steps table."""
        return int(self.steps.rows[self.worst])

    @property
    def op(self) -> int:
        """Row of its operation."""
        return int(self.steps.op[self.worst])

    @property
    def kind(self) -> str:
        """Kind of the operation."""
        return text_at(self.steps.report.ops, "kind", self.op) if self.op >= 0 else ""

    @property
    def title(self) -> str:
        """The operation, and in how many places there is one."""
        places = len(np.unique(self.steps.op[self.at]))
        title = self.steps.title_of(self.op, self.worst_row)
        return title if places == 1 else f"{title} and {places - 1:,} more"

    @property
    def where(self) -> SourceLine | None:
        """The user's line."""
        return self.steps.place_of(self.op)

    @property
    def share(self) -> float:
        """Part of the run."""
        return self.total / max(self.steps.run_cycles, 1)
