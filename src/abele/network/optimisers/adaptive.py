"""Rules with a rate of their own for each element: RMSprop, Adagrad and Adadelta."""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.network.optimisers.base import PARAMETER, Optimiser, StateSlot, Terms
from abele.network.optimisers.descent import apart
from abele.numerics import ElementType, f32
from abele.poplibs.popops.expr import Expr, Op


@dataclass(frozen=True)
class RmsProp(Optimiser):
    """RMSprop: s ← α·s + (1 − α)·g²; p ← p − lr·g / (√s + eps).

    Attributes:
        centered: True if the variance takes the place of the mean of squares.
        eps_inside: True if ``eps`` is added under the root.
        first_type: Element type of the mean of gradients.
        second_type: Element type of the mean of their squares.
        velocity_type: Element type of the momentum.
        decoupled: True if decay shrinks parameters, apart from gradients.
    """

    lr: float = 0.01
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    maximize: bool = False
    eps_inside: bool = False
    first_type: ElementType = f32
    second_type: ElementType = f32
    velocity_type: ElementType = f32
    decoupled: bool = field(default=False, kw_only=True)

    @property
    def has_velocity(self) -> bool:
        """True if there is momentum."""
        return "momentum" in self.variable or self.momentum != 0

    def slots(self) -> dict[str, StateSlot]:
        """The mean of squares, and those that are asked for."""
        mean = {"mean": StateSlot(self.first_type)} if self.centered else {}
        velocity = {"momentum": StateSlot(self.velocity_type)} if self.has_velocity else {}
        return {"mean_square": StateSlot(self.second_type), **mean, **velocity}

    def update(self, t: Terms) -> dict[str, Expr]:
        """Parameter and state after a step of RMSprop."""
        (p, g), alpha = apart(t, decoupled=self.decoupled), t.number("alpha")
        spread = square = alpha * t["mean_square"] + (1.0 - alpha) * Op("square", g)
        state = {"mean_square": square}
        if self.centered:
            state["mean"] = mean = alpha * t["mean"] + (1.0 - alpha) * g
            spread = square - Op("square", mean)
        eps = t.number("eps")
        step = g / (Op("sqrt", spread + eps) if self.eps_inside else Op("sqrt", spread) + eps)
        if self.has_velocity:
            state["momentum"] = step = t.number("momentum") * t["momentum"] + step
        return {PARAMETER: p - t.number("lr") * step, **state}


@dataclass(frozen=True)
class Adagrad(Optimiser):
    """Adagrad: s ← s + g²; p ← p − lr / (1 + (t − 1)·lr_decay)·g / (√s + eps)."""

    lr: float = 0.01
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-10
    initial_accumulator_value: float = 0.0
    maximize: bool = False
    sum_type: ElementType = field(default=f32, kw_only=True)
    decoupled: bool = field(default=False, kw_only=True)

    def slots(self) -> dict[str, StateSlot]:
        """The sum of squares."""
        return {"sum": StateSlot(self.sum_type, self.initial_accumulator_value)}

    def scalars(self) -> dict[str, StateSlot]:
        """Steps before this one."""
        return {"steps_before": StateSlot(initial=-1.0)} if self._decays else {}

    @property
    def _decays(self) -> bool:
        return "lr_decay" in self.variable or self.lr_decay != 0

    def advance(self, t: Terms) -> dict[str, Expr]:
        """Count a step."""
        return {"steps_before": t["steps_before"] + 1.0} if self._decays else {}

    def update(self, t: Terms) -> dict[str, Expr]:
        """Parameter and state after a step of Adagrad."""
        (p, g), rate = apart(t, decoupled=self.decoupled), t.number("lr")
        if self._decays:
            rate = rate / (1.0 + t["steps_before"] * t.number("lr_decay"))
        total = t["sum"] + Op("square", g)
        return {PARAMETER: p - rate * (g / (Op("sqrt", total) + t.number("eps"))), "sum": total}


@dataclass(frozen=True)
class Adadelta(Optimiser):
    """Adadelta: steps of the size of those before, by running means of squares of both."""

    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    maximize: bool = False
    square_type: ElementType = field(default=f32, kw_only=True)
    step_type: ElementType = field(default=f32, kw_only=True)
    decoupled: bool = field(default=False, kw_only=True)

    def slots(self) -> dict[str, StateSlot]:
        """Means of squares, of gradients and of steps."""
        return {"mean_square": StateSlot(self.square_type), "mean_step": StateSlot(self.step_type)}

    def update(self, t: Terms) -> dict[str, Expr]:
        """Parameter and state after a step of Adadelta."""
        (p, g), rho, eps = apart(t, decoupled=self.decoupled), t.number("rho"), t.number("eps")
        square = rho * t["mean_square"] + (1.0 - rho) * Op("square", g)
        step = Op("sqrt", t["mean_step"] + eps) / Op("sqrt", square + eps) * g
        steps = rho * t["mean_step"] + (1.0 - rho) * Op("square", step)
        return {PARAMETER: p - t.number("lr") * step, "mean_square": square, "mean_step": steps}
