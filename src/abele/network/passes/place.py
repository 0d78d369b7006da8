"""``place``: everything that enters is where it is first read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from abele.network.ir import FrozenDict, Network, Place, Value, place_read
from abele.network.passes.base import Pass


@dataclass(frozen=True)
class AssignPlaces(Pass):
    """Give inputs, state and constants the place of the first op that reads them.

    Ops have the place that the model gave them, and gradients that of the op that they belong to. What only an op
    inside of a spread block reads is on the IPU of that op.
    """

    name: ClassVar[str] = "place"

    def run(self, net: Network) -> Network:
        """The network with places."""
        readers: dict[Value, Place] = {}
        for op in net.ops:
            for number, value in enumerate(op.inputs if op.place is not None else ()):
                if value not in readers:
                    place = place_read(op, number)
                    if place is not None:
                        readers[value] = place
        free = (*net.entries, *net.constants)
        moved = {v: replace(v, place=readers[v]) for v in free if v in readers and readers[v] != v.place}
        return substituted(net, moved) if moved else net


def substituted(net: Network, moved: dict[Value, Value]) -> Network:
    """``net`` with other objects for some of its values, wherever they are named."""

    def each(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(moved.get(v, v) for v in values)

    def pairs(mapping: FrozenDict[Value, Value]) -> FrozenDict[Value, Value]:
        return FrozenDict(dict(zip(each(mapping), each(mapping.values()), strict=True)))

    return Network(
        inputs=each(net.inputs),
        parameters=each(net.parameters),
        buffers=each(net.buffers),
        accumulators=each(net.accumulators),
        seed=None if net.seed is None else moved.get(net.seed, net.seed),
        ops=tuple(replace(op, inputs=each(op.inputs), outputs=each(op.outputs)) for op in net.ops),
        outputs=each(net.outputs),
        updates=pairs(net.updates),
        changed_inputs=pairs(net.changed_inputs),
        gradients=pairs(net.gradients),
        loss=None if net.loss is None else moved.get(net.loss, net.loss),
        wide=frozenset(each(net.wide)),
        bounds=tuple(replace(b, value=moved.get(b.value, b.value)) for b in net.bounds),
        num_random=net.num_random,
    )
