"""The body of an update: what a program does with its micro-batches, one after the other or as a pipeline of stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from abele.distribution.lowering import Lowering
from abele.graph import Call, Graph, Program, Repeat, Steps, Tensor
from abele.network.ir import Network, NetworkOp, Value
from abele.network.locations import TensorLocation
from abele.network.registry import rule_of
from abele.numerics import f32
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1
from abele.poplibs.poputil.layout import clone

# Sums of gradients over micro-batches: where they lie, and when gradients are added to them.
#
# A gradient is added as soon as it is there, so that it dies before the backward pass goes on: to add all of them
# behind it would keep as much as the weights besides. What cannot be added at once is left for the end of the
# micro-batch: to sums in streaming memory, which come part by part, and to those of parameters of which nothing has
# decided yet how they lie.
#
# A product or an update of rows whose result nothing else reads adds to the sum itself, so that a gradient as large as
# the weights never has a tensor of its own: that of GPT-2 small's words takes 52 KB of each tile.

_AT_ONCE = ("accumulate", "add_to_momentum")
"""Kinds of op that add a gradient as soon as it is there."""


class GradientSums:
    """Sums to which the micro-batches of an update add.

    Args:
        net: The network.
        graph: Graph of the sums' variables.
        ops: The ops that add to sums, in order.
        location: Place of the sums.

    Attributes:
        ops: All of them.
        left: Those that are still to be lowered.
    """

    def __init__(self, net: Network, graph: Graph, ops: Sequence[NetworkOp], location: TensorLocation) -> None:
        self.ops = tuple(ops)
        self.left = list(ops)
        self._graph = graph
        self._entering = {*net.accumulators}
        self._parameters = {gradient: parameter for parameter, gradient in net.gradients.items()}
        for op in reversed(ops):
            # Several stages may add to one sum, each to what the one before it has left.
            if op.inputs[0] not in self._entering:
                self._parameters[op.inputs[0]] = self._parameters[op.output]
        self._leaves = {*net.leaves}
        self._waiting: dict[Value, list[NetworkOp]] = {}
        for op in ops:
            if op.kind in _AT_ONCE and not location.is_off_chip(op.inputs[0].size):
                self._waiting.setdefault(op.inputs[1], []).append(op)

    def lower(self, to: Lowering, op: NetworkOp) -> None:
        """Lower an op, and add what it makes to its sums, here and now, where that can be done."""
        if not self._lower_onto(to, op):
            to.lower([op], settle=False)
            self._add(to, op)

    def _lower_onto(self, to: Lowering, made: NetworkOp) -> bool:
        """Lower an op whose only result nothing but one sum reads so that it adds to that itself, if it can."""
        sums = [op for value in made.outputs for op in self._waiting.get(value, ())]
        if len(made.outputs) != 1 or len(sums) != 1 or sums[0].kind != "accumulate" or to.remote is not None:
            return False
        (op,), value = sums, made.output
        wanted = value in self._leaves or not to.is_read_once(value)
        if wanted or not rule_of(made).adds_to_sums or not self._can_add(to, op, made):
            return False
        self._bind(to, op)
        total = to[op.inputs[0]]
        to.lower_onto(made, total, float(op.attrs["scale"]))
        to.bind(op.output, total)
        del self._waiting[value]
        self.left.remove(op)
        return True

    def _add(self, to: Lowering, made: NetworkOp) -> None:
        for op in [op for value in made.outputs for op in self._waiting.pop(value, ())]:
            if self._can_add(to, op, made):
                self._bind(to, op)
                to.lower([op], settle=False)
                self.left.remove(op)

    def _can_add(self, to: Lowering, op: NetworkOp, made: NetworkOp) -> bool:
        """True if the sum of ``op`` lies on the IPU of what ``made`` has made, and it is known how."""
        total = op.inputs[0]
        known = self._parameters[op.output] in to if total in self._entering else total in to
        return known and op.place == made.place

    def bind(self, to: Lowering) -> None:
        """Make the variables that are not there yet, each laid out like its parameter."""
        for op in self.ops:
            self._bind(to, op)

    def _bind(self, to: Lowering, op: NetworkOp) -> None:
        total = op.inputs[0]
        if total not in self._entering or total in to:
            return
        if op.kind == "add_counts":
            graph = to.graph_of(total.place)
            to.bind(total, graph.map(graph.variable(f32, total.shape, name=total.name), 0))
        else:
            made = clone(self._graph, to[self._parameters[op.output]], total.name, total.dtype)
            if op.kind == "add_to_momentum":
                self._graph.initialise(made, 0.0)  # A momentum, which lasts.
            to.bind(total, made)


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


# Micro-batches one after the other: each goes through the whole network.


class SerialBody(Body):
    """One micro-batch after the other.

    Args:
        graph: Graph of the program.
        count: Number of micro-batches per update.
    """

    def __init__(self, graph: Graph, count: int) -> None:
        super().__init__()
        self._graph = graph
        self._count = count
        self._stage = StageSteps("micro_batch")

    def stage_of(self, value: Value | None) -> StageSteps:
        """The one there is."""
        return self._stage

    def lower(self, to: Lowering, ops: Sequence[NetworkOp], sums: GradientSums) -> None:
        """All ops in order."""
        to.announce([*ops, *sums.ops])
        with to.into(self._stage.compute):
            for op in ops:
                sums.lower(to, op)
            to.settle()

    def lower_sums(self, to: Lowering, sums: Sequence[NetworkOp]) -> None:
        """All in order."""
        to.shares = self.shares.get(self._stage)
        assert to.sums is not None
        with to.into(self._stage.leaving):
            to.sums.lower(to, sums)

    def advance_random_state(self, seed: Value, to: Lowering) -> None:
        """Advance the random state by one micro-batch."""
        popops.map_in_place(
            to.graph.top_level, _1 + 1, [to[seed][1:2]], self._stage.leaving, name="advance_random_state"
        )

    def program(self) -> Program:
        """A loop; beside IO tiles, one of all micro-batches but the first and the last."""
        stage = self._stage
        if not stage.has_traffic:
            return repeat(self._count, stage.steps)
        function = self._graph.function(stage.steps, stage.name)

        def run(*, first: bool = False, last: bool = False) -> Program:
            return beside_traffic([Call(function)], [stage], first={0} if first else set(), last={0} if last else set())

        if self._count == 1:
            return around_traffic(run(first=True, last=True), [stage])
        between = [repeat(self._count - 2, run())] if self._count > 2 else []
        return around_traffic(Steps(run(first=True), *between, run(last=True)), [stage])
