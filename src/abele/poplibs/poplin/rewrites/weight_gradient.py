"""The ways to see a weight gradient as a contraction, of which the cheapest is taken.

The gradient of the weights sums over samples and output positions. Seen as a convolution, activations slide over
gradients with samples as the channels that are summed; or gradients over activations; or, with the field folded into
the channels, it is a matrix product. All give the same sums in another order. Which is fastest depends on the sizes
(AMP units want 16 summed channels and long rows), so each is planned and costed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from abele.errors import InvalidOptionError, OutOfMemoryError
from abele.graph import Graph, Tensor
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.contraction.host_kernel import Binding, field_roles
from abele.poplibs.poplin.conv_params.params import ConvParams
from abele.poplibs.poplin.lowering.call import ContractionCall, cheapest
from abele.poplibs.poplin.options import Planning, Types
from abele.poplibs.poplin.rewrites.combine_groups import combined_sums
from abele.poplibs.poplin.rewrites.expand_kernel import expansions
from abele.poplibs.poplin.rewrites.flatten_field import flat_sum
from abele.poplibs.poplin.rewrites.whole_groups import in_whole_groups


@dataclass(frozen=True)
class WeightGradient:
    """A weight gradient that is to become a library call.

    Attributes:
        graph: The graph.
        name: Name of the call.
        params: The forward convolution.
        types: Element types.
        z_deltas: Gradients of the output.
        activations: The forward input.
        planning: Constraints that the planner obeys.
        like: The weights, or None.
    """

    graph: Graph
    name: str
    params: ConvParams
    types: Types
    z_deltas: Tensor
    activations: Tensor
    planning: Planning
    like: Tensor | None

    def cheapest(self) -> ContractionCall:
        """The call that is expected to take the fewest cycles, with zeros where sums make no whole groups.

        Which way is taken does not depend on zeros, as it does not in PopLibs.
        """
        sliding = [self._sliding(swapped=False), self._sliding(swapped=True)]
        sliding += [combined for call in sliding for combined in combined_sums(call)]
        others = list(self._others(sliding, pads=False))
        chosen = cheapest([*sliding, *others])
        number = next((n for n, call in enumerate(others) if call is chosen), None)
        if number is None:
            return chosen
        whole = next(islice(self._others(sliding, pads=True), number, None))
        return whole if whole.zeros and _is_about_as_fast(whole, chosen) else chosen

    def _others(self, sliding: Sequence[ContractionCall], *, pads: bool) -> Iterator[ContractionCall]:
        """Sums over samples and field together, where there is no kernel; else the kernel folded into the channels.

        Args:
            sliding: Ways in which operands slide over each other.
            pads: Zeros fill groups of what is summed.
        """
        for call in sliding:
            if self.params.is_pointwise:
                flat = flat_sum(call)
                yield in_whole_groups(flat) if pads else flat
            else:
                yield from expansions(call, pads=pads)

    def _sliding(self, *, swapped: bool) -> ContractionCall:
        """The activations slide over the gradients; or, ``swapped``, the gradients over the activations."""
        params, types, rank = self.params, self.types, len(self.params.field)
        problem = problems.weight_gradient(params, types.dtype, types.partials, types.output, swapped=swapped)
        rows, columns = ("co", "b") if not swapped else ("b", "co")
        field = ("k", "i") if not swapped else ("i", "k")
        deltas = Binding(self.z_deltas, ("ci", f"g*{rows}", *field_roles(field[0], rank)), params.groups)
        inputs = Binding(self.activations, ("ci", f"g*{columns}", *field_roles(field[1], rank)), params.groups)
        x, w = (deltas, inputs) if swapped else (inputs, deltas)
        roles = (f"g*{rows}", columns, *field_roles("o", rank))
        function = "poplin.calculate_weight_deltas"
        return ContractionCall(
            self.graph,
            function=function,
            name=self.name,
            problem=problem,
            x=x,
            w=w,
            out_roles=roles,
            planning=self.planning,
            like=self.like,
        )


MOST_SLOWER = 1.25
"""Estimated cycles that groups filled with zeros may take, for each of those without. Chosen, as estimates do not know
pieces: a strided 1 x 1 update of 22 samples is estimated to take 8 % more, and takes 26 % less."""


def _is_about_as_fast(call: ContractionCall, other: ContractionCall) -> bool:
    """True if a call has a plan that takes about as many cycles as another's."""
    try:
        return call.cycles <= MOST_SLOWER * other.cycles
    except (OutOfMemoryError, InvalidOptionError):
        return False
