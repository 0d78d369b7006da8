"""Rules with running means of the gradient and of its square, corrected for their start at 0: Adam and its kin.

1 − βᵗ, by which a mean of t steps is divided, is −expm1(t·ln β), which keeps its relative precision where 1 − βᵗ would
lose it. A β that lives on the device has its logarithm from β − 1, which is exact. It depends on t and today's β alone,
as usual: where a schedule moves β, a product or a recurrence over the steps would be another number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError
from abele.network.optimisers.base import PARAMETER, Optimiser, StateSlot, Terms
from abele.network.optimisers.descent import apart, decayed
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popops.expr import Const, Expr, Op, select

STATE_SCALE = "state_scale"
"""The scalar that stored means are multiplied by."""
_SERIES_BELOW = 0.5
"""Below this x the series of x/(eˣ − 1) is nearer than the quotient in f32."""


@dataclass(frozen=True)
class MomentRule(Optimiser):
    """Base: both running means, and the corrections of their start.

    Attributes:
        bias_correction: True if the means are corrected for their start.
        first_type: Element type of the mean of gradients.
        second_type: Element type of the mean of their squares.
        scaled_state: True if means that are stored in f16 keep the scale of the loss, squared for the mean of squares,
            so that small gradients are no subnormal numbers there. The scale is that of the optimiser when its state
            began, which the state has beside it; updates are the same but for rounding. PopART's scaledOptimizerState.
    """

    scales_state: ClassVar[bool] = True
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    bias_correction: bool = True
    maximize: bool = False
    first_type: ElementType = f32
    second_type: ElementType = f32
    scaled_state: bool = False

    @property
    def keeps_scale(self) -> bool:
        """True if a mean is stored with a scale."""
        return self.scales_state and self.scaled_state and f16 in (self.first_type, self.second_type)

    def slots(self) -> dict[str, StateSlot]:
        """Slots of the mean of gradients and of the mean of squares."""
        return {"moment1": StateSlot(self.first_type), "moment2": StateSlot(self.second_type)}

    def scalars(self) -> dict[str, StateSlot]:
        """The number of steps, and 1 − βᵗ of either β; the scale of means that have one."""
        corrections = {"correction1": StateSlot(lasting=False), "correction2": StateSlot(lasting=False)}
        scale = {STATE_SCALE: StateSlot(initial=self.loss_scaling)} if self.keeps_scale else {}
        return scale | ({"step": StateSlot(), **corrections} if self.bias_correction else {})

    def advance(self, t: Terms) -> dict[str, Expr]:
        """Count a step."""
        if not self.bias_correction:
            return {}
        step = t["step"] + 1
        first, second = (_correction(t.number(name), step) for name in ("beta1", "beta2"))
        return {"step": step, "correction1": first, "correction2": second}

    def start(self, t: Terms) -> tuple[Expr, Expr, Expr, Expr]:
        """The parameter, shrunk where decay is decoupled, both new means, and the learning rate."""
        p, g, rate = t[PARAMETER], t.gradient, t.number("lr")
        if t.is_used("weight_decay"):
            decay = t.number("weight_decay")
            p, g = (p * (1.0 - rate * decay), g) if self.decoupled else (p, g + decay * p)
        return p, *self.means(t, g), rate

    def means(self, t: Terms, g: Expr) -> tuple[Expr, Expr]:
        """New means of gradients and of squares, without a scale."""
        m, s = t["moment1"], t["moment2"]
        if self.keeps_scale and self.first_type == f16:
            m = m / t[STATE_SCALE]
        if self.keeps_scale and self.second_type == f16:
            s = s / Op("square", t[STATE_SCALE])
        b1, b2 = t.number("beta1"), t.number("beta2")
        return b1 * m + (1.0 - b1) * g, b2 * s + (1.0 - b2) * Op("square", g)

    def stored(self, t: Terms, m: Expr, s: Expr) -> dict[str, Expr]:
        """Both means in the form in which they are stored."""
        if self.keeps_scale and self.first_type == f16:
            m = m * t[STATE_SCALE]
        if self.keeps_scale and self.second_type == f16:
            s = s * Op("square", t[STATE_SCALE])
        return {"moment1": m, "moment2": s}

    def second_correction(self, t: Terms) -> Expr:
        """Divisor of the mean of squares."""
        return t["correction2"] if self.bias_correction else Const(1.0)

    def first_correction(self, t: Terms) -> Expr:
        """Divisor of the mean of gradients."""
        return t["correction1"] if self.bias_correction else Const(1.0)


def _correction(beta: Expr, step: Expr) -> Expr:
    """1 − βᵗ after t steps."""
    if not isinstance(beta, Const):
        rate: Expr = Op("log1p", beta - 1.0)
    elif beta.value == 0:
        return Const(1.0)
    else:
        rate = Const(math.log(beta.value))
    return 0.0 - Op("expm1", step * rate)


@dataclass(frozen=True)
class Adam(MomentRule):
    """Adam; ``decoupled`` weight decay makes it AdamW."""

    def update(self, t: Terms) -> dict[str, Expr]:
        """p ← p − lr·m̂ / (√ŝ + eps)."""
        p, m, s, rate = self.start(t)
        root = Op("sqrt", s / self.second_correction(t)) + t.number("eps")
        return {PARAMETER: p - rate * (m / self.first_correction(t)) / root, **self.stored(t, m, s)}


@dataclass(frozen=True)
class Lamb(MomentRule):
    """LAMB: the step that AdamW would take, made as long as the layer's trust ratio says.

    The ratio is min(‖p‖, max_weight_norm) / ‖x‖, or 1 where either norm is 0, with x = m̂ / (√ŝ + eps) + w·p.

    Source: You et al., Large Batch Optimization for Deep Learning (2020), with φ the minimum.

    Attributes:
        max_weight_norm: Largest norm of a parameter that counts.
        decays_gradients: True if decay is part of gradients, w·p in g in place of x.
    """

    max_weight_norm: float = 65500.0
    decays_gradients: bool = False

    def direction(self, t: Terms) -> dict[str, Expr]:
        """x and both means."""
        p = t[PARAMETER]
        m, s = self.means(t, decayed(t) if self.decays_gradients else t.gradient)
        root = Op("sqrt", s / self.second_correction(t)) + t.number("eps")
        x = (m / self.first_correction(t)) / root
        if t.is_used("weight_decay") and not self.decays_gradients:
            x = x + t.number("weight_decay") * p
        return {"direction": x, **self.stored(t, m, s)}

    def trust(self, t: Terms) -> Expr:
        """lr times the ratio, from the squares of both norms."""
        weight, step = Op("sqrt", t["weight_square"]), Op("sqrt", t["direction_square"])
        capped = Op("min", weight, t.number("max_weight_norm"))
        either = Op("min", weight, step)
        return t.number("lr") * select(capped / Op("max", step, 1e-38), 1.0, either > 0.0)

    def descend(self, t: Terms) -> dict[str, Expr]:
        """p ← p − rate·x."""
        return {PARAMETER: t[PARAMETER] - t["rate"] * t["direction"]}

    def moved(self, tensors: Mapping[str, Array], state: Mapping[str, Array]) -> dict[str, Array]:
        """Norms are of whole tensors, so that no one expression says a step."""
        after = self.evaluated(self.direction, tensors, state)
        norms = {"weight_square": tensors[PARAMETER], "direction_square": after["direction"]}
        squares = {name: np.asarray(np.sum(np.square(array))) for name, array in norms.items()}
        rate = self.evaluated(lambda t: {"rate": self.trust(t)}, {}, squares)
        step = {PARAMETER: tensors[PARAMETER], "direction": after.pop("direction")}
        return {**self.evaluated(self.descend, step, rate), **after}


@dataclass(frozen=True)
class Adamax(MomentRule):
    """Adam with the running maximum of magnitudes in place of the mean of squares."""

    scales_state: ClassVar[bool] = False

    def update(self, t: Terms) -> dict[str, Expr]:
        """p ← p − lr·m̂ / u."""
        rate, b1, b2 = t.number("lr"), t.number("beta1"), t.number("beta2")
        p, g = apart(t, decoupled=self.decoupled)
        m = b1 * t["moment1"] + (1.0 - b1) * g
        u = Op("max", b2 * t["moment2"], Op("abs", g) + t.number("eps"))
        return {PARAMETER: p - rate / self.first_correction(t) * (m / u), "moment1": m, "moment2": u}


@dataclass(frozen=True)
class NAdam(MomentRule):
    """Adam with Nesterov's momentum, whose rate grows with the steps."""

    momentum_decay: float = 4e-3

    def scalars(self) -> dict[str, StateSlot]:
        """Those of the means, and the rates of this step and of all so far."""
        return {
            **super().scalars(),
            "product": StateSlot(initial=1.0),
            "gradient_rate": StateSlot(lasting=False),
            "moment_rate": StateSlot(lasting=False),
        }

    def advance(self, t: Terms) -> dict[str, Expr]:
        """μₜ = β₁·(1 − 0.96^(t·ψ) / 2), and lr's factors of gradient and mean."""
        after = super().advance(t)
        count = after["step"]
        rate, b1 = t.number("momentum_decay") * math.log(0.96), t.number("beta1")
        now = b1 * (1.0 - 0.5 * Op("exp", count * rate))
        coming = b1 * (1.0 - 0.5 * Op("exp", (count + 1.0) * rate))
        product = t["product"] * now
        return after | {
            "product": product,
            "gradient_rate": (1.0 - now) / (1.0 - product),
            "moment_rate": coming / (1.0 - product * coming),
        }

    def update(self, t: Terms) -> dict[str, Expr]:
        """p ← p − lr·((1 − μₜ)·ĝ + μₜ₊₁·m̂) / (√ŝ + eps)."""
        p, m, s, rate = self.start(t)
        g = t.gradient if self.decoupled else decayed(t)
        root = Op("sqrt", s / self.second_correction(t)) + t.number("eps")
        step = t["gradient_rate"] * g + t["moment_rate"] * m
        return {PARAMETER: p - rate * step / root, **self.stored(t, m, s)}


@dataclass(frozen=True)
class RAdam(MomentRule):
    """Adam whose first steps leave out the mean of squares until its variance is known.

    How many steps the mean of squares is worth, ρₜ = ρ∞ − 2t·β₂ᵗ/(1 − β₂ᵗ), is a small difference of large numbers.
    With λ = −ln β₂ and x = λt it is (ρ∞ − 2/λ) + t − (2/λ)·φ(x), φ(x) = x/(eˣ − 1) − 1 + x/2, of which nothing cancels:
    the first term is a constant in double precision, and φ has a series where x is small.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if "beta2" in self.variable:
            raise InvalidOptionError("RAdam.beta2 is a constant", remedy="leave beta2 out of variable")

    def scalars(self) -> dict[str, StateSlot]:
        """Those of the means, and the factor of the step: of the mean alone, or of its quotient by the root."""
        factors = {"rectified": StateSlot(lasting=False), "plain": StateSlot(initial=1.0, lasting=False)}
        return {**super().scalars(), **factors}

    def advance(self, t: Terms) -> dict[str, Expr]:
        """The factors for this step; one of them is 0."""
        after = super().advance(t)
        count, decay = after["step"], -math.log(self.beta2)
        longest = 2.0 / (1.0 - self.beta2) - 1.0
        x = count * decay
        square = x * x
        near = square * (1 / 12 - square * (1 / 720 - square * (1 / 30240)))
        phi = select(near, x / Op("expm1", x) - 1.0 + 0.5 * x, x < _SERIES_BELOW)
        length = (longest - 2.0 / decay) + count - (2.0 / decay) * phi
        scale = longest / ((longest - 4.0) * (longest - 2.0))
        squared = (length - 4.0) * (length - 2.0) * scale / length
        known = length > 5.0
        rectified = Op("sqrt", Op("max", squared, 0.0) * after["correction2"])
        return after | {"rectified": select(rectified, 0.0, known), "plain": select(0.0, 1.0, known)}

    def update(self, t: Terms) -> dict[str, Expr]:
        """p ← p − lr·m̂·(r / (√s + eps) or 1)."""
        p, m, s, rate = self.start(t)
        factor = t["rectified"] / (Op("sqrt", s) + t.number("eps")) + t["plain"]
        return {PARAMETER: p - rate * (m / self.first_correction(t)) * factor, **self.stored(t, m, s)}
