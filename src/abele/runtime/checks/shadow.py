"""Shadow: flags of written elements, and the poison of others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import Tensor, Variable
from abele.graph.intervals import expand
from abele.numerics import ElementType
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.elements import Elements, VariablePart

_POISON = {"f16": 0x7EDE, "bf16": 0x7FED, "f32": 0x7FE0DEAD, 32: 0xDEADBEEF, 64: 0xDEADBEEFDEADBEEF}
"""Bits of elements that nothing has written: quiet NaN with a payload that no arithmetic makes, or a rare integer."""


def poison_bits(dtype: ElementType) -> int | None:
    """Bits that mark an element of a type as not written; None where every pattern is an ordinary value."""
    return _POISON.get(dtype.name, _POISON.get(dtype.bits) if dtype.kind in ("int", "uint") else None)


class Shadow:
    """Validity of every element in every replica.

    An element that is not valid holds poison, so a step that leaves poison there has not written it. Integers of 8 and
    16 bits, and bools, have no pattern to spare: what may write them counts as having done so.

    Attributes:
        valid: bool[replicas, elements of the global space].
    """

    def __init__(self, arena: Arena, variables: Iterable[Variable]) -> None:
        self._arena = arena
        self._variables = tuple(v for v in variables if v.size)
        size = max((v.base + v.size for v in self._variables), default=0)
        self.valid = np.zeros((arena.replicas, size), dtype=bool)

    def load(self) -> None:
        """Only initial contents are valid; the rest is poisoned."""
        self.valid[...] = False
        for variable in self._variables:
            if variable.initial is not None or variable.is_constant:
                self.valid[:, variable.base : variable.base + variable.size] = True
            else:
                _poison(self._arena, variable, slice(None))

    def set(self, tensor: Tensor) -> None:
        """A view was written."""
        self.valid[:, addresses_of(tensor)] = True

    def forget(self, elements: Elements) -> None:
        """Mark the contents of some elements as undefined."""
        self.valid[:, elements.address] = False
        for part in elements.parts:
            _poison(self._arena, part.variable, part.index)

    def learn(self, elements: Elements) -> None:
        """A step that may have written some elements is done: those that do not hold poison are valid."""
        for part in elements.parts:
            address = elements.address[part.place]
            self.valid[:, address] |= self.written(part)

    def written(self, part: VariablePart) -> npt.NDArray[np.bool_] | bool:
        """True for each element that holds something other than poison, [replicas, k]."""
        poison = poison_bits(part.variable.dtype)
        return True if poison is None else np.asarray(part.bits(self._arena) != poison)

    def first_invalid(self, address: Int64) -> tuple[int, int] | None:
        """Replica, and position in ``address``, of the first element that nothing has written; None when all are."""
        found = self.valid[:, address]
        if found.all():
            return None
        replica, place = np.unravel_index(int(np.argmin(found)), found.shape)
        return int(replica), int(place)


def addresses_of(tensor: Tensor) -> Int64:
    """Addresses of the elements that a view shows, in its flattened order, int64[n]."""
    return expand(*tensor.intervals())


def _poison(arena: Arena, variable: Variable, index: Any) -> None:
    bits = poison_bits(variable.dtype)
    if bits is not None:
        flat = arena.images(variable).reshape(arena.replicas, -1)
        flat.view(f"u{variable.dtype.bytes}")[:, index] = bits
