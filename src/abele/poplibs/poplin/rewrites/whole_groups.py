"""Zeros beside channels that are summed, up to whole groups of the matrix units.

A weight update sums over samples and field: 20 samples of 7 x 7 positions are 980 channels, 61 groups of 16 and 4 more.
Without whole groups an operand that is written anew would lie in rows of 980, and a tile that reads 112 channels of 256
rows would receive 256 pieces. With 12 channels of zeros it lies in 62 groups of 16, each with all rows in one run: 7
pieces, and a few more where the run changes tile. The units sum whole groups whatever is stored, so products take as
long as before. PopLibs pads such operands, too. Source: machine.md §4.16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from abele.graph import ComputeSet, Graph, Tensor
from abele.poplibs.poplin.contraction.host_kernel import Binding
from abele.poplibs.poplin.contraction.operand import Operand, allocate, blocked, operand
from abele.poplibs.poplin.contraction.problem import Contraction
from abele.poplibs.poplin.lowering.arrange import arrange, arrange_estimate
from abele.poplibs.poplin.lowering.call import ContractionCall
from abele.poplibs.poplin.planner.target import PlanningTarget, target_of
from abele.poplibs.poplin.vertices.cost import weights_per_unit
from abele.poplibs.poputil.layout import channels_per_group


def in_whole_groups(call: ContractionCall) -> ContractionCall:
    """A matrix product with zeros after the channels that it sums; as it is where an operand is read in place.

    Args:
        call: One that knows what its caller sees (``meaning``), without an expansion.
    """
    problem, layouts = call.problem, call.layouts
    group = weights_per_unit(problem.dtype)
    units, _ = target_of(call.graph.system, call.planning).conv_units(problem.dtype, problem.partials)
    is_written_anew = layouts.arrange_input and layouts.arrange_weights and call.planning.split is None
    if not units or problem.in_channels % group == 0 or problem.in_channels < group or not is_written_anew:
        return call
    zeros = -problem.in_channels % group
    return replace(call, problem=replace(problem, in_channels=problem.in_channels + zeros), zeros=zeros)


@dataclass(frozen=True)
class FilledKernel:
    """Weights with the kernel folded into the channels, and zeros beside these, as a written-out input has them.

    Example: of 7 x 7 kernel positions of 20 channels, the inner 7 are 140 channels, and 9 groups of 16 with 4 zeros.
    There are 7 of these, 1,008 channels in all.

    Attributes:
        source: The weights before.
        problem: The contraction after, whose channels are those with zeros.
        dims: Field dimensions whose kernel is folded.
        inside: Those that fill groups together with the channels.
        zeros: Channels of zeros beside these.
    """

    source: Operand
    problem: Contraction
    dims: tuple[int, ...]
    inside: tuple[int, ...]
    zeros: int

    @cached_property
    def _folded(self) -> Operand:
        """The weights by group, out-channel, positions outside, channels, and positions of the kernel that is left."""
        given = self.source
        tensor, dims = (
            (given.tensor, given.dims) if "g" in given.dims else (given.tensor.expand_dims(0), ("g", *given.dims))
        )
        inside = [f"k{d}" for d in self.inside]
        outer = [f"k{d}" for d in self.dims if d not in self.inside]
        left = [n for n in dims if n[0] == "k" and n not in (*inside, *outer)]
        turned = tensor.transpose([dims.index(n) for n in ("g", "co", *outer, *inside, "ci", *left)])
        first, last = 2 + len(outer), 3 + len(outer) + len(inside)
        shape = turned.shape
        folded = turned.reshape((*shape[:first], prod(shape[first:last]), *shape[last:]))
        return operand(folded, ("g", "co", *outer, "ci", *left))

    def _allocated(self, graph: Graph) -> Operand:
        extents = self._folded.extents
        extents["ci"] += self.zeros
        kernel = [n for n in extents if n[0] == "k"]
        blocks = {"ci": weights_per_unit(self.problem.dtype), "co": channels_per_group(extents["co"])}
        outer = [n for n in kernel if int(n[1:]) in self.dims]
        order = ["g", "co1", *outer, "ci1", *(n for n in kernel if n not in outer), "co0", "ci0"]
        return allocate(graph, self.problem.dtype, extents, blocked(order, blocks, extents), "filled")

    def _logical(self, made: Operand) -> Tensor:
        return made.tensor.reshape([self.problem.extents[n] for n in self.problem.weight_dims])

    def allocate(self, graph: Graph) -> Tensor:
        """A new, unmapped variable for them, as [g, co, channels, *kernel]."""
        return self._logical(self._allocated(graph))

    def estimate(self, machine: PlanningTarget) -> int:
        """Cycles that writing them is expected to take."""
        return arrange_estimate(self.source.tensor.size, self.problem.dtype, machine)

    def emit(self, graph: Graph, compute_set: ComputeSet) -> Operand:
        """Add the vertices that write them; the weights with zeros."""
        made = arrange(graph, compute_set, self._folded, self._allocated(graph))
        return Binding(self._logical(made), self.problem.weight_dims, 1).operand()
