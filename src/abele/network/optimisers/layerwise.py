"""Rules whose step is as long for each layer as the norms of its parameter and gradient say: LARS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError
from abele.network.optimisers.base import GRADIENT, PARAMETER, Optimiser, StateSlot, Terms
from abele.network.optimisers.descent import decayed
from abele.numerics import ElementType, f32
from abele.poplibs.popops.expr import Const, Expr, Op, select


@dataclass(frozen=True)
class Lars(Optimiser):
    """LARS: momentum of gradients, each multiplied by the trust ratio of its layer.

    b ← m·b + lr·λ·(g + w·p), p ← p − b, with λ = η·‖p‖ / (‖g‖ + w·‖p‖ + eps), or 1 where either norm is 0.

    Source: You et al., Large Batch Training of Convolutional Networks (2017), in the form that MLPerf Training
    prescribes.

    Attributes:
        trust_coefficient: η.
        layerwise: False for parameters that take plain momentum steps, λ = 1: biases and the scales of norms, which
            published runs leave out.
        velocity_type: Element type of the momentum.

    Raises:
        InvalidOptionError: Gradients are cut element by element, of which the norm is not known.
    """

    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    trust_coefficient: float = 0.001
    eps: float = 0.0
    layerwise: bool = True
    velocity_type: ElementType = f32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layerwise and not self.keeps_gradients:
            raise InvalidOptionError(
                "Lars.max_grad_value cuts gradients, whose norms it goes by", remedy="max_grad_norm, or another rule"
            )

    def slots(self) -> dict[str, StateSlot]:
        """The momentum."""
        return {"momentum": StateSlot(self.velocity_type)}

    def trust(self, t: Terms) -> Expr:
        """lr times λ, from the squares of both norms."""
        weight = Op("sqrt", t["weight_square"])
        gradient = Op("abs", t.scaled(Op("sqrt", t["gradient_square"])))
        either = Op("min", weight, gradient)
        size = gradient + t.number("weight_decay") * weight + t.number("eps")
        ratio = t.number("trust_coefficient") * weight / Op("max", size, Const(1e-38))
        return t.number("lr") * select(ratio, 1.0, either > 0.0)

    def update(self, t: Terms) -> dict[str, Expr]:
        """A step that needs no norms."""
        return self._descended(t, t.number("lr"))

    def descend(self, t: Terms) -> dict[str, Expr]:
        """b and p."""
        return self._descended(t, t["rate"])

    def _descended(self, t: Terms, rate: Expr) -> dict[str, Expr]:
        moved = t.number("momentum") * t["momentum"] + rate * decayed(t)
        return {PARAMETER: t[PARAMETER] - moved, "momentum": moved}

    def moved(self, tensors: Mapping[str, Array], state: Mapping[str, Array]) -> dict[str, Array]:
        """Norms are of whole tensors, so that no one expression says a step."""
        if not self.layerwise:
            return super().moved(tensors, state)
        norms = {"weight_square": tensors[PARAMETER], "gradient_square": tensors[GRADIENT]}
        squares = {name: np.asarray(np.sum(np.square(array))) for name, array in norms.items()}
        rate = self.evaluated(lambda t: {"rate": self.trust(t)}, {}, squares)
        return self.evaluated(self.descend, dict(tensors), {**state, **rate})
