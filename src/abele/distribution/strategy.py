"""The body of an update: what a program does with its micro-batches, one after the other or as a pipeline of stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from abele.distribution.gradient_sums import GradientSums
from abele.distribution.lowering import Lowering
from abele.graph import Program, Repeat, Steps, Tensor
from abele.network.ir import NetworkOp, Value


class Exits(NamedTuple):
    """Steps of a stage from which results for the host are taken.

    Attributes:
        leaving: Steps of the stage that follow its ops.
        to_host: Steps that send to the host; the same, or later ones.
    """

    leaving: Steps
    to_host: Steps

    @property
    def are_apart(self) -> bool:
        """True if what leaves may have changed by the time it is sent."""
        return self.leaving is not self.to_host


class StageSteps:
    """Steps of one stage for a micro-batch.

    Attributes:
        name: Name of the steps.
        entering: Inputs from the host come first.
        compute: The network's own ops.
        leaving: Sums, outputs and changes of state.
        from_host: Copies from streams; part of what enters, unless the body has them before all stages.
        to_host: Copies to streams; part of what leaves, unless the body has them after all stages.
        loading: Steps that bring the next micro-batch's inputs to IO tiles.
        handing_over: Steps that bring the last micro-batch's outputs to IO tiles.
        storing: Steps with which IO tiles send to the host.
    """

    def __init__(self, name: str) -> None:
        self.entering = Steps(name="entering")
        self.compute = Steps()
        self.leaving = Steps(name="leaving")
        self.from_host = self.entering
        self.to_host = self.leaving
        self.loading = Steps(name="loading")
        self.handing_over = Steps(name="handing_over")
        self.storing = Steps(name="storing")
        self.name = name

    @property
    def steps(self) -> Steps:
        """All steps of the stage, in order."""
        return Steps(*self.entering.steps, self.compute, *self.leaving.steps, name=self.name)

    @property
    def exits(self) -> Exits:
        """Steps at which outputs are taken."""
        return Exits(self.leaving, self.to_host)

    @property
    def has_traffic(self) -> bool:
        """True if IO tiles load or store something."""
        return bool(self.loading.steps or self.storing.steps)


class Body(ABC):
    """Micro-batches of an update.

    Attributes:
        before: Steps that run once before them.
        after: Steps that run once after them.
        shares: Shares of running means, in each stage that has any; see ``running_mean`` ops.
    """

    def __init__(self) -> None:
        self.shares: dict[StageSteps, tuple[Tensor, Tensor]] = {}
        self.before = Steps(name="before_micro_batches")
        self.after = Steps(name="after_micro_batches")

    @abstractmethod
    def stage_of(self, value: Value | None) -> StageSteps:
        """The steps that make a value; with None those of the last stage."""

    @abstractmethod
    def lower(self, to: Lowering, ops: Sequence[NetworkOp], sums: GradientSums) -> None:
        """Lower what a micro-batch computes.

        Args:
            to: Lowering of the stage.
            ops: The network's ops.
            sums: Sums to add to, at once or by :meth:`lower_sums`.
        """

    @abstractmethod
    def lower_sums(self, to: Lowering, sums: Sequence[NetworkOp]) -> None:
        """Lower the remaining additions to sums; after :meth:`lower`."""

    @abstractmethod
    def advance_random_state(self, seed: Value, to: Lowering) -> None:
        """Let the next micro-batch draw other numbers."""

    @abstractmethod
    def program(self) -> Program:
        """All micro-batches of an update."""


def beside_traffic(run: Iterable[Program], stages: Sequence[StageSteps], *, first: set[int], last: set[int]) -> Steps:
    """A run of stages, beside which IO tiles store results from before it and load inputs for after it.

    IO tiles wait for no other tile between what is handed over and what enters next; so where the steps of a program
    have them last, the machine has them at the same time as the run.

    Args:
        run: The calls of the stages.
        stages: The stages.
        first: Numbers, in ``stages``, of those that run their first micro-batch.
        last: Numbers of those that run their last one.
    """
    before = [stage for number, stage in enumerate(stages) if number not in first]
    after = [stage for number, stage in enumerate(stages) if number not in last]
    return Steps(
        *(step for stage in before for step in stage.handing_over.steps),
        *run,
        *(step for stage in before for step in stage.storing.steps),
        *(step for stage in after for step in stage.loading.steps),
    )


def around_traffic(program: Program, stages: Sequence[StageSteps]) -> Program:
    """A program of all micro-batches with loads before them and stores after them, without overlap."""
    loading = [step for stage in stages for step in stage.loading.steps]
    storing = [step for stage in stages for part in (stage.handing_over, stage.storing) for step in part.steps]
    return Steps(*loading, program, *storing) if loading or storing else program


def repeat(count: int, body: Program) -> Program:
    """``body`` so many times."""
    return body if count == 1 else Repeat(count, body)
