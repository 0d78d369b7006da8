"""The state of an optimiser on the device under the names that PopTorch has for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from abele.frontends.poptorch.training.rules import read_rules
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.parallel import Optimiser, Sgd
from abele.session import Session

_SLOTS = {
    "Adam": {"moment1": "Accl1", "moment2": "Accl2"},
    "Lamb": {"moment1": "Accl1", "moment2": "Accl2"},
    "Lars": {"momentum": "Accl1"},
    "RmsProp": {"mean_square": "Accl1", "momentum": "Accl2", "mean": "Accl3"},
    "Sgd": {"momentum": "Accl1"},
}
_NUMBERS = {
    "lr": "learningRate",
    "weight_decay": "weightDecay",
    "momentum": "momentum",
    "dampening": "dampening",
    "velocity_scaling": "velocityScaling",
    "beta1": "beta1",
    "beta2": "beta2",
    "eps": "eps",
    "alpha": "alpha",
    "max_weight_norm": "maxWeightNorm",
    "trust_coefficient": "trustCoefficient",
}
_FACTOR, _STEPS, _SCALE = "loss_scaling/factor", "loss_scaling/steps", "lossScaling_FLOAT"


@dataclass(frozen=True)
class SessionState:
    """The state of an optimiser in a session.

    Attributes:
        session: It runs the optimiser.
        groups: Names of the parameters of each group.
        combined: True if the momentum takes up gradients.
    """

    session: Session
    groups: Sequence[Sequence[str]]
    combined: bool

    def read(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """What is kept beside parameters, and the numbers in use."""
        kept = self.session.state
        state = {name: from_array(np.asarray(kept[inner])).clone() for name, inner in self._names() if inner in kept}
        return state, dict(self._numbers())

    def write(self, state: Mapping[str, torch.Tensor], optimiser: torch.optim.Optimizer) -> None:
        """Take over what is kept, and numbers; names that the compiled optimiser does not have are passed over."""
        self.session.replace_optimisers(read_rules(optimiser))
        ends = self.session.compiled.ends.state
        for name, inner in self._names():
            if name in state and inner in ends:
                values = np.asarray(to_array(state[name]), ends[inner].np)
                self.session.state[inner] = values.reshape(ends[inner].host_shape(self.session.schedule.replicas))

    @property
    def _rules(self) -> Sequence[Optimiser]:
        return self.session.optimisers or ()

    def _names(self) -> Iterator[tuple[str, str]]:
        """PopTorch's name, and that in the session, of all that is kept."""
        for number, (rule, names) in enumerate(zip(self._rules, self.groups, strict=True)):
            for slot in rule.slots():
                shown = _SLOTS.get(type(rule).__name__, {}).get(slot, slot)
                shown = "Accl" if shown == "Accl1" and self.combined else shown
                yield from ((f"{shown}___{name}", f"{name}/{slot}") for name in names)
            for scalar in (name for name, slot in rule.scalars().items() if slot.lasting):
                inner = f"optimiser{number}/{scalar}"
                if scalar == "step":
                    yield from ((f"Step___{name}", inner) for name in names)
                else:
                    yield f"{scalar}___group{number}", inner
        yield "lossScaleUpdateFactor_FLOAT", _FACTOR
        yield "lossScaleUpdateSteps", _STEPS

    def _numbers(self) -> Iterator[tuple[str, torch.Tensor]]:
        for rule, names in zip(self._rules, self.groups, strict=True):
            numbers = {_NUMBERS[key]: value for key, value in rule.numbers.items() if key in _NUMBERS}
            if isinstance(rule, Sgd):
                numbers |= _of_descent(rule, combined=self.combined)
            for name in names:
                yield from ((f"{key}___specific___{name}", torch.tensor(value)) for key, value in numbers.items())
        if self._rules:
            factor = float(self.session.state[_FACTOR]) if _FACTOR in self.session.state else 1.0
            yield _SCALE, torch.tensor(self._rules[0].loss_scaling * factor)


def _of_descent(rule: Sgd, *, combined: bool) -> dict[str, float]:
    """The numbers that PopTorch makes of those of SGD, by which of its three rules it is."""
    lr, decay, scale = rule.lr, rule.weight_decay, rule.loss_scaling
    if not rule.has_velocity:
        return {"scaledLearningRate0": lr / scale, "weightDecayScaleFactor0": 1 - lr * decay}
    kept = 1 - rule.dampening
    if combined:
        scaling = rule.velocity_scaling
        return {
            "scaledLearningRate1": lr / scaling,
            "scaledWeightDecay1": kept * decay * scaling,
            "dampeningScaleFactor1": kept * scaling / scale,
            "scaledMomentum1": rule.momentum,
        }
    return {
        "scaledLearningRate2": lr,
        "scaledWeightDecay2": kept * decay,
        "dampeningScaleFactor2": kept / scale,
        "scaledMomentum2": rule.momentum,
    }
