"""The ways to see a weight gradient as a contraction, of which the cheapest is taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from abele.graph import Graph, Tensor
from abele.poplibs.poplin import problem as problems
from abele.poplibs.poplin.binding import Binding, field_roles
from abele.poplibs.poplin.contract import Call, Meaning
from abele.poplibs.poplin.options import Types
from abele.poplibs.poplin.params import ConvParams


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
        proportion: Share of a tile's memory for slices and partials.
        like: The weights, or None.
    """

    graph: Graph
    name: str
    params: ConvParams
    types: Types
    z_deltas: Tensor
    activations: Tensor
    proportion: float
    like: Tensor | None

    def cheapest(self) -> Call:
        """The call that is expected to take the fewest cycles."""
        calls = [self._sliding(swapped=False), self._sliding(swapped=True)]
        if self.params.field and all(axis.is_pointwise for axis in self.params.axes):
            calls += [self._flat(swapped=False), self._flat(swapped=True)]
        return min(calls, key=lambda call: call.cycles)

    def _sliding(self, *, swapped: bool) -> Call:
        """The activations slide over the gradients; or, ``swapped``, the gradients over the activations."""
        params, types, rank = self.params, self.types, len(self.params.field)
        problem = problems.weight_gradient(params, types.dtype, types.partials, types.output, swapped=swapped)
        rows, columns = ("co", "b") if not swapped else ("b", "co")
        field = ("k", "i") if not swapped else ("i", "k")
        deltas = Binding(self.z_deltas, ("ci", f"g*{rows}", *field_roles(field[0], rank)), params.groups)
        inputs = Binding(self.activations, ("ci", f"g*{columns}", *field_roles(field[1], rank)), params.groups)
        x, w = (deltas, inputs) if swapped else (inputs, deltas)
        roles = (f"g*{rows}", columns, *field_roles("o", rank))
        return self._call(problem, x, w, roles, self.like)

    def _flat(self, *, swapped: bool) -> Call:
        """A convolution without a kernel: one product, summed over samples and field together."""
        like = self.like
        sliding = self._sliding(swapped=swapped)
        problem = replace(sliding.problem, in_channels=self.params.batch * prod(self.params.field), axes=())
        x, w = (Binding(_flattened(b.tensor), (b.roles[1], "ci"), b.groups) for b in (sliding.x, sliding.w))
        flat_like = None if like is None else like.reshape(like.shape[:2])
        call = self._call(problem, x, w, sliding.out_roles[:2], flat_like)
        meaning = Meaning(sliding.problem, sliding.x, sliding.w, sliding.out_roles, self.params.weights_shape)
        return replace(call, meaning=meaning)

    def _call(
        self, problem: problems.Contraction, x: Binding, w: Binding, roles: tuple[str, ...], like: Tensor | None
    ) -> Call:
        function = "poplin.calculate_weight_deltas"
        return Call(self.graph, function, self.name, problem, x, w, roles, self.proportion, like)


def _flattened(tensor: Tensor) -> Tensor:
    """[batch, channels, *field] as [channels, batch · field]."""
    return tensor.moveaxis(1, 0).flatten(1)
