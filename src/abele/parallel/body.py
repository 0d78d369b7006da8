"""The body of an update: what a program does with its micro-batches, one after the other or as a pipeline of stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from abele.graph import Program, Repeat, Tensor
from abele.graph import Sequence as Steps
from abele.parallel.lowering import Lowering
from abele.parallel.network import NetworkOp, Value


class StageSteps:
    """What one stage does with a micro-batch.

    Attributes:
        name: What the steps are called.
        entering: Inputs from the host come first.
        compute: The network's own ops.
        leaving: Sums, outputs and changes of state.
    """

    def __init__(self, name: str) -> None:
        self.entering = Steps(name="entering")
        self.compute = Steps()
        self.leaving = Steps(name="leaving")
        self.name = name

    @property
    def steps(self) -> Steps:
        """All of it, in order."""
        return Steps(*self.entering.steps, self.compute, *self.leaving.steps, name=self.name)


class Body(ABC):
    """Micro-batches of an update.

    Attributes:
        before: What comes once before them.
        after: What comes once after them.
        shares: What running means count for, in each stage that has any; see ``running_mean`` ops.
    """

    def __init__(self) -> None:
        self.shares: dict[StageSteps, tuple[Tensor, Tensor]] = {}
        self.before = Steps(name="before_micro_batches")
        self.after = Steps(name="after_micro_batches")

    @abstractmethod
    def stage_of(self, value: Value | None) -> StageSteps:
        """The steps that make a value; with None those of the last stage."""

    @abstractmethod
    def lower(self, to: Lowering, ops: Sequence[NetworkOp], sums: Sequence[NetworkOp]) -> None:
        """Lower what a micro-batch computes.

        Args:
            to: Where to.
            ops: The network's ops.
            sums: Ops that will follow, by :meth:`lower_sums`.
        """

    @abstractmethod
    def lower_sums(self, to: Lowering, sums: Sequence[NetworkOp]) -> None:
        """Lower what adds a micro-batch to sums; after :meth:`lower`."""

    @abstractmethod
    def advance_random_state(self, seed: Value, to: Lowering) -> None:
        """Let the next micro-batch draw other numbers."""

    @abstractmethod
    def program(self) -> Program:
        """All micro-batches of an update."""


def repeat(count: int, body: Program) -> Program:
    """``body`` so many times."""
    return body if count == 1 else Repeat(count, body)
