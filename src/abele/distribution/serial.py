"""Micro-batches one after the other: each goes through the whole network."""

from __future__ import annotations

from collections.abc import Sequence

from abele.distribution.gradient_sums import GradientSums
from abele.distribution.lowering import Lowering
from abele.distribution.strategy import Body, StageSteps, around_traffic, beside_traffic, repeat
from abele.graph import Call, Graph, Program, Steps
from abele.network.ir import NetworkOp, Value
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1


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
                to.lower([op], settle=False)
                sums.add(to, op)
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
