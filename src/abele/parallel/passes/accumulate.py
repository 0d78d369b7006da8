"""``accumulate``: gradients of several micro-batches make one update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abele.numerics import f16, f32
from abele.parallel.network import Network, NetworkBuilder, Place, Stage, Value
from abele.parallel.ops import build
from abele.parallel.ops.elementwise import sum_of
from abele.parallel.passes.base import Pass
from abele.parallel.schedule import MeanStrategy


@dataclass(frozen=True)
class Accumulate(Pass):
    """Add the gradients of each micro-batch to sums, which take their place; one micro-batch needs no sums.

    The gradient of a parameter that several stages of a pipeline read is the sum of what each of them makes. Each adds
    its own part when it has it: to wait for the others, a part as large as the parameter would be kept for each
    micro-batch that is on its way.

    A mean is a sum of shares, or runs (:class:`~abele.parallel.schedule.MeanStrategy`). Sums in f16 keep whole
    gradients, of which shares could be too small for the type, and updates divide them.

    Attributes:
        micro_batches: How many make one update.
        mean: True to make the mean of gradients; otherwise their sum.
        strategy: When a mean is taken.
        halves: Names of the parameters whose gradients are summed in f16.
        away: True if sums are in streaming memory. Phases then have one for a single micro-batch, too: its gradients
            leave the chip with the phase that makes them.
    """

    name: ClassVar[str] = "accumulate"
    micro_batches: int = 1
    mean: bool = True
    strategy: MeanStrategy = MeanStrategy.POST
    halves: tuple[str, ...] = ()
    away: bool = False

    def run(self, net: Network) -> Network:
        """The network with an accumulator for each gradient."""
        if self.micro_batches == 1 and not (self.away and net.num_phases > 1):
            return net
        made, halves = NetworkBuilder.of(net), frozenset(self.halves)
        for parameter, gradient in net.gradients.items():
            name = f"accumulate/{parameter.name}"
            dtype = f16 if parameter.name in halves else f32
            total = grown = made.accumulator(parameter.shape, dtype, f"{parameter.name}/accumulator")
            for part, place in self._parts(made, parameter, gradient):
                with made.at(made.origin.renamed(name), stage=Stage.BACKWARD, place=place):
                    grown = self._grown(made, grown, part)
            made.updates[total] = made.gradients[parameter] = grown
        return made.finish()

    def _parts(self, made: NetworkBuilder, parameter: Value, gradient: Value) -> list[tuple[Value, Place]]:
        """What is added to the sum of a gradient, and where: the parts of several stages, the last stage's first."""
        whole = [(gradient, parameter.place)]
        op = made.makers.get(gradient)
        if op is None or op.kind != "map" or (self.mean and self.strategy == MeanStrategy.RUNNING):
            return whole
        parts = [(part, part.place) for part in op.inputs if part.shape == gradient.shape]
        stages = {place.pipeline_stage for _, place in parts}
        ipus = {place.ipu for _, place in parts} | {parameter.place.ipu}
        if (
            len(stages) == 1
            or len(ipus) > 1
            or op.attrs["expr"] != sum_of(len(op.inputs))
            or len(parts) < len(op.inputs)
        ):
            return whole
        return sorted(parts, key=lambda pair: -pair[1].pipeline_stage)

    def _grown(self, made: NetworkBuilder, total: Value, gradient: Value) -> Value:
        if self.mean and self.strategy == MeanStrategy.RUNNING:
            return build.running_mean(made, total, gradient)
        shares = self.mean and total.dtype == f32
        return build.accumulate(made, total, gradient, 1 / self.micro_batches if shares else 1.0)
