"""Two sums of one geometry, Σ a and Σ a² or Σ a and Σ b, brought together as one reduction of twice the outputs.

The first step reads both where they lie and leaves results of both side by side; later steps do not know that they are
of two sums. So a norm's statistics take as many vertices and messages as one sum, each message twice as long.

Outputs are numbered in turns of ``turn`` outputs of the first sum and as many of the second. ``turn`` divides where any
tile's results begin and end, so that they are one stretch: 64 channels of which every tile has all have turns of 64,
and 128 of which tiles have 16 or 32 each have turns of 16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.graph import ComputeSet, Graph, Tensor
from abele.numerics import f32
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.partials import Combination, Partials
from abele.poplibs.popops.reductions.plan import Planner
from abele.poplibs.popops.reductions.reduction import Adding, PairedWith, Reduction, add_together
from abele.poplibs.popops.reductions.shared import SharedVertices
from abele.poplibs.poputil.mapping import set_mapping


@dataclass(frozen=True)
class TwoSums:
    """Σ of a tensor and Σ of its squares, or of another tensor, in f32.

    Attributes:
        sum: The first sum as a reduction of its own.
        other: The other tensor; None for the squares.
    """

    sum: Reduction
    other: Tensor | None

    @staticmethod
    def of(graph: Graph, tensor: Tensor, other: Tensor | None, kept: tuple[int, ...], name: str) -> TwoSums | None:
        """Two sums over all but the ``kept`` dimensions; None where they need steps of their own.

        That is where the tensors lie otherwise, or where tiles have rectangles of several shapes.
        """
        made = Reduction(
            graph,
            tensor=tensor,
            kept=kept,
            op=find_reduce_op("ADD"),
            finish=Finish(f32),
            scale=None,
            name=name,
            between=f32,
        )
        if not made.num_outputs or not tensor.size or (other is not None and not made.lies_like(other)):
            return None
        found = TwoSums(made, other)
        return None if found.shared is None or found.shared.rest.any() else found

    @cached_property
    def shared(self) -> SharedVertices | None:
        """Vertices of the first step."""
        return self.sum.shared(joined=not self.steps, least=1)

    @cached_property
    def partials(self) -> Partials:
        """Results of both sums that the first step leaves."""
        given = self.sum.first.partials
        return Partials(2 * given.begin, 2 * given.length, given.tile)

    @cached_property
    def steps(self) -> tuple[Combination, ...]:
        """The steps after the first."""
        made = self.sum
        planner = Planner(made.graph.system, made.op, f32, f32, 2 * made.num_outputs, made.tensor.shape)
        return planner.combinations(self.partials, None)

    @property
    def turn(self) -> int:
        """Outputs of a sum that follow each other."""
        given = self.sum.first.partials
        return math.gcd(self.sum.num_outputs, *np.unique(given.begin).tolist(), *np.unique(given.length).tolist())

    def add(self, compute_sets: list[ComputeSet]) -> tuple[Tensor, Tensor]:
        """Add the vertices of each step to a compute set; the two sums, in the shape of the kept dimensions."""
        made, steps = self.sum, self.steps
        outputs = made.num_outputs
        last = steps[-1].partials if steps else self.partials
        variable = made.graph.variable(f32, (2 * outputs,), name=f"{made.name}/out")
        set_mapping(made.graph, variable, last.result_mapping(2 * outputs))
        stores = [self.partials, *(s.partials for s in steps[:-1])] if steps else []
        targets = [*(made.store(p, n) for n, p in enumerate(stores)), variable]
        adding: list[Adding] = [lambda compute_set: self._add_first(compute_set, targets[0])]
        for number, step in enumerate(steps, start=1):
            adding.append(made.combining(step, targets[number - 1], targets[number], last=number == len(steps)))
        add_together(made.graph, compute_sets, [adding], made.name)
        turns = variable.reshape((outputs // self.turn, 2, self.turn))
        first, second = (made.kept_order.undo(turns[:, k].reshape(made.kept_order.extents)) for k in (0, 1))
        return first, second

    def _add_first(self, compute_set: ComputeSet, target: Tensor) -> None:
        assert self.shared is not None
        paired = PairedWith(self.other, self.turn)
        self.sum.add_shared(compute_set, self.shared, target, Finish(f32), last=not self.steps, paired=paired)
