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
from functools import cached_property

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError
from abele.expr import evaluate
from abele.network.ir.value import Value
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popops.expr import Cast, Const, Expr, Op, PlaceHolder

# Terms of update rules: elements of tensors, and numbers that are compiled in or live on the device.

PARAMETER, GRADIENT = "parameter", "gradient"
"""Names in rules of the two tensors that every update has."""

SCALE = "gradient_scale"
"""Name of the factor of gradients before a rule sees them, where it is a scalar on the device."""


class Terms:
    """The operands of an update rule as placeholders, numbered as the rule first asks for them.

    Args:
        tensors: Element type of each tensor that the rule walks, by name; they are the first operands.
        numbers: Hyper-parameters; those that are not in ``variable`` become constants.
        variable: Names of the hyper-parameters that are scalars on the device.
        factor: Factor of gradients.
        scaled: True if they are multiplied by the scalar :data:`SCALE` too.

    Attributes:
        operands: The operands in the order of their placeholders: (kind, name), where the kind is ``state`` or
            ``number``.
    """

    def __init__(
        self,
        tensors: Mapping[str, ElementType],
        numbers: Mapping[str, float],
        variable: frozenset[str],
        *,
        factor: float = 1.0,
        scaled: bool = False,
    ) -> None:
        self._types = dict(tensors)
        self._numbers = numbers
        self._variable = variable
        self._factor = factor
        self._scaled = scaled
        self._known: dict[tuple[str, str], Expr] = {}
        for name in tensors:
            self[name]

    @property
    def operands(self) -> list[tuple[str, str]]:
        """The operands in order."""
        return list(self._known)

    def __getitem__(self, name: str) -> Expr:
        """The element of a tensor, or a scalar that the optimiser keeps; floats as f32."""
        return self._operand("state", name)

    def _operand(self, kind: str, name: str) -> Expr:
        if (kind, name) not in self._known:
            place, dtype = PlaceHolder(len(self._known) + 1), self._types.get(name, f32)
            self._known[kind, name] = Cast(place, f32) if dtype.is_float and dtype != f32 else place
        return self._known[kind, name]

    @cached_property
    def gradient(self) -> Expr:
        """The gradient as a rule is to see it: without the scale of the loss, and cut."""
        gradient = self.scaled(self[GRADIENT])
        if not math.isinf(self._numbers["max_grad_value"]):
            most = self.number("max_grad_value")
            gradient = Op("max", Op("min", gradient, most), -most)
        return gradient

    def scaled(self, gradient: Expr) -> Expr:
        """Something that is in proportion to the gradient as it was made, without the scale of the loss."""
        if self._scaled:
            gradient = gradient * self[SCALE]
        return gradient * self._factor if self._factor != 1 else gradient

    def number(self, name: str) -> Expr:
        """A hyper-parameter."""
        return self._operand("number", name) if name in self._variable else Const(float(self._numbers[name]))

    def is_used(self, name: str) -> bool:
        """True unless a hyper-parameter is 0 for good."""
        return name in self._variable or self._numbers[name] != 0


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
        clipped_with: Name of the parameters that this is for, of whatever optimiser; others have norms of their own.
        max_grad_value: Each element of a gradient is cut to this magnitude.
        accumulation: Element type of the sums of gradients over micro-batches.
    """

    variable: frozenset[str] = field(default=frozenset({"lr"}), kw_only=True)
    loss_scaling: float = field(default=1.0, kw_only=True)
    max_grad_norm: float = field(default=math.inf, kw_only=True)
    clipped_with: str = field(default="", kw_only=True)
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
