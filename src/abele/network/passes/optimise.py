"""``optimise``: what the optimisers do with the gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abele.network.ir import Network, NetworkBuilder, Stage
from abele.network.ops import build
from abele.network.optimisers import Optimiser
from abele.network.passes.base import Pass


@dataclass(frozen=True)
class Optimise(Pass):
    """Append the update of each parameter that has a gradient.

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
            for parameter in (by_name[name] for name in names if name in by_name):
                origin = made.origin.renamed(f"update/{parameter.name}")
                with made.at(origin, stage=Stage.UPDATE, place=parameter.place):
                    # The model's own change of a parameter comes before the optimiser's step.
                    now, gradient = net.updates.get(parameter, parameter), net.gradients[parameter]
                    made.updates[parameter] = build.update(made, now, gradient, optimiser, number)
        return made.finish()
