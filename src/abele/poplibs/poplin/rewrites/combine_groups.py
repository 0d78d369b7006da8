"""Combining groups of one channel: several groups side by side fill the channels that the AMP units sum over.

A depthwise convolution has one channel in and one out per group. With c groups taken as one of c channels, whose
weights are zero off the diagonal, the vertices do c times the work and still less than without the units; activations
need no rearrangement, as c neighbouring channels are how they are stored. In the gradient of the weights the diagonal
is what is wanted of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from abele.graph import ComputeSet, Copy, Graph, Tensor
from abele.graph.program import Steps
from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.contraction.operand import Operand
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.lowering.call import ContractionCall, Meaning
from abele.poplibs.poplin.lowering.storage import new_weights
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.widen import widen_diagonal
from abele.poplibs.poputil.layout import clone
from abele.poplibs.poputil.order import storage_order

_COMBINED = (16, 8, 4)
"""Groups that are taken together: those that fill the channels of an AMP unit, and with kernel rows its halves and
quarters. Source: machine.md §5.4.
"""


def combinations_of_groups(call: ContractionCall) -> Iterator[ContractionCall]:
    """A convolution or input gradient of groups of one channel, with groups combined in every way there is."""
    problem = call.problem
    if problem.in_channels != 1 or problem.out_channels != 1:
        return
    for count in _counts(problem):
        inner = replace(problem, groups=problem.groups // count, in_channels=count, out_channels=count, diagonal=True)
        widening = GroupWidening(inner, call.w.tensor)
        x = Binding(call.x.tensor, call.x.roles, inner.groups)
        w = Binding(widening.allocate(Graph(call.graph.system)), inner.weight_dims, 1)
        meaning = call.meaning or Meaning(problem, call.x, call.w, call.out_roles, lambda out: out)
        yield replace(call, problem=inner, x=x, w=w, meaning=meaning, widening=widening, follows=False)


def combined_sums(call: ContractionCall) -> Iterator[ContractionCall]:
    """A weight gradient of groups of one channel, with groups combined in every way there is."""
    problem = call.problem
    if problem.batch != 1 or problem.out_channels != 1:
        return
    for count in _counts(problem):
        inner = replace(problem, groups=problem.groups // count, batch=count, out_channels=count)
        x, w = (Binding(b.tensor, b.roles, inner.groups) for b in (call.x, call.w))

        def restore(out: Tensor, inner: Contraction = inner) -> Tensor:
            field = out.shape[2:]
            return _diagonal(out.reshape((inner.groups, inner.batch, inner.batch, *field))).reshape(
                (inner.groups * inner.batch, 1, *field)
            )

        meaning = Meaning(problem, call.x, call.w, call.out_roles, restore)
        spread = None if call.like is None else Handing(call.like)
        yield replace(call, problem=inner, x=x, w=w, meaning=meaning, like=None, spread=spread)


def _counts(problem: Contraction) -> list[int]:
    return [n for n in _COMBINED if problem.groups % n == 0]


def _diagonal(square: Tensor) -> Tensor:
    """[g, c, c, *field] to its diagonal [g, c, *field]."""
    groups, count, _, *field = square.shape
    return square.reshape((groups, count * count, *field)).sub_sample(count + 1, 1)


@dataclass(frozen=True)
class GroupWidening:
    """Weights of single channels as those of combined groups.

    Attributes:
        problem: The contraction over combined groups.
        source: The weights, [groups, 1, *kernel].
    """

    problem: Contraction
    source: Tensor

    def allocate(self, graph: Graph) -> Tensor:
        """A new, unmapped variable for them, as [g, co, ci, *kernel]."""
        p = self.problem
        extents = {dim: p.extents[dim] for dim in p.weight_dims}
        return new_weights(graph, self.source.dtype, extents, "widened")

    def estimate(self, machine: PlanningTarget) -> int:
        """Cycles that writing them is expected to take."""
        groups = -(-self.problem.groups // machine.tiles)
        elements = self.problem.in_channels * self.problem.out_channels * self.problem.taps
        values = np.array([groups * self.problem.in_channels * self.problem.taps], dtype=np.int64)
        widened = cost.widen(values, np.array([groups * elements], dtype=np.int64), self.problem.dtype)
        return machine.superstep_cycles + int(widened[0])

    def emit(self, graph: Graph, compute_set: ComputeSet) -> Operand:
        """Add the vertices that fill them, one for each combined group."""
        p = self.problem
        wide = self.allocate(graph)
        group = p.in_channels * p.out_channels * p.taps
        stored = storage_order(wide).apply(wide).reshape((p.groups, group))
        graph.map_linear(stored, min_elements=group, grain=group)
        tiles = graph.mapping_of(stored).tile
        compute_set.vertices(
            widen_diagonal(self.source.dtype),
            tile=np.repeat(tiles, np.diff(np.append(graph.mapping_of(stored).begin, wide.size)) // group),
            x=self.source.reshape((p.groups, p.in_channels * p.taps)),
            out=stored,
            channels=p.in_channels,
        )
        return Binding(wide, p.weight_dims, 1).operand()


@dataclass(frozen=True)
class Handing:
    """A result that is copied to where a tensor like it lies.

    Attributes:
        like: The tensor whose storage order and mapping the result takes.
    """

    like: Tensor

    def allocate(self, graph: Graph, dense: Tensor) -> Tensor:
        """The tensor that takes the result."""
        return clone(graph, self.like, "out", dense.dtype)

    def emit(self, graph: Graph, body: Steps, dense: Tensor, full: Tensor) -> None:
        """Append the copy."""
        body.add(Copy(dense, full))
