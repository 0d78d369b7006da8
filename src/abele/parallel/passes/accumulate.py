"""``accumulate``: gradients of several micro-batches make one update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abele.numerics import f32
from abele.parallel.network import Network, NetworkBuilder, Stage
from abele.parallel.ops import build
from abele.parallel.passes.base import Pass


@dataclass(frozen=True)
class Accumulate(Pass):
    """Add the gradients of each micro-batch to sums, which take their place; one micro-batch needs no sums.

    Attributes:
        micro_batches: How many make one update.
        mean: True to sum shares, so that the sum is the mean.
    """

    name: ClassVar[str] = "accumulate"
    micro_batches: int = 1
    mean: bool = True

    def run(self, net: Network) -> Network:
        """The network with an accumulator for each gradient."""
        if self.micro_batches == 1:
            return net
        made = NetworkBuilder.of(net)
        for parameter, gradient in net.gradients.items():
            place, name = parameter.place, f"accumulate/{parameter.name}"
            total = made.accumulator(parameter.shape, f32, f"{parameter.name}/accumulator")
            with made.at(made.origin.renamed(name), stage=Stage.BACKWARD, place=place):
                grown = build.accumulate(made, total, gradient, 1 / self.micro_batches if self.mean else 1.0)
            made.updates[total] = made.gradients[parameter] = grown
        return made.finish()
