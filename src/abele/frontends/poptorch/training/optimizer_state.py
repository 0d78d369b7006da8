"""The state of an optimiser on the device under the names that PopTorch has for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from abele.frontends.poptorch.training.optim import LOSS_FACTOR, LOSS_SCALE
from abele.frontends.poptorch.training.rules import read_rules
from abele.frontends.poptorch.values.tensors import to_array
from abele.network import Optimiser, Sgd
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
_FACTOR, _STEPS = "loss_scaling/factor", "loss_scaling/steps"

State = dict[str, torch.Tensor]


@dataclass
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
    _given: tuple[State, State] = field(default_factory=lambda: ({}, {}))

    def read(self) -> tuple[State, State]:
        """State beside parameters, and the numbers in use; values that were written and did not run yet are as
        written.
        """
        state = {name: torch.from_numpy(self._kept(inner, initial)) for name, inner, initial in self._names()}
        found = (state, dict(self._numbers()))
        for part, given in zip(found, self._given, strict=True):
            part.update({name: given[name].to(t.dtype, copy=True) for name, t in part.items() if name in given})
        return found

    def _kept(self, inner: str, initial: float) -> npt.NDArray[Any]:
        """The host's copy of what is kept; what it begins with where the session never was on the device."""
        if inner in self.session.state:
            return self.session.state[inner]
        end = self.session.compiled.ends.state[inner]
        return np.full(end.host_shape(self.session.schedule.replicas), initial, end.np)

    def write(
        self, state: Mapping[str, torch.Tensor], numbers: Mapping[str, torch.Tensor], optimiser: torch.optim.Optimizer
    ) -> None:
        """Take over state and numbers; names unknown to the compiled optimiser are passed over.

        Args:
            state: State that is kept, by PopTorch's names.
            numbers: Values that numbers read as until the model runs.
            optimiser: Optimiser that they are from.
        """
        self.session.replace_optimisers(read_rules(optimiser))
        ends, given = self.session.compiled.ends.state, State()
        for name, inner, _ in self._names():
            if name in state:
                shape = ends[inner].host_shape(self.session.schedule.replicas)
                values = np.asarray(to_array(state[name]), ends[inner].np).reshape(shape)
                self.session.state[inner] = values
                given[name] = torch.from_numpy(values.copy())
        self._given = (given, dict(numbers))

    def note_run(self) -> None:
        """The model ran, or was given the numbers of another optimiser: nothing reads as it was given."""
        self._given = ({}, {})

    @property
    def _rules(self) -> Sequence[Optimiser]:
        return self.session.optimisers or ()

    def _names(self) -> Iterator[tuple[str, str, float]]:
        """PopTorch's name, that in the session, and the first value of all that is kept."""
        ends = self.session.compiled.ends.state
        yield from (found for found in self._every_name() if found[1] in ends)

    def _every_name(self) -> Iterator[tuple[str, str, float]]:
        for number, (rule, names) in enumerate(zip(self._rules, self.groups, strict=True)):
            for slot, kept in rule.slots().items():
                shown = _SLOTS.get(type(rule).__name__, {}).get(slot, slot)
                shown = "Accl" if shown == "Accl1" and self.combined else shown
                yield from ((f"{shown}___{name}", f"{name}/{slot}", kept.initial) for name in names)
            for scalar, kept in rule.scalars().items():
                inner = f"optimiser{number}/{scalar}"
                if scalar == "step":
                    yield from ((f"Step___{name}", inner, kept.initial) for name in names)
                elif kept.lasting:
                    yield f"{scalar}___group{number}", inner, kept.initial
        yield LOSS_FACTOR, _FACTOR, 1.0
        yield "lossScaleUpdateSteps", _STEPS, 0.0

    def _numbers(self) -> Iterator[tuple[str, torch.Tensor]]:
        for rule, names in zip(self._rules, self.groups, strict=True):
            numbers = {_NUMBERS[key]: value for key, value in rule.numbers.items() if key in _NUMBERS}
            if isinstance(rule, Sgd):
                numbers |= _of_descent(rule, combined=self.combined)
            for name in names:
                yield from ((f"{key}___specific___{name}", torch.tensor(value)) for key, value in numbers.items())
        if self._rules:
            factor = float(self.session.state[_FACTOR]) if _FACTOR in self.session.state else 1.0
            yield LOSS_SCALE, torch.tensor(self._rules[0].loss_scaling * factor)


def _of_descent(rule: Sgd, *, combined: bool) -> dict[str, float]:
    """Numbers of PopTorch's for SGD, by the variant of its rule."""
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
