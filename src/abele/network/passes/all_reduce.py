"""``all-reduce``: updates use the gradients of all replicas, whole or a share in each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

from abele.network.ir import Network, NetworkBuilder, NetworkOp, Place, Stage, Value
from abele.network.locations import ON_CHIP, TensorLocation
from abele.network.ops import build
from abele.network.passes.base import Pass, reading
from abele.network.replicated_sharding import may_shard
from abele.network.schedule import MeanStrategy, Schedule
from abele.numerics import ElementType
from abele.poplibs.gcl import CommGroup

_Alike = tuple[CommGroup, ElementType, int, bool, bool]
"""Key of gradients that are reduced together: the groups of replicas, the type, the IPU, whether replicas share the
sums, and whether gradients are of exchanged parts.
"""


@dataclass(frozen=True)
class AllReduce(Pass):
    """Sum the gradients that updates read over the replicas; all then take the same step, and keep the same weights.

    A parameter of which groups of replicas have values of their own is summed over each group alone; where replicas
    compute a model together, all others are summed over the replicas of the same rank in these groups. The mean over
    all replicas is part of what updates multiply gradients by. A running mean is divided before it is sent, so that no
    sum has to fit in its type; and groups smaller than all replicas make up for what updates divide too much. Where
    replicas share the state beside a parameter, each gets its share of the sum alone, by a reduce-scatter.

    Attributes:
        replicas: Number of replicas.
        mean: True if updates use the mean over replicas; otherwise the sum.
        strategy: Time at which a mean is taken.
        own_values: Kind, size and stride of the groups that have values of their own, by name of the parameter.
        state: Place of the state of optimisers.
        others: Kind, size and stride of the groups over which the gradients of all other parameters are summed.
        exchanged: Names of ``own_values`` whose gradients are of what all replicas of an expert-parallel group sent:
            sums over these already.
    """

    name: ClassVar[str] = "all-reduce"
    replicas: int
    mean: bool = True
    strategy: MeanStrategy = MeanStrategy.POST
    own_values: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    state: TensorLocation = ON_CHIP
    others: tuple[Any, ...] = astuple(CommGroup.all())
    exchanged: tuple[str, ...] = ()

    @classmethod
    def of(cls, schedule: Schedule) -> AllReduce:
        """The pass that a schedule asks for."""
        groups = tuple((name, astuple(group)) for name, group in schedule.own_values)
        state, others = schedule.locations.optimiser, astuple(schedule.data_parallel)
        whole = cls(schedule.replicas, schedule.mean, schedule.strategy, groups, state, others)
        return replace(whole, exchanged=schedule.exchanged)

    def run(self, net: Network) -> Network:
        """The network with sums over replicas."""
        updates = [op for op in net.ops if op.stage == Stage.UPDATE]
        if not updates:
            return net
        made = NetworkBuilder.of(net, ops=False)
        for op in net.ops:
            if op.stage != Stage.UPDATE:
                made.append(op)
        values = {v: v for op in updates for v in (*op.inputs, *op.outputs)}
        sums = frozenset(net.updates[total] for total in net.accumulators)
        with made.at(made.origin.renamed("all_reduce"), stage=Stage.UPDATE):
            for (group, _, ipu, sharded, exchanged), pairs in self._together(net, updates).items():
                gradients = list(pairs)
                size, in_place = group.members(self.replicas).shape[1], sums.issuperset(gradients)
                scale, like = self._scale(self.replicas if exchanged else size), list(pairs.values())
                with made.at(place=Place(ipu)):
                    reduced = (
                        build.reduce_scatter(made, gradients, like, size, scale=scale, in_place=in_place)
                        if sharded
                        else build.all_reduce(made, gradients, group, size, scale=scale, in_place=in_place)
                    )
                values |= zip(gradients, reduced, strict=True)
        for op in updates:
            made.append(reading(op, values))
        return made.finish()

    def _together(self, net: Network, updates: Sequence[NetworkOp]) -> dict[_Alike, dict[Value, Value]]:
        """Gradients of updates with their parameters, by the key that they share, each gradient once.

        Captured updates read all gradients of their parameters, whole.
        """
        names = {value: state.name for state, value in net.updates.items()}
        groups = {name: CommGroup(*group) for name, group in self.own_values}
        found: dict[_Alike, dict[Value, Value]] = {}
        steps = [op for op in updates if op.kind == "update"]
        readers = Counter(op.inputs[1] for op in steps)
        for op in steps:
            parameter, gradient = op.inputs
            group = groups.get(names[op.output], CommGroup(*self.others))
            # A gradient that several parameters have lies like one of them alone.
            sharded = group == CommGroup.all() and readers[gradient] == 1 and self._is_sharded(op)
            key = group, gradient.dtype, gradient.place.ipu, sharded, names[op.output] in self.exchanged
            found.setdefault(key, {})[gradient] = parameter
        captured = {v for op in updates if op.kind != "update" for v in op.inputs}
        for parameter, gradient in net.gradients.items():
            if gradient in captured:
                group = groups.get(parameter.name, CommGroup(*self.others))
                key = group, gradient.dtype, gradient.place.ipu, False, parameter.name in self.exchanged
                found.setdefault(key, {})[gradient] = parameter
        return found

    def _is_sharded(self, op: NetworkOp) -> bool:
        """True if replicas share the state beside the parameter of an update."""
        elements = math.prod(op.output.shape)
        return self.state.is_sharded(elements) and may_shard(op.attrs["optimiser"], elements, self.replicas)

    def _scale(self, size: int) -> float:
        """Factor of gradients before they are sent."""
        if not self.mean:
            return 1.0
        return 1.0 / size if self.strategy == MeanStrategy.RUNNING else self.replicas / size
