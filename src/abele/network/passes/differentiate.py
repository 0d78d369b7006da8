"""``differentiate``: the gradients of the loss by parameters, as ops of the same network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from abele.network.autodiff import differentiate
from abele.network.automatic_scale import AutomaticLossScale
from abele.network.ir import Network
from abele.network.passes.base import Pass


@dataclass(frozen=True)
class Differentiate(Pass):
    """Append the gradients of the loss by parameters; the loss itself is needed no more unless it is an output.

    Attributes:
        parameters: Names of the parameters; those that the loss does not depend on get no gradient.
        scale: Gradient of the loss by itself: 1, a loss scale, or −1 to go uphill.
        variable_scale: Initial value of a further factor, where that may change on the device.
        counted: Choice of gradients that are counted by magnitude, where an automatic scale follows them.
        rebuilt_above: Bytes of an activation above which it is made again of what is kept anyway; None to keep all.
    """

    name: ClassVar[str] = "differentiate"
    parameters: tuple[str, ...]
    scale: float = 1.0
    variable_scale: float | None = None
    counted: AutomaticLossScale | None = None
    rebuilt_above: int | None = None

    def run(self, net: Network) -> Network:
        """The network with gradients.

        Raises:
            TensorError: It has no loss.
            UnsupportedOpError: An op between the loss and a parameter has no derivative.
            InvalidOptionError: Gradients are to be counted, and there are none in float16.
        """
        wanted = set(self.parameters)
        sources = [p for p in net.parameters if p.name in wanted]
        return differentiate(
            net,
            sources,
            scale=self.scale,
            variable_scale=self.variable_scale,
            counted=self.counted,
            rebuilt_above=self.rebuilt_above,
        )
