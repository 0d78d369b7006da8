"""Optimisers as data: which update rule, and which of its numbers can change without recompiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from abele.errors import InvalidOptionError, UnsupportedOpError
from abele.parallel.network.frozen import Array
from abele.parallel.network.value import Value


@dataclass(frozen=True)
class Optimiser:
    """Base of the update rules.

    Attributes:
        variable: Names of the hyper-parameters that live on the device and may change between runs.
    """

    variable: frozenset[str] = field(default=frozenset({"lr"}), kw_only=True)

    @property
    def numbers(self) -> dict[str, float]:
        """Every numeric hyper-parameter."""
        return {
            f.name: float(getattr(self, f.name))
            for f in fields(self)
            if isinstance(getattr(self, f.name), (int, float))
        }

    def first_step(self, parameter: Array, gradient: Array) -> Array:
        """A parameter after the first step, when there is no momentum yet: the definition that updates are held to."""
        raise NotImplementedError

    def check_replacement(self, other: Optimiser) -> None:
        """Raise unless ``other`` differs only in what is variable here.

        Raises:
            InvalidOptionError: Another rule, or a constant that changed.
        """
        if type(other) is not type(self):
            raise InvalidOptionError(
                f"the program was compiled for {type(self).__name__}, not {type(other).__name__}",
                remedy="make a new training model",
            )
        for name, value in self.numbers.items():
            if name not in self.variable and other.numbers[name] != value:
                raise InvalidOptionError(
                    f"{type(self).__name__}.{name} was compiled as the constant {value:g}, it cannot become "
                    f"{other.numbers[name]:g}",
                    remedy=f"mark {name} as variable before compiling, or make a new training model",
                )


@dataclass(frozen=True)
class Sgd(Optimiser):
    """Stochastic gradient descent, with momentum that may be damped: b ← m·b + (1 − d)·g; p ← p − lr·b."""

    lr: float = 0.01
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    maximize: bool = False

    def first_step(self, parameter: Array, gradient: Array) -> Array:
        """p − lr·(g + w·p); the momentum starts as the whole gradient, and Nesterov's adds it once more."""
        slope = gradient + self.weight_decay * parameter
        return np.asarray(parameter - self.lr * (slope * (1 + self.momentum) if self.nesterov else slope))


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam; ``decoupled`` weight decay makes it AdamW."""

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    bias_correction: bool = True
    maximize: bool = False

    def first_step(self, parameter: Array, gradient: Array) -> Array:
        """Both moments from zero, corrected for their bias if asked."""
        slope = gradient if self.decoupled else gradient + self.weight_decay * parameter
        kept = parameter * (1 - self.lr * self.weight_decay) if self.decoupled else parameter
        first = slope if self.bias_correction else (1 - self.beta1) * slope
        second = slope**2 if self.bias_correction else (1 - self.beta2) * slope**2
        return np.asarray(kept - self.lr * first / (np.sqrt(second) + self.eps))


@dataclass(frozen=True)
class Group:
    """Parameters that share one optimiser."""

    optimiser: Optimiser
    parameters: tuple[Value, ...]


def sign_of(groups: Sequence[Group]) -> float:
    """Sign of the loss's gradient: an update that maximises descends on its negative.

    Raises:
        UnsupportedOpError: Some groups maximise, others do not.
    """
    signs = {bool(getattr(g.optimiser, "maximize", False)) for g in groups}
    if len(signs) > 1:
        raise UnsupportedOpError("some optimiser groups maximise and others minimise", remedy="use one direction")
    return -1.0 if signs == {True} else 1.0
