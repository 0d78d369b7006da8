"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from abele.network.optimisers.base import GRADIENT, PARAMETER, Optimiser, StateSlot, Terms
from abele.numerics import ElementType, f32
from abele.poplibs.popops.expr import Const, Expr


def decayed(t: Terms) -> Expr:
    """The gradient with its L2 term."""
    if not t.is_used("weight_decay"):
        return t.gradient
    return t.gradient + t.number("weight_decay") * t[PARAMETER]


def apart(t: Terms, *, decoupled: bool) -> tuple[Expr, Expr]:
    """The parameter and the gradient before a step: decay shrinks the one, or is part of the other."""
    if not decoupled or not t.is_used("weight_decay"):
        return t[PARAMETER], decayed(t)
    return t[PARAMETER] * (1.0 - t.number("lr") * t.number("weight_decay")), t.gradient


@dataclass(frozen=True)
class Sgd(Optimiser):
    """Stochastic gradient descent, with momentum that may be damped: b ← m·b + (1 − d)·g; p ← p − lr·b.

    The momentum starts with the whole first gradient: ``dampening_now`` is 0 before the first step, and ``dampening``
    after it.

    Attributes:
        dampens_all: True if damping holds in the first step and without momentum too.
        velocity_scaling: Factor of the momentum as it is stored.
        velocity_type: Element type of the momentum.
        combined: True if the momentum takes up the gradients of micro-batches, where it can; see
            :mod:`abele.distribution.combined_momenta`.
    """

    lr: float = 0.01
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = False
    velocity_scaling: float = 1.0
    velocity_type: ElementType = f32
    combined: bool = False
    dampens_all: bool = False

    @property
    def has_velocity(self) -> bool:
        """True if there is momentum."""
        return "momentum" in self.variable or self.momentum != 0

    @property
    def dampens(self) -> bool:
        """True if the momentum is damped."""
        return "dampening" in self.variable or self.dampening != 0

    @property
    def scales_velocity(self) -> bool:
        """True if the momentum is stored multiplied by something."""
        return "velocity_scaling" in self.variable or self.velocity_scaling != 1

    def slots(self) -> dict[str, StateSlot]:
        """The momentum."""
        return {"momentum": StateSlot(self.velocity_type)} if self.has_velocity else {}

    def scalars(self) -> dict[str, StateSlot]:
        """Damping of the momentum in this step, as a scalar."""
        return {"dampening_now": StateSlot()} if self.dampens and not self.dampens_all else {}

    def share_of_gradient(self, t: Terms) -> Expr:
        """1 - d in this step, where the momentum is damped."""
        return 1.0 - (t.number("dampening") if self.dampens_all else t["dampening_now"])

    def rates_of_momentum(self, t: Terms, replicas: int) -> dict[str, Expr]:
        """Factors of a momentum that accumulates gradients: of its old value, of gradients and of parameters.

        Each replica starts with its share, since replicas sum momenta.
        """
        fresh = self.share_of_gradient(t) if self.dampens else Const(1.0)
        if self.scales_velocity:
            fresh = fresh * t.number("velocity_scaling")
        share = 1.0 / replicas
        decay = fresh * t.number("weight_decay") * share
        return {"kept": t.number("momentum") * share, "fresh": t.scaled(fresh), "decay": decay}

    def descend(self, t: Terms) -> dict[str, Expr]:
        """Step by a momentum that has accumulated the gradients and replaces them."""
        rate = t.number("lr")
        if self.scales_velocity:
            rate = rate / t.number("velocity_scaling")
        return {PARAMETER: t[PARAMETER] - rate * t[GRADIENT]}

    def update(self, t: Terms) -> dict[str, Expr]:
        """Parameter and momentum after a step."""
        parameter, gradient = t[PARAMETER], decayed(t)
        step, state = gradient, {}
        if self.dampens and self.dampens_all:
            step = self.share_of_gradient(t) * gradient
        if self.has_velocity:
            rate, kept = t.number("momentum"), t["momentum"]
            fresh = self.share_of_gradient(t) * gradient if self.dampens else gradient
            if self.scales_velocity:
                fresh = fresh * t.number("velocity_scaling")
            moved = rate * kept + fresh
            state["momentum"] = moved
            velocity = moved / t.number("velocity_scaling") if self.scales_velocity else moved
            step = gradient + rate * velocity if self.nesterov else velocity
        return {PARAMETER: parameter - t.number("lr") * step, **state}
