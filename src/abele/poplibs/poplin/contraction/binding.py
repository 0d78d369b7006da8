"""Bindings: a user's tensor, and which dimension of a contraction each of its dimensions is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from abele.graph import Tensor
from abele.kernels.nest.ir import Affine
from abele.poplibs.poplin.contraction.operand import Operand, operand

Index = tuple[Affine, ...]


@dataclass(frozen=True)
class Binding:
    """A tensor with a role for each of its dimensions.

    Attributes:
        tensor: The tensor as the library call is given it.
        roles: For each dimension the name of the contraction's dimension, or ``g*`` and a name where the groups are
            folded into it, outermost.
        groups: Groups of the contraction.
    """

    tensor: Tensor
    roles: tuple[str, ...]
    groups: int

    def operand(self) -> Operand:
        """The tensor with folded groups split off, dimensions named."""
        return self._operand

    @cached_property
    def _operand(self) -> Operand:
        shape: list[int] = []
        dims: list[str] = []
        for extent, role in zip(self.tensor.shape, self.roles, strict=True):
            if role.startswith("g*"):
                shape += [self.groups, extent // self.groups]
                dims += ["g", role[2:]]
            else:
                shape.append(extent)
                dims.append(role)
        return operand(self.tensor.reshape(shape), dims)

    def locate(self, at: Mapping[str, Affine]) -> Index:
        """Index of the element at a point of the contraction, given by dimension name."""
        return tuple(
            at["g"] * (extent // self.groups) + at[role[2:]] if role.startswith("g*") else at[role]
            for extent, role in zip(self.tensor.shape, self.roles, strict=True)
        )


def field_roles(name: str, rank: int) -> tuple[str, ...]:
    """Roles of ``rank`` field dimensions: the inputs ``i``, the kernel ``k`` or the outputs ``o``."""
    return tuple(f"{name}{d}" for d in range(rank))
