"""``optimise``: what the optimisers do with the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from abele.expr.derivative import arg
from abele.network.ir import HERE, Network, NetworkBuilder, OpBlock, Place, Stage, Value
from abele.network.ops import build
from abele.network.optimisers import CapturedUpdate, Optimiser
from abele.network.passes.base import Pass


@dataclass(frozen=True)
class Optimise(Pass):
    """Append the update of each parameter that has a gradient.

    A captured update is inlined: its ops are of the stage of updates, and run once per step.

    Attributes:
        groups: For each optimiser, the names of its parameters.
    """

    name: ClassVar[str] = "optimise"
    groups: tuple[tuple[Optimiser, tuple[str, ...]], ...]

    def run(self, net: Network) -> Network:
        """The network with updates."""
        made = NetworkBuilder.of(net)
        by_name = {p.name: p for p in net.gradients}
        for number, (optimiser, names) in enumerate(self.groups):
            if isinstance(optimiser, CapturedUpdate):
                _inline(made, net, optimiser, names)
                continue
            for parameter in (by_name[name] for name in names if name in by_name):
                origin = made.origin.renamed(f"update/{parameter.name}")
                with made.at(origin, stage=Stage.UPDATE, place=parameter.place):
                    # The model's own change of a parameter comes before the optimiser's step.
                    now, gradient = net.updates.get(parameter, parameter), net.gradients[parameter]
                    made.updates[parameter] = build.update(made, now, gradient, optimiser, number)
        return made.finish()


def _inline(made: NetworkBuilder, net: Network, optimiser: CapturedUpdate, names: Sequence[str]) -> None:
    """Append a captured update; parameters that the loss does not depend on have gradients of zeros."""
    by_name, body = {v.name: v for v in net.entries}, optimiser.function.body
    parameters, buffers = [by_name[n] for n in names], [by_name[n] for n in optimiser.buffers]
    state = [*parameters, *buffers]
    with made.at(made.origin.renamed("update"), stage=Stage.UPDATE):
        now = [net.updates.get(p, p) for p in parameters]
        gradients = [net.gradients.get(p) or build.full(made, 0.0, p.shape, p.dtype) for p in parameters]
        entering = [*now, *gradients, *buffers]
        known = zip(body.parameters, (*parameters, *parameters), strict=False)
        places = places_of(body, {v: p.place for v, p in known})
        values = dict(zip(body.parameters, entering, strict=True))
        for op, place in zip(body.ops, places, strict=True):
            with made.at(op.debug, place=place):
                values |= zip(op.outputs, made.copy(op, values), strict=True)
        for of, result in zip(state, body.results, strict=True):
            new = values[result]
            if new is not of:
                with made.at(place=of.place):
                    made.updates[of] = (
                        new if new.stage == Stage.UPDATE else build.element_update(made, [of, new], [arg(1)])[0]
                    )


def places_of(block: OpBlock, known: Mapping[Value, Place]) -> list[Place]:
    """The place of each op of a captured update: where the parameters are that it computes with.

    An op is where its largest operand is; one that reads no parameter or gradient is where its first reader is.

    Args:
        block: The update.
        known: Places of its parameters, as far as they are known.
    """
    if len(set(known.values())) <= 1:
        return [next(iter(known.values()), HERE)] * len(block.ops)
    places = dict(known)
    for _ in range(2):
        for op in block.ops:
            placed = [v for v in op.inputs if v in places]
            if placed and not places.keys() & set(op.outputs):
                places |= dict.fromkeys(op.outputs, places[max(placed, key=lambda v: v.size)])
        for op in reversed(block.ops):
            here = next((places[v] for v in op.outputs if v in places), None)
            if here is not None:
                places = dict.fromkeys(op.inputs, here) | places
    return [next((places[v] for v in op.outputs if v in places), HERE) for op in block.ops]
