"""Variables that follow the device: whoever reads one gets its newest value, and writes reach the next execution.

Sessions hold the values between executions. A variable's array is fetched when somebody looks, a checkpoint or
``get_weights()`` for example, and no earlier; so callbacks that look at nothing cost no transfer.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.frontends.keras.private import Variable
from abele.session import SharedArray
from abele.session.arrays import CHANGES

_CELL, _ARRAY = "_abele_cell", "_value"
"""Attributes with the cell of a variable, and with its array."""


class VariableCell(SharedArray):
    """The array of a Keras variable as sessions share it."""

    notes_writes: ClassVar[bool] = True

    def __init__(self, variable: Any) -> None:
        self._variable = variable.__dict__
        self._version = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        return tuple(np.shape(self._variable[_ARRAY]))

    def values(self) -> Array:
        """The host's copy as it is."""
        return np.asarray(self._variable[_ARRAY])

    def assign(self, values: npt.ArrayLike) -> None:
        """Write the host's copy."""
        self.put(jnp.array(values, self._variable[_ARRAY].dtype))

    def put(self, array: Any) -> None:
        """Take an array of JAX's as the host's copy."""
        self._variable[_ARRAY] = array
        self._version += 1
        CHANGES.note()


class _FollowingVariable:
    """Attributes of variables that follow the device."""

    @property
    def _value(self) -> Any:
        cell: VariableCell = self.__dict__[_CELL]
        cell.bring_up_to_date()
        return self.__dict__[_ARRAY]

    @_value.setter
    def _value(self, array: Any) -> None:
        self.__dict__[_CELL].put(array)


_CLASSES: dict[type, type] = {}
"""For each class of variables the one that follows the device."""


def cell_of(variable: Any) -> VariableCell:
    """The cell of a variable, which follows the device from now on."""
    found = variable.__dict__.get(_CELL)
    if found is None:
        assert isinstance(variable, Variable)
        kind = type(variable)
        found = variable.__dict__[_CELL] = VariableCell(variable)
        if kind not in _CLASSES:
            _CLASSES[kind] = type(kind.__name__, (_FollowingVariable, kind), {"__module__": kind.__module__})
        variable.__class__ = _CLASSES[kind]
    return found  # type: ignore[no-any-return]
