"""Tensors of popxl: names for values that ops make, and that in-place ops change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from abele.arrays import Array
from abele.frontends.popxl.dtypes import as_dtype, dtype, narrowed
from abele.frontends.popxl.errors import ElementTypesError, GraphArgumentError, GraphTypeError
from abele.network.ir import OpBlock

if TYPE_CHECKING:
    from abele.frontends.popxl.graph import Graph, Ir


@dataclass(frozen=True, eq=False)
class Alias:
    """Part of another tensor that one shows.

    Attributes:
        base: The other.
        read: Its value, of the other's; None for the same.
        write: The other's value, of it and of a new value of this one.
    """

    base: Tensor
    read: OpBlock | None = None
    write: OpBlock | None = None


@dataclass(frozen=True)
class TensorSpec:
    """Shape and type of a tensor.

    Attributes:
        shape: Its shape.
        dtype: Its element type.
        meta_shape: Shape of what it is a part of.
    """

    shape: tuple[int, ...]
    dtype: dtype
    meta_shape: tuple[int, ...] = ()


class Tensor:
    """A tensor of a graph.

    Attributes:
        graph: The graph.
        id: Its name in the graph, with the graph's and scopes' names.
        shape: Its shape.
        dtype: Its element type.
        ipu: IPU that it is on.
        by_ref: True for an input whose changes the caller sees.
        alias: Part of another tensor that it shows, if it does.
    """

    __array_ufunc__ = None  # NumPy leaves operators between its arrays and tensors to tensors.

    def __init__(
        self,
        graph: Graph,
        name: str,
        shape: Iterable[int],
        kind: dtype,
        *,
        ipu: int = 0,
        by_ref: bool = False,
        alias: Alias | None = None,
    ) -> None:
        self.graph = graph
        self.shape = tuple(int(n) for n in shape)
        self.dtype, self.ipu, self.by_ref, self.alias = kind, ipu, by_ref, alias
        self.id = name
        graph.enlist(self, name)

    # --- what it is

    @property
    def name(self) -> str:
        """Its name without graph and scopes."""
        return self.id.rsplit("/", 1)[-1]

    @property
    def scope(self) -> str:
        """Graph and scopes of its name."""
        return self.id.rpartition("/")[0]

    @property
    def ir(self) -> Ir:
        """The Ir of its graph."""
        return self.graph.ir

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nelms(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """Nothing: it is no part of another."""
        return ()

    @property
    def spec(self) -> TensorSpec:
        """Its shape and type."""
        return TensorSpec(self.shape, self.dtype)

    @property
    def in_sync_with_ipu(self) -> bool:
        """True: it has no copy on the host."""
        return True

    def strides(self, data_shape: Sequence[int] | None = None) -> list[int]:
        """Elements from one index of each dimension to the next."""
        shape = self.shape if data_shape is None else tuple(data_shape)
        return [math.prod(shape[d + 1 :]) for d in range(len(shape))]

    def __hash__(self) -> int:
        return hash((self.id, self.ir.id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.id == other.id and self.ir == other.ir

    def __len__(self) -> int:
        if not self.shape:
            raise GraphArgumentError("Cannot return first dimension length. Tensor is a scalar.")
        return self.shape[0]

    def __iter__(self) -> NoReturn:
        raise GraphTypeError("Cannot iterate over a tensor", remedy="ops.split, or t[i]")

    def __contains__(self, _: object) -> NoReturn:
        raise GraphTypeError("Cannot look for a value in a tensor")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.id} {self.dtype.name} {self.shape}]"

    def check_writable(self, kind: str) -> None:
        """Raise unless ops may change it."""

    # --- operators

    def _other(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        array = np.asarray(value)
        if not array.size:
            raise GraphArgumentError("The value is empty", remedy="give a number or an array with elements")
        return constant(array, self.dtype)

    def _with(self, op: str, other: Any, *, turned: bool = False) -> Tensor:
        from abele.frontends.popxl import ops

        pair = (self._other(other), self) if turned else (self, self._other(other))
        made: Tensor = getattr(ops, op)(*pair)
        return made

    def __add__(self, other: Any) -> Tensor:
        return self._with("add", other)

    def __radd__(self, other: Any) -> Tensor:
        return self._with("add", other, turned=True)

    def __iadd__(self, other: Any) -> Tensor:
        return self._with("add_", other)

    def __sub__(self, other: Any) -> Tensor:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._with("sub", other, turned=True)

    def __mul__(self, other: Any) -> Tensor:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._with("mul", other, turned=True)

    def __truediv__(self, other: Any) -> Tensor:
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._with("div", other, turned=True)

    def __mod__(self, other: Any) -> Tensor:
        return self._with("fmod", other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._with("fmod", other, turned=True)

    def __pow__(self, other: Any) -> Tensor:
        return self._with("pow", other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._with("pow", other, turned=True)

    def __matmul__(self, other: Any) -> Tensor:
        return self._with("matmul", other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return self._with("matmul", other, turned=True)

    def __and__(self, other: Any) -> Tensor:
        return self._with("logical_and", other)

    def __rand__(self, other: Any) -> Tensor:
        return self._with("logical_and", other, turned=True)

    def __or__(self, other: Any) -> Tensor:
        return self._with("logical_or", other)

    def __ror__(self, other: Any) -> Tensor:
        return self._with("logical_or", other, turned=True)

    def __gt__(self, other: Any) -> Tensor:
        return self._with("greater", other)

    def __lt__(self, other: Any) -> Tensor:
        return self._with("greater", other, turned=True)

    def __neg__(self) -> Tensor:
        return self._of("negate")

    def __invert__(self) -> Tensor:
        return self._of("logical_not")

    def _of(self, op: str, *arguments: Any) -> Tensor:
        from abele.frontends.popxl import ops

        made: Tensor = getattr(ops, op)(self, *arguments)
        return made

    @property
    def T(self) -> Tensor:
        """It with its dimensions in reverse order."""
        return self.transpose()

    @property
    def T_(self) -> Tensor:
        """A view of it with its dimensions in reverse order."""
        return self.transpose_()

    def transpose(self, permutation: Sequence[int] | None = None) -> Tensor:
        """It with its dimensions in another order."""
        return self._of("transpose", permutation)

    def transpose_(self, permutation: Sequence[int] | None = None) -> Tensor:
        """A view of it with its dimensions in another order."""
        return self._of("transpose_", permutation)

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """It in another shape."""
        return self._of("reshape", shape)

    def reshape_(self, shape: Sequence[int]) -> Tensor:
        """A view of it in another shape."""
        return self._of("reshape_", shape)

    def flatten(self) -> Tensor:
        """It in one dimension."""
        return self._of("flatten")

    def flatten_(self) -> Tensor:
        """A view of it in one dimension."""
        return self._of("flatten_")

    def detach(self) -> Tensor:
        """It, through which no gradient goes."""
        return self._of("detach")

    def detach_(self) -> Tensor:
        """A view of it, through which no gradient goes."""
        return self._of("detach_")

    def diag(self) -> Tensor:
        """The diagonal of a matrix.

        Raises:
            GraphArgumentError: It is no square matrix.
        """
        if self.rank != 2 or self.shape[0] != self.shape[1]:
            raise GraphArgumentError(f"diag takes a square matrix, {self.id!r} is {list(self.shape)}")
        from abele.frontends.popxl import ops

        return ops.slice(self.flatten(), 0, self.nelms, self.shape[0] + 1, 0)

    def copy_to_ipu(self, destination: int, source: int | None = None) -> Tensor:
        """It on another IPU."""
        return self._of("ipu_copy", destination, source)

    def __getitem__(self, key: Any) -> Tensor:
        from abele.frontends.popxl.ops.views import indexed

        return indexed(self, key)


class TensorByRef(Tensor):
    """Annotation of an argument that becomes an input by reference."""


class Variable(Tensor):
    """A tensor of the main graph that keeps its value from run to run."""

    def __init__(self, graph: Graph, name: str, data: Array, kind: dtype) -> None:
        super().__init__(graph, name, data.shape, kind)
        self.data = data


class Constant(Tensor):
    """A tensor that never changes."""

    def __init__(self, graph: Graph, name: str, data: Array, kind: dtype) -> None:
        super().__init__(graph, name, data.shape, kind)
        self.data = data

    def check_writable(self, kind: str) -> None:
        """Raise: it never changes.

        Raises:
            GraphArgumentError: Always.
        """
        raise GraphArgumentError(f"{kind} changes {self.id!r}, which is a constant", remedy="popxl.variable")


def host_array(data: Any, kind: Any, downcast: bool = True) -> tuple[Array, dtype]:
    """Data of the host as an array of its own, and its type.

    Raises:
        GraphTypeError: Its type is none of popxl's.
    """
    if hasattr(data, "detach") and hasattr(data, "numpy"):
        data = data.detach().cpu().numpy()
    array = np.asarray(data)
    chosen = as_dtype(array.dtype) if kind is None else as_dtype(kind)
    if kind is None and downcast:
        chosen = narrowed(chosen)
    chosen.element  # noqa: B018  (raises where the machine has no such type)
    return np.array(array, dtype=chosen.as_numpy(), order="C"), chosen


def constant(data: Any, dtype: Any = None, name: str | None = None, downcast: bool = True) -> Constant:
    """A new constant of the current graph."""
    from abele.frontends.popxl.graph import get_current_graph

    array, kind = host_array(data, dtype, downcast)
    return Constant(get_current_graph(), name or "c", array, kind)


def variable(data: Any, dtype: Any = None, name: str | None = None, downcast: bool = True) -> Variable:
    """A new variable of the main graph.

    Raises:
        GraphArgumentError: Another graph is selected.
    """
    from abele.frontends.popxl.graph import get_current_graph

    graph = get_current_graph()
    if not graph.is_main:
        raise GraphArgumentError(
            "You can only initialise a variable tensor within the main graph", remedy="hand it to the graph"
        )
    array, kind = host_array(data, dtype, downcast)
    return Variable(graph, name or "v", array, kind)


def check_same_types(kind: str, tensors: Sequence[Tensor]) -> None:
    """Raise unless tensors have one element type and one IPU.

    Raises:
        ElementTypesError: Their element types differ.
        GraphArgumentError: They are on different IPUs.
    """
    names = {t.dtype.name for t in tensors}
    if len(names) > 1:
        shown = ", ".join(f"{t.id!r} {t.dtype.name}{list(t.shape)}" for t in tensors)
        raise ElementTypesError(f"{kind} takes tensors of one type, got {shown}", remedy="ops.cast one of them")
    if len({t.ipu for t in tensors}) > 1:
        shown = ", ".join(f"{t.id!r} on IPU {t.ipu}" for t in tensors)
        raise GraphArgumentError(f"{kind} takes tensors of one IPU, got {shown}", remedy="t.copy_to_ipu(…)")


__all__ = ["Alias", "Constant", "Tensor", "TensorByRef", "TensorSpec", "Variable", "constant", "variable"]
