"""``count-magnitudes``: what an automatic scale of the loss is to know of the gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abele.errors import InvalidOptionError
from abele.numerics import f16, f32
from abele.parallel.network import Network, NetworkBuilder, Stage
from abele.parallel.ops import build
from abele.parallel.passes.base import Pass

COUNTS = "gradients/counts"
"""Name of the accumulator that has the counts; that of further places begins with it."""


@dataclass(frozen=True)
class CountMagnitudes(Pass):
    """Count the elements of float16 gradients below and from ``edge`` on, over the micro-batches of a step.

    The gradients of parameters are counted, before they are summed. Those in f32 have no need of a scale.

    Attributes:
        edge: Magnitude from which on an element is large.
    """

    name: ClassVar[str] = "count-magnitudes"
    edge: float

    def run(self, net: Network) -> Network:
        """The network with counts.

        Raises:
            InvalidOptionError: No gradient is in float16: the scale would have nothing to follow.
        """
        halves = [g for g in net.gradients.values() if g.dtype == f16]
        if not halves:
            found = ", ".join(sorted({str(g.dtype) for g in net.gradients.values()})) or "none at all"
            raise InvalidOptionError(
                "automatic loss scaling has no float16 gradients to follow",
                because=f"the gradients of the parameters that are trained are {found}: "
                "with none to count as too large, the scale would double for ever",
                remedy="train float16 weights (model.half()), or leave automatic loss scaling off",
            )
        made = NetworkBuilder.of(net)
        # Each IPU, and each stage of a pipeline, counts what it makes.
        for number, place in enumerate(dict.fromkeys(g.place for g in halves)):
            counts = made.accumulator((2,), f32, f"{COUNTS}/{number}" if number else COUNTS)
            with made.at(made.origin.renamed("count_magnitudes"), stage=Stage.BACKWARD, place=place):
                here = [g for g in halves if g.place == place]
                made.updates[counts] = build.count_magnitudes(made, counts, here, self.edge)
        return made.finish()
