"""The elements of all variables of a graph in one space of addresses: making variables, finding them by address."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import TensorCreationError, TensorError, TypeMismatchError
from abele.graph.debug import DebugRecord
from abele.graph.expect import dimensions
from abele.graph.intervals import distinct
from abele.graph.mapping import TileMapping
from abele.graph.variable import Variable
from abele.numerics import as_element_type, misfit, to_device

if TYPE_CHECKING:
    from abele.graph.tensor import Tensor

MOST_ELEMENTS = 2**63 - 1
"""Elements of all variables of a graph: addresses are 64-bit integers."""


class AddressSpace:
    """The variables of a graph, one after the other in a space of 64-bit element addresses.

    Attributes:
        variables: All of them, in order of their addresses.
        num_elements: Elements of all: one past the last address.
    """

    __slots__ = ("_bases", "num_elements", "variables")

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.num_elements = 0
        self._bases: Int64 = np.empty(0, dtype=np.int64)

    def new(self, dtype: Any, shape: Any, kind: str, initial: npt.ArrayLike | None, debug: DebugRecord) -> Variable:
        """A new variable behind those that there are; arguments as for :meth:`Graph.variable`.

        Raises:
            TensorCreationError: A negative dimension, more than 2^63 elements, or an initial value of another shape.
            TypeMismatchError: An element type that the machine lacks, or an initial value that does not fit it.
        """
        element = as_element_type(dtype)
        dims = dimensions(shape, f"variable {debug.name!r}")
        size = math.prod(dims)
        if self.num_elements + size > MOST_ELEMENTS:
            raise TensorCreationError(
                f"variable {debug.name!r} of shape {list(dims)} has {size:,} elements; "
                "all variables together can have 2^63",
                at=debug.location,
            )
        variable = Variable(
            id=len(self.variables),
            name=debug.full_name,
            dtype=element,
            shape=dims,
            base=self.num_elements,
            kind=kind,
            mapping=TileMapping.unmapped(size),
            initial=None,
            debug=debug,
        )
        if initial is not None:
            variable.initial = _contents(variable, initial, dims).copy()
        self.variables.append(variable)
        self.num_elements += size
        return variable

    def copy(
        self, source: Variable, mapping: TileMapping, initial: npt.NDArray[Any] | None, debug: DebugRecord
    ) -> Variable:
        """A new variable like another, behind those that there are, with a mapping and contents at load."""
        made = Variable(
            id=len(self.variables),
            name=debug.full_name,
            dtype=source.dtype,
            shape=source.shape,
            base=self.num_elements,
            kind=source.kind,
            mapping=mapping,
            initial=initial,
            debug=debug,
        )
        self.variables.append(made)
        self.num_elements += made.size
        return made

    def bases(self) -> Int64:
        """Address of the first element of each variable, ascending, int64[variables]."""
        known = len(self._bases)
        if known != len(self.variables):
            # Empty variables share their base with the next one, which searches from the right find.
            new = np.array([v.base for v in self.variables[known:]], dtype=np.int64)
            self._bases = np.concatenate([self._bases, new])
        return self._bases

    def locate(self, address: int) -> tuple[Variable, int]:
        """The variable and element that an address belongs to."""
        variable = self.variables[int(np.searchsorted(self.bases(), address, side="right")) - 1]
        return variable, address - variable.base

    def at(self, addresses: Int64) -> tuple[Variable, ...]:
        """The variables that hold the given addresses, in order of their own."""
        ids = distinct(np.searchsorted(self.bases(), addresses.reshape(-1), side="right") - 1)
        return tuple(self.variables[int(i)] for i in ids)

    def find(self, name: str) -> list[Variable]:
        """The variables called ``name``."""
        return [v for v in self.variables if v.name == name]


def initialise(tensor: Tensor, value: npt.ArrayLike) -> None:
    """Set the contents at load of the variable that ``tensor`` shows as a whole.

    Raises:
        TensorError: The view is not the whole of one variable.
        TensorCreationError: The shapes differ.
        TypeMismatchError: A value does not fit the element type.
    """
    strided = tensor.strided()
    if strided is None or strided.variable.size != tensor.size or tensor.contains_aliases:
        raise TensorError(f"only a whole variable can be initialised, not {tensor!r}")
    variable = strided.variable
    values = _contents(variable, value, tensor.shape)
    if np.ndim(value) == 0:
        # One number for all elements takes no memory until it is loaded.
        variable.initial = np.broadcast_to(to_device(value, variable.dtype), variable.shape)
        return
    contents = np.empty(variable.size, dtype=variable.dtype.np)
    placed = strided.of(contents)
    placed[...] = values.reshape(placed.shape)
    variable.initial = contents.reshape(variable.shape)


def _contents(variable: Variable, value: npt.ArrayLike, shape: Sequence[int]) -> npt.NDArray[Any]:
    """A value for all elements, or an array of them, as device elements of ``shape``."""
    given = np.shape(value)
    if given not in ((), tuple(shape)):
        raise TensorCreationError(
            f"{variable!r} cannot start as an array of shape {list(given)}",
            at=variable.debug.location or None,
            remedy=f"one number, or an array of shape {list(shape)}",
        )
    wrong = misfit(value, variable.dtype)
    if wrong is not None:
        raise TypeMismatchError(
            f"{variable!r} holds {variable.dtype}, it cannot start as {wrong}",
            at=variable.debug.location or None,
            remedy=f"values that fit, or another type; array.astype({variable.dtype.np.name!r}) cuts them",
        )
    return np.broadcast_to(to_device(value, variable.dtype), tuple(shape))
