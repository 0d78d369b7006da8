"""``accumulate``: gradients of several micro-batches make one update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abele.numerics import f16, f32
from abele.parallel.network import Network, NetworkBuilder, Stage, Value
from abele.parallel.ops import build
from abele.parallel.passes.base import Pass
from abele.parallel.schedule import MeanStrategy


@dataclass(frozen=True)
class Accumulate(Pass):
    """Add the gradients of each micro-batch to sums, which take their place; one micro-batch needs no sums.

    A mean is a sum of shares, or runs (:class:`~abele.parallel.schedule.MeanStrategy`). Sums in f16 keep whole
    gradients, of which shares could be too small for the type, and updates divide them.

    Attributes:
        micro_batches: How many make one update.
        mean: True to make the mean of gradients; otherwise their sum.
        strategy: When a mean is taken.
        halves: Names of the parameters whose gradients are summed in f16.
    """

    name: ClassVar[str] = "accumulate"
    micro_batches: int = 1
    mean: bool = True
    strategy: MeanStrategy = MeanStrategy.POST
    halves: tuple[str, ...] = ()

    def run(self, net: Network) -> Network:
        """The network with an accumulator for each gradient."""
        if self.micro_batches == 1:
            return net
        made, halves = NetworkBuilder.of(net), frozenset(self.halves)
        for parameter, gradient in net.gradients.items():
            place, name = parameter.place, f"accumulate/{parameter.name}"
            dtype = f16 if parameter.name in halves else f32
            total = made.accumulator(parameter.shape, dtype, f"{parameter.name}/accumulator")
            with made.at(made.origin.renamed(name), stage=Stage.BACKWARD, place=place):
                made.updates[total] = made.gradients[parameter] = self._grown(made, total, gradient)
        return made.finish()

    def _grown(self, made: NetworkBuilder, total: Value, gradient: Value) -> Value:
        if self.mean and self.strategy == MeanStrategy.RUNNING:
            return build.running_mean(made, total, gradient)
        shares = self.mean and total.dtype == f32
        return build.accumulate(made, total, gradient, 1 / self.micro_batches if shares else 1.0)
