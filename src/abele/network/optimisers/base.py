"""Optimisers as data: the update rule, and the numbers that can change without recompiling.

A rule says once, as expressions, what a step makes of a parameter and of the state beside it. The same expressions are
lowered to one fused pass per parameter (:mod:`abele.distribution.update`), and are evaluated in NumPy to say what an
``update`` op means. What depends on the number of the step alone, such as the corrections of Adam's moments, is a
scalar of the optimiser, which advances once before the updates of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError
from abele.expr import evaluate
from abele.network.ir.value import Value
from abele.network.optimisers.terms import GRADIENT, PARAMETER, Terms
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popops.expr import Expr


@dataclass(frozen=True)
class StateSlot:
    """Tensor of an optimiser for each parameter, or its scalar for all of them.

    Attributes:
        dtype: Element type that it is stored in; rules compute in f32.
        initial: Its value before the first step.
        lasting: False for a scalar that each step computes anew, of which nothing needs to be saved.
    """

    dtype: ElementType = f32
    initial: float = 0.0
    lasting: bool = True


@dataclass(frozen=True)
class Optimiser:
    """Base of the update rules.

    Attributes:
        variable: Names of the hyper-parameters that live on the device and may change between runs.
        loss_scaling: Factor of the loss before the backward pass; updates see gradients without it.
        max_grad_norm: The gradients of all parameters together are shrunk to this norm where theirs is larger.
        max_grad_value: Each element of a gradient is cut to this magnitude.
        accumulation: Element type of the sums of gradients over micro-batches.
    """

    variable: frozenset[str] = field(default=frozenset({"lr"}), kw_only=True)
    loss_scaling: float = field(default=1.0, kw_only=True)
    max_grad_norm: float = field(default=math.inf, kw_only=True)
    max_grad_value: float = field(default=math.inf, kw_only=True)
    accumulation: ElementType = field(default=f32, kw_only=True)

    def __post_init__(self) -> None:
        for name, kind in self.types.items():
            if kind not in (f16, f32):
                raise InvalidOptionError(f"{type(self).__name__}.{name} is f16 or f32, not {kind}")
        if not self.loss_scaling > 0:
            raise InvalidOptionError(f"{type(self).__name__}.loss_scaling is positive, not {self.loss_scaling:g}")
        for name in ("max_grad_norm", "max_grad_value"):
            if not getattr(self, name) > 0:
                raise InvalidOptionError(f"{type(self).__name__}.{name} is positive, not {getattr(self, name):g}")

    @property
    def numbers(self) -> dict[str, float]:
        """Every numeric hyper-parameter."""
        return {
            f.name: float(getattr(self, f.name))
            for f in fields(self)
            if isinstance(getattr(self, f.name), (int, float))
        }

    @property
    def types(self) -> dict[str, ElementType]:
        """Element types of the state."""
        return {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), ElementType)}

    @property
    def maximises(self) -> bool:
        """True if updates climb."""
        return bool(getattr(self, "maximize", False))

    @property
    def keeps_gradients(self) -> bool:
        """True if gradients are used element by element as they are."""
        return math.isinf(self.max_grad_value)

    # --- the rule ------------------------------------------------------------------------------------------------

    def slots(self) -> dict[str, StateSlot]:
        """Tensors beside each parameter."""
        return {}

    def scalars(self) -> dict[str, StateSlot]:
        """Scalars for all parameters."""
        return {}

    def advance(self, t: Terms) -> dict[str, Expr]:
        """New values of the scalars before the updates of a step."""
        return {}

    def update(self, t: Terms) -> dict[str, Expr]:
        """New values of the parameter and of each slot, by name."""
        raise NotImplementedError

    # --- its meaning ---------------------------------------------------------------------------------------------

    def first_step(self, parameter: Array, gradient: Array) -> Array:
        """A parameter after the first step: the definition that updates are held to."""
        return self.step({}, parameter, gradient)

    def step(self, state: dict[str, Array], parameter: Array, gradient: Array) -> Array:
        """A parameter after a step; ``state`` is the optimiser's memory, empty before the first."""
        for name, slot in self.scalars().items():
            state.setdefault(name, np.asarray(slot.initial, np.float64))
        for name, slot in self.slots().items():
            state.setdefault(name, np.full(parameter.shape, slot.initial))
        state.update(self.evaluated(self.advance, {}, state))
        tensors = {PARAMETER: parameter, GRADIENT: gradient} | {name: state[name] for name in self.slots()}
        after = self.moved(tensors, state)
        moved = after.pop(PARAMETER)
        state.update(after)
        return np.asarray(moved)

    def moved(self, tensors: Mapping[str, Array], state: Mapping[str, Array]) -> dict[str, Array]:
        """The parameter and its slots after a step, scalars having advanced."""
        return self.evaluated(self.update, tensors, state)

    def evaluated(
        self, rule: Callable[[Terms], dict[str, Expr]], tensors: Mapping[str, Array], state: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The expressions of a rule in NumPy."""
        terms = Terms(dict.fromkeys(tensors, f32), self.numbers, self.variable)
        exprs = rule(terms)
        numbers, kept = self.numbers, {**state, **tensors}
        arrays = [np.asarray(numbers[name] if kind == "number" else kept[name]) for kind, name in terms.operands]
        types = tuple(f32 for _ in arrays)
        return {name: np.asarray(evaluate(e.lower(types), arrays)) for name, e in exprs.items()}

    # --- replacement ---------------------------------------------------------------------------------------------

    def check_replacement(self, other: Optimiser) -> None:
        """Raise unless ``other`` differs only in variable numbers.

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
        for name, kind in self.types.items():
            if other.types[name] != kind:
                raise InvalidOptionError(
                    f"{type(self).__name__}.{name} was compiled as {kind}, it cannot become {other.types[name]}",
                    remedy="make a new training model",
                )


@dataclass(frozen=True)
class Group:
    """Parameters that share one optimiser."""

    optimiser: Optimiser
    parameters: tuple[Value, ...]


def climbs(groups: Sequence[Group]) -> bool:
    """True if every update maximises: the loss is then negated as a whole, and updates descend on that."""
    return bool(groups) and all(g.optimiser.maximises for g in groups)
