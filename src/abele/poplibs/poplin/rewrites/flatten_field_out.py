"""Flattening field dimensions into the out-channels: every output position along them gets weights of its own.

Where the input is no longer than the kernel along a dimension, outputs along it meet all inputs there are, each at a
kernel position of its own. Taken as out-channels, with the inputs as channels that are summed, they are a product: the
weights are written out, one window for each output, as a kernel is written out in the input (``expand_kernel``), and
the matrix units that hold them are full although the convolution has few out-channels. The gradient of an input of one
channel is such a convolution. Source: machine.md §4.16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from abele.graph import ComputeSet, Graph, Tensor
from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.contraction.operand import Operand
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.lowering.call import ContractionCall
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.rewrites.expand_kernel import (
    MOST_GROWTH,
    KernelExpansion,
    channel_group,
    folded_kernel,
    growth,
)
from abele.poplibs.poplin.rewrites.swap_operands import swapped, turned_roles


def flattenings(call: ContractionCall) -> Iterator[ContractionCall]:
    """``call`` with output positions as out-channels, along every valid choice of field dimensions.

    Args:
        call: A convolution or an input gradient, whose output is [batch, channels, *field].
    """
    problem = call.problem
    if not all(op.is_regular for op in (call.x.operand(), call.w.operand())):
        return
    short = [d for d, a in enumerate(problem.axes) if a.outputs > 1 and a.inputs <= a.kernel]
    for count in range(1, len(short) + 1):
        for dims in combinations(short, count):
            turned = swapped(call)
            if all(turned.problem.axes[d].in_step == 1 for d in dims) and growth(turned.problem, dims) <= MOST_GROWTH:
                yield _flattened(call, turned, dims)


def _flattened(call: ContractionCall, turned: ContractionCall, dims: tuple[int, ...]) -> ContractionCall:
    """``call`` along ``dims``; ``turned`` is it with operands exchanged, whose kernel is the input."""
    problem = call.problem
    outputs = prod(problem.axes[d].outputs for d in dims)
    inputs = prod(problem.axes[d].inputs for d in dims)
    flat = replace(
        problem,
        in_channels=problem.in_channels * inputs,
        out_channels=problem.out_channels * outputs,
        axes=tuple(axis for d, axis in enumerate(problem.axes) if d not in dims),
    )
    x = folded_input(call.x, dims, flat)
    group = channel_group(x, flat)
    tiles = call.graph.system.ipu.num_tiles
    widening = OutputWindows(KernelExpansion(turned.problem, dims, turned.x, group, tiles), flat)
    meaning = turned.meaning
    assert meaning is not None
    seen, groups = meaning.restore, problem.groups
    sizes = [problem.axes[d].outputs for d in dims]
    kept = [d for d in range(problem.rank) if d not in dims]

    def restore(out: Tensor) -> Tensor:
        """[g, b, outputs · co, *rest] as [b, g · co, *field]."""
        rest = [problem.axes[d].outputs for d in kept]
        apart = out.reshape((groups, problem.batch, *sizes, problem.out_channels, *rest))
        at = {d: 2 + i for i, d in enumerate(dims)} | {d: 3 + len(dims) + i for i, d in enumerate(kept)}
        whole = apart.transpose([1, 0, 2 + len(dims), *(at[d] for d in range(problem.rank))])
        return seen(whole.reshape((problem.batch, groups * problem.out_channels, *whole.shape[3:])))

    return replace(
        call,
        problem=flat,
        x=x,
        w=Binding(widening.allocate(Graph(call.graph.system)), flat.weight_dims, 1),
        out_roles=flat.out_dims,
        meaning=replace(meaning, restore=restore),
        widening=widening,
        charged=("weights", "output"),
        follows=False,
    )


def folded_input(x: Binding, dims: tuple[int, ...], problem: Contraction) -> Binding:
    """Input with inputs along ``dims`` in the channels that are summed, as ``problem`` has them."""
    folded = folded_kernel(turned_roles(x).operand(), dims)
    extents = problem.extents
    return Binding(folded.reshape([extents[dim] for dim in problem.in_dims]), problem.in_dims, 1)


@dataclass(frozen=True)
class OutputWindows:
    """Weights that are written out: for every output along some dimensions, the window of them that it reads.

    Attributes:
        expansion: Expansion of the weights, as the input of the convolution with operands exchanged.
        problem: The contraction afterwards.
    """

    expansion: KernelExpansion
    problem: Contraction

    def input_view(self, x: Binding) -> Binding:
        """Input in the planned form: with inputs along these dimensions in the summed channels."""
        return folded_input(x, self.expansion.dims, self.problem)

    def estimate(self, machine: PlanningTarget) -> int:
        """Cycles that writing them out is expected to take."""
        return self.expansion.estimate(machine)

    def allocate(self, graph: Graph) -> Tensor:
        """A new, unmapped variable for them, as [g, co, ci, *kernel]."""
        return self._as_weights(self.expansion.allocate(graph))

    def emit(self, graph: Graph, compute_set: ComputeSet) -> Operand:
        """Add the vertices that write them out, over all tiles; the result."""
        written = self.expansion.emit(graph, compute_set).tensor
        return Binding(self._as_weights(written), self.problem.weight_dims, 1).operand()

    def _as_weights(self, rows: Tensor) -> Tensor:
        """[g, co, ci, *field], outputs along some dimensions, with these outputs in the out-channels, outermost."""
        dims, rank = self.expansion.dims, self.expansion.problem.rank
        kept = [3 + d for d in range(rank) if d not in dims]
        turned = rows.transpose([0, *(3 + d for d in dims), 1, 2, *kept])
        extents = self.problem.extents
        return turned.reshape([extents[dim] for dim in self.problem.weight_dims])
