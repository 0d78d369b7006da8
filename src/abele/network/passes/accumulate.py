"""``accumulate``: gradients of several micro-batches make one update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from abele.network.ir import Network, NetworkBuilder, Place, Stage, Value
from abele.network.locations import AS_USUAL
from abele.network.ops import build
from abele.network.ops.elementwise import sum_of
from abele.network.optimisers import Optimiser, Sgd
from abele.network.passes.base import Pass
from abele.network.registry import rule_of
from abele.network.schedule import GRADIENT, MeanStrategy, Schedule
from abele.numerics import f16, f32


def combines(optimiser: Optimiser, schedule: Schedule) -> bool:
    """True if an optimiser accumulates gradients in its momentum, and a schedule lets it."""
    runs = schedule.mean and schedule.strategy == MeanStrategy.RUNNING
    return (
        isinstance(optimiser, Sgd)
        and optimiser.combined
        and optimiser.has_velocity
        and not optimiser.nesterov
        and optimiser.keeps_gradients
        and math.isinf(optimiser.max_grad_norm)
        and schedule.accumulation > 1
        and not runs
        and schedule.locations == AS_USUAL
        and not schedule.own_values
        and not any(anchor.tensor.startswith(GRADIENT) for anchor in schedule.anchors)
    )


@dataclass(frozen=True)
class Accumulate(Pass):
    """Add the gradients of each micro-batch to sums, which take their place; one micro-batch needs no sums.

    The gradient of a parameter that several stages of a pipeline read is the sum of what each of them makes. Each adds
    its own part when it has it: to wait for the others, a part as large as the parameter would be kept for each
    micro-batch that is on its way.

    A mean is a sum of shares, or runs (:class:`~abele.network.schedule.MeanStrategy`). Sums in f16 keep whole
    gradients, of which shares could be too small for the type, and updates divide them.

    Attributes:
        micro_batches: Number of micro-batches per update.
        mean: True to make the mean of gradients; otherwise their sum.
        strategy: Time at which a mean is taken.
        halves: Names of the parameters whose gradients are summed in f16.
        momenta: Of parameters whose momentum takes up the gradients: name, number of the optimiser, and whether it is
            in f16. Those of a network of phases, and of what the model itself changes, stay apart: the decay of a step
            is that of what the parameter has become.
        away: True if sums are in streaming memory. Phases then have one for a single micro-batch, too: its gradients
            leave the chip with the phase that makes them.
    """

    name: ClassVar[str] = "accumulate"
    micro_batches: int = 1
    mean: bool = True
    strategy: MeanStrategy = MeanStrategy.POST
    halves: tuple[str, ...] = ()
    momenta: tuple[tuple[str, int, bool], ...] = ()
    away: bool = False

    def run(self, net: Network) -> Network:
        """The network with an accumulator for each gradient."""
        if self.micro_batches == 1 and not (self.away and net.num_phases > 1):
            return net
        made, halves = NetworkBuilder.of(net), frozenset(self.halves)
        momenta = {name: (group, half) for name, group, half in self.momenta}
        for parameter, gradient in net.gradients.items():
            name = f"accumulate/{parameter.name}"
            apart = net.num_phases > 1 or net.updates.get(parameter, parameter) is not parameter
            group, half = (-1, False) if apart else momenta.get(parameter.name, (-1, False))
            what = "accumulator" if group < 0 else "momentum"
            dtype = f16 if (parameter.name in halves if group < 0 else half) else f32
            total = grown = made.accumulator(parameter.shape, dtype, f"{parameter.name}/{what}")
            for part, place in self._parts(made, parameter, gradient, alone=group < 0 and not self.away):
                with made.at(made.origin.renamed(name), stage=Stage.BACKWARD, place=place):
                    # Updates divide sums that are whole: those in f16, and those of rules whose momenta are.
                    is_whole = dtype == f16 or parameter.name in momenta
                    grown = self._grown(made, grown, part, group, is_whole=is_whole)
            made.updates[total] = made.gradients[parameter] = grown
        return made.finish()

    def _parts(
        self, made: NetworkBuilder, parameter: Value, gradient: Value, *, alone: bool
    ) -> list[tuple[Value, Place]]:
        """Addends of the sum of a gradient, with their places: the parts of several stages, the last stage's first.

        Those of one stage are addends by themselves if each of them can be added where it is made; ``alone`` is False
        where none may be.
        """
        whole = [(gradient, parameter.place)]
        op = made.makers.get(gradient)
        if op is None or op.kind != "map" or (self.mean and self.strategy == MeanStrategy.RUNNING):
            return whole
        parts = [(part, part.place) for part in op.inputs if part.shape == gradient.shape]
        stages = {place.pipeline_stage for _, place in parts}
        ipus = {place.ipu for _, place in parts} | {parameter.place.ipu}
        alone = alone and all(part in made.makers and rule_of(made.makers[part]).adds_to_sums for part in op.inputs)
        if (
            (len(stages) == 1 and not alone)
            or len(ipus) > 1
            or op.attrs["expr"] != sum_of(len(op.inputs))
            or len(parts) < len(op.inputs)
        ):
            return whole
        return sorted(parts, key=lambda pair: -pair[1].pipeline_stage)

    def _grown(self, made: NetworkBuilder, total: Value, gradient: Value, group: int, *, is_whole: bool) -> Value:
        if group >= 0:
            return build.add_to_momentum(made, total, gradient, group)
        if self.mean and self.strategy == MeanStrategy.RUNNING:
            return build.running_mean(made, total, gradient)
        shares = self.mean and not is_whole
        return build.accumulate(made, total, gradient, 1 / self.micro_batches if shares else 1.0)
