"""Terms of update rules: elements of tensors, and numbers that are compiled in or live on the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

from abele.numerics import ElementType, f32
from abele.poplibs.popops.expr import Cast, Const, Expr, Op, PlaceHolder

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
