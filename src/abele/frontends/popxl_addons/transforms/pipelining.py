"""Micro-batches through stages of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from abele.frontends import popxl
from abele.frontends.popxl import Graph, Tensor
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl_addons.streams import check_steps
from abele.frontends.popxl_addons.transforms.stages import run_staged, staged


class Pipelining:
    """Stages of a pipeline in the making.

    Attributes:
        graph: Graph around it.
        steps: Micro-batches that go through it.
        first: Number of the first op of it.
        before: Tensors around it.
    """

    def __init__(self, graph: Graph, steps: int) -> None:
        self.graph, self.steps = graph, steps
        self.first, self.before = len(graph.operations), {t.id for t in graph.tensors}
        self._ends: list[tuple[int, int]] = []  # Number of ops so far, and the stage that they belong to.
        self._stage: int | None = None

    @contextmanager
    def stage(self, number: int) -> Iterator[None]:
        """Ops inside are of a stage.

        Raises:
            GraphArgumentError: Inside of another stage, or numbers below 0.
        """
        if number < 0:
            raise GraphArgumentError(f"stage {number} is none: they count from 0")
        if self._stage is not None:
            raise GraphArgumentError(f"stage {number} begins inside of stage {self._stage}")
        self._stage = number
        try:
            yield
        finally:
            self._stage = None
            self._ends.append((len(self.graph.operations), number))

    def stash_and_restore_tensor(self, t: Tensor, from_stage: int | None = None, depth: int | None = None) -> Tensor:
        """It: what a later stage reads waits for it, whether it is said here or not."""
        return t

    def ordered(self) -> list[list[Any]]:
        """The ops of each stage."""
        stages = sorted({n for _, n in self._ends})
        if stages != list(range(len(stages))):
            raise GraphArgumentError(f"the stages of a pipeline are 0, 1 and so on, not {stages}")
        if self.steps < len(stages):
            raise GraphArgumentError(
                f"Pipelining: steps ({self.steps}) must be at least the number of stages ({len(stages)})"
            )
        found: list[list[Any]] = [[] for _ in stages] or [[]]
        begin = self.first
        for end, number in self._ends:
            found[number] += self.graph.operations[begin:end]
            begin = end
        found[-1] += self.graph.operations[begin:]
        return found


@contextmanager
def pipelined_execution(steps: int) -> Iterator[Pipelining]:
    """Ops inside run once per micro-batch, in stages.

    ```python
    with addons.pipelined_execution(8) as pipeline:
        with pipeline.stage(0), popxl.ipu(0):
            h = first(ops.host_load(stream)).copy_to_ipu(1)
        with pipeline.stage(1), popxl.ipu(1):
            ops.host_store(out, second(h))
    ```

    In each tick every stage that has a micro-batch runs, each with another one; then tensors are copied to other IPUs,
    all together. So stages on different IPUs work at the same time. What a later stage reads waits for it, one copy for
    each micro-batch on the way. Stages see micro-batches in order. What one stage changes and another reads is what the
    tick finds: the last stage runs first.

    Args:
        steps: Number of micro-batches; at least that of the stages.

    Raises:
        GraphArgumentError: Stages that are not 0, 1 and so on, or more than there are steps.
    """
    pipeline = Pipelining(popxl.gcg(), check_steps("pipelined_execution", steps))
    yield pipeline
    stages = staged(pipeline.graph, pipeline.ordered(), pipeline.before)
    del pipeline.graph.operations[pipeline.first :]
    with pipeline.graph:
        run_staged(stages, steps)


__all__ = ["Pipelining", "pipelined_execution"]
