"""The variables of a graph: making, finding and initialising them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import TensorCreationError, TensorError, TypeMismatchError
from abele.graph.block import whole as whole_block
from abele.graph.block_list import BlockList
from abele.graph.expect import dimensions
from abele.graph.intervals import Int64, distinct
from abele.graph.mapping import TileMapping
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.numerics import as_element_type, misfit, to_device

if TYPE_CHECKING:
    from abele.graph.graph import Graph

MOST_ELEMENTS = 2**63 - 1
"""Elements of all variables of a graph: addresses are 64-bit integers."""


class Variables:
    """Mix-in of :class:`Graph`."""

    def variable(  # type: ignore[misc]
        self: Graph,
        dtype: Any,
        shape: int | Sequence[int],
        name: str = "variable",
        *,
        initial: npt.ArrayLike | None = None,
        map: Any = None,
    ) -> Tensor:
        """A new variable, as the view of all its elements.

        Args:
            dtype: Element type.
            shape: Dimensions; row-major in memory.
            name: Its name; scopes are prefixed.
            initial: Contents at load; undefined when left out.
            map: Where it goes: ``"linear"`` spreads it over all tiles, anything else is as :meth:`Graph.map` takes it;
                left out, it is mapped nowhere yet.

        Raises:
            TensorCreationError: A negative dimension, more than 2^63 elements, or an initial value of another shape.
            TypeMismatchError: An element type that the machine lacks, or an initial value that does not fit it.
            TileMappingError: A tile that the graph lacks.
        """
        tensor = self._new(dtype, shape, name, "variable", initial)
        return tensor if map is None else self.map(tensor, map)

    def constant(  # type: ignore[misc]
        self: Graph, dtype: Any, shape: int | Sequence[int] | None, value: npt.ArrayLike, name: str = "constant"
    ) -> Tensor:
        """A read-only tensor with its value; on tile 0 until mapped elsewhere.

        ``value`` is one number for all elements, or an array of ``shape`` (``None``: the shape of the value).
        """
        if shape is None:
            shape = np.shape(value)
        tensor = self._new(dtype, shape, name, "constant", value)
        return self.map(tensor, 0)

    def _new(self: Graph, dtype: Any, shape: Any, name: str, kind: str, initial: npt.ArrayLike | None) -> Tensor:  # type: ignore[misc]
        element = as_element_type(dtype)
        dims = dimensions(shape, f"variable {name!r}")
        debug = self.origin(name)
        size = math.prod(dims)
        if self.num_elements + size > MOST_ELEMENTS:
            raise TensorCreationError(
                f"variable {name!r} of shape {list(dims)} has {size:,} elements; all variables together can have 2^63",
                at=debug.location,
            )
        variable = Variable(
            len(self.variables),
            debug.full_name,
            element,
            dims,
            self.num_elements,
            kind,
            TileMapping.unmapped(size),
            None,
            debug,
        )
        if initial is not None:
            variable.initial = _contents(variable, initial, dims).copy()
        self.variables.append(variable)
        self.num_elements += size
        return Tensor(self.top_level, element, dims, BlockList((whole_block(variable),)))

    def initialise(self: Graph, tensor: Tensor, value: npt.ArrayLike) -> None:  # type: ignore[misc]
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
        contents = np.empty(variable.size, dtype=variable.dtype.np)
        values = _contents(variable, value, tensor.shape)
        contents[tensor.addresses().reshape(-1) - variable.base] = values.reshape(-1)
        variable.initial = contents.reshape(variable.shape)

    def whole(self: Graph, variable: Variable) -> Tensor:  # type: ignore[misc]
        """The view of all elements of a variable."""
        return Tensor(self.top_level, variable.dtype, variable.shape, BlockList((whole_block(variable),)))

    def find(self: Graph, name: str) -> list[Variable]:  # type: ignore[misc]
        """The variables called ``name``."""
        return [v for v in self.variables if v.name == name]

    def locate(self: Graph, address: int) -> tuple[Variable, int]:  # type: ignore[misc]
        """The variable and element that a global address belongs to."""
        bases = self._bases()
        variable = self.variables[int(np.searchsorted(bases, address, side="right")) - 1]
        return variable, address - variable.base

    def variables_at(self: Graph, addresses: Int64) -> tuple[Variable, ...]:  # type: ignore[misc]
        """The variables that hold the given addresses."""
        ids = distinct(np.searchsorted(self._bases(), addresses.reshape(-1), side="right") - 1)
        return tuple(self.variables[int(i)] for i in ids)

    def _bases(self: Graph) -> Int64:  # type: ignore[misc]
        known = len(self._base_cache)
        if known != len(self.variables):
            # Empty variables share their base with the next one, which searches from the right find.
            new = np.array([v.base for v in self.variables[known:]], dtype=np.int64)
            self._base_cache = np.concatenate([self._base_cache, new])
        return self._base_cache


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
