"""Run accounts: counts of how programs ran, kept beside the executable, which no run changes.

The executable says what each step costs and assumes what it cannot know: a while loop makes one trip, a branch goes its
first way, a vertex whose cost depends on data takes a slot for every element. A run tells what really happened. That is
kept apart, in an account, so that an executable can be shared by any number of engines and threads, and so that every
report says what it is of: ``executable.report_of(account)``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.compiler.superstep import Superstep
from abele.errors import EngineError
from abele.words import counted

if TYPE_CHECKING:
    from abele.compiler.cycles import ComputeCycles
    from abele.compiler.lower import Step


@dataclass(frozen=True, eq=False, slots=True)
class RunAccount:
    """Executions of steps, and costs of vertices that depend on data.

    Attributes:
        executions: Times that each step runs in one run of its program, int64[steps], read-only.
        assumed: True where that depends on data and no run has counted it, bool[steps], read-only.
        compute: Counted compute phases, by program and number of the superstep; all others are as the executable says.
    """

    executions: Int64
    assumed: npt.NDArray[np.bool_]
    compute: Mapping[tuple[int, int], ComputeCycles] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        self.executions.setflags(write=False)
        self.assumed.setflags(write=False)

    @staticmethod
    def of_assumptions(steps: Sequence[Step]) -> RunAccount:
        """The account of a program that has not been run."""
        return RunAccount(
            np.array([s.executions for s in steps], dtype=np.int64), np.array([s.is_assumed for s in steps], dtype=bool)
        )

    def with_executions(
        self,
        executions: Sequence[int] | Int64,
        steps: Sequence[Step],
        *,
        programs: Collection[int] | None = None,
    ) -> RunAccount:
        """An account with other numbers of executions.

        Args:
            executions: Times that each step ran in one run of its program, by ``step.index``, int64[steps].
            steps: The executable's steps.
            programs: Programs that ran; the steps of others are assumed as before. All, when left out.

        Raises:
            EngineError: There is not one number, 0 or more, for each step.
        """
        counts = np.array(executions, dtype=np.int64)
        if counts.shape != self.executions.shape:
            raise EngineError(f"executions of {counted(counts.size, 'step')} for an executable of {len(steps)}")
        if (counts < 0).any():
            raise EngineError(f"a step cannot be executed {counts.min()} times")
        other = np.array([programs is not None and s.program not in programs for s in steps], dtype=bool)
        return replace(self, executions=counts, assumed=self.assumed & other)

    def with_compute(self, compute: Mapping[tuple[int, int], ComputeCycles]) -> RunAccount:
        """An account with further counted compute phases, by program and number of the superstep."""
        return replace(self, compute=MappingProxyType({**self.compute, **compute}))

    def supersteps(self, program: int, plan: Sequence[Superstep]) -> Sequence[Superstep]:
        """The supersteps of an executable with the compute phases that a program was counted to have."""
        mine = {number: found for (of, number), found in self.compute.items() if of == program}
        return [replace(s, compute=mine[s.index]) if s.index in mine else s for s in plan] if mine else plan
