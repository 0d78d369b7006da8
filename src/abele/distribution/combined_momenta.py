"""Momenta that take up gradients: one tensor beside each parameter is the momentum, and the sum over micro-batches.

A step of stochastic gradient descent with momentum, v ← m·v + (1 − d)·(g + w·p); p ← p − r·v, needs the gradient g only
inside of v. So v shrinks, and takes up the decay, before the micro-batches of a step; each of them adds its gradient to
it; and it is the step that the update takes. That saves the sum of gradients, as much memory as the parameters
themselves, and rounds v once for each micro-batch. Replicas each start with their share of the old v, and sum.

What looks at gradients without the momentum has none then: clipping by the norm, means that run, gradients that the
host reads, the look ahead of Nesterov. There, and where states or sums lie elsewhere than whole on the chip, sums
stay tensors of their own, and the steps are the same.

Source: PopART's SGD1. There v shrinks at the end of a step, which makes no difference to parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abele.graph import Graph, Steps, Tensor
from abele.network.ir import Network, Place, Value
from abele.network.joined_copies import joined_copies
from abele.network.optimisers import Optimiser
from abele.numerics import f32
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.popops.expr import _1, _2, _3, _4, converted
from abele.poplibs.popops.programs.side_by_side import zip_on_machine

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering
    from abele.distribution.update import GroupUpdate

_NAMES = ("kept", "fresh", "decay")


@dataclass(frozen=True)
class _Momentum:
    """One of them.

    Attributes:
        group: The number of its optimiser.
        total: The accumulator that it is.
        parameter: Parameter of the momentum.
    """

    group: int
    total: Value
    parameter: Value


class CombinedMomenta:
    """Momenta that accumulate gradients, and the scalars of the accumulation.

    Args:
        to: Lowering of the network.
        net: The network.
        replicas: Replicas that sum.
    """

    def __init__(self, to: Lowering, net: Network, replicas: int) -> None:
        self._replicas = replicas
        parameters = {net.updates[total]: total for total in net.accumulators}
        groups = {op.output: op.attrs["group"] for op in net.ops if op.kind == "add_to_momentum"}
        self._momenta = [
            _Momentum(groups[gradient], parameters[gradient], parameter)
            for parameter, gradient in net.gradients.items()
            if gradient in groups
        ]
        places = dict.fromkeys((one.group, one.parameter.place.ipu) for one in self._momenta)
        self._scalars = {key: self._made(to.graph_of(Place(key[1])), key[0]) for key in places}

    @staticmethod
    def _made(graph: Graph, group: int) -> dict[str, Tensor]:
        made = {name: graph.variable(f32, (), name=f"optimiser{group}/{name}") for name in _NAMES}
        return {name: graph.map(tensor, 0) for name, tensor in made.items()}

    @property
    def totals(self) -> frozenset[Value]:
        """The accumulators that are momenta."""
        return frozenset(one.total for one in self._momenta)

    def of_group(self, group: int) -> frozenset[str]:
        """The names of the parameters of an optimiser whose momenta they are."""
        return frozenset(one.parameter.name for one in self._momenta if one.group == group)

    def fresh(self, group: int, place: Place) -> Tensor:
        """Factor of each micro-batch's gradient when it is added."""
        return self._scalars[group, place.ipu]["fresh"]

    def begin(self, to: Lowering, updates: Mapping[int, GroupUpdate], prog: Steps) -> None:
        """Append steps before the micro-batches of a step: momenta shrink, and accumulate the decay of weights."""
        for number, update in updates.items():
            there = [scalars for (group, _), scalars in self._scalars.items() if group == number]
            if there:
                update.rates_of_momentum(there[0], self._replicas, prog)
                pairs = [(there[0][name], other[name]) for other in there[1:] for name in _NAMES]
                for copy in joined_copies(pairs, f"optimiser{number}/rates"):
                    prog.add(copy)
        lanes = [Steps(name="shrink_momentum") for _ in self._momenta]
        for one, lane in zip(self._momenta, lanes, strict=True):
            self._shrink(to, one, lane, decays=updates[one.group].optimiser)
        if lanes:
            prog.add(zip_on_machine(to.graph, lanes, "shrink_momenta"))

    def _shrink(self, to: Lowering, one: _Momentum, prog: Steps, *, decays: Optimiser) -> None:
        momentum, parameter = to[one.total], to[one.parameter]
        scalars = self._scalars[one.group, one.parameter.place.ipu]
        shrunk = converted(_1, momentum.dtype, f32) * _2
        operands = [momentum, scalars["kept"]]
        if "weight_decay" in decays.variable or decays.numbers["weight_decay"]:
            shrunk = shrunk + _4 * converted(_3, parameter.dtype, f32)
            operands += [parameter, scalars["decay"]]
        stored = converted(shrunk, f32, momentum.dtype)
        graph = to.graph_of(one.parameter.place)
        map_with_outputs(graph, [stored], operands, [momentum], prog, f"{one.parameter.name}/shrink_momentum")
