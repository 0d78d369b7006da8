"""Tensors of popxl: names for values that ops make, and that in-place ops change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from abele.arrays import Array
from abele.frontends.popxl.dtypes import as_dtype, dtype, narrowed
from abele.frontends.popxl.errors import (
    ConstructionError,
    ElementTypesError,
    GraphArgumentError,
    GraphTypeError,
    UnknownTypeError,
)
from abele.frontends.popxl.locations import TensorLocation, TensorStorage
from abele.frontends.popxl.replicas import RETRIEVAL_MODES, HostRows, ReplicaGrouping, checked_grouping
from abele.network.ir import OpBlock

if TYPE_CHECKING:
    from abele.frontends.popxl.graph import Graph
    from abele.frontends.popxl.ir import Ir


@dataclass(frozen=True, eq=False)
class Alias:
    """Part of another tensor that one shows.

    Attributes:
        base: The other.
        read: Its value, of the other's; None for the same.
        write: The other's value, of it and of a new value of this one.
        others: Further ones that it shows parts of; blocks then take and give the values of all.
    """

    base: Tensor
    read: OpBlock | None = None
    write: OpBlock | None = None
    others: tuple[Tensor, ...] = ()

    @property
    def bases(self) -> tuple[Tensor, ...]:
        """All tensors that it shows."""
        return (self.base, *self.others)


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
        meta_shape: Shape of the tensor that replicas have together, if it is a part of one; empty otherwise.
    """

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """An object for functions of popxl: programs do not call the class.

        Raises:
            ConstructionError: There are no arguments.
        """
        if not (arguments or options):
            raise ConstructionError(
                f"popxl.{cls.__name__} cannot be constructed directly.",
                remedy="popxl.variable, popxl.constant or an op",
            )
        return super().__new__(cls)

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
        meta_shape: tuple[int, ...] = (),
    ) -> None:
        self.graph, self.meta_shape = graph, meta_shape
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
    def spec(self) -> TensorSpec:
        """Its shape and type."""
        return TensorSpec(self.shape, self.dtype, self.meta_shape)

    @property
    def location_info(self) -> TensorLocation:
        """On the chip."""
        return TensorLocation(TensorStorage.OnChip)

    @property
    def tile_set(self) -> str:
        """``compute``: no tiles are set aside for the host."""
        return "compute"

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

    def check_usable(self) -> None:
        """Raise unless ops can read it."""

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
    """A tensor of the main graph that keeps its value from run to run.

    Attributes:
        data: Values of the host, of the groups of replicas that have their own. A file that is mapped into memory
            takes the device's values in its place.
        rows: Relation of them to those of replicas.
    """

    def __init__(
        self, graph: Graph, name: str, data: Array, kind: dtype, rows: HostRows | None = None, **options: Any
    ) -> None:
        self.rows = rows or HostRows(data.shape)
        super().__init__(graph, name, self.rows.replica_shape, kind, **options)
        self.data = data

    @property
    def follows_device(self) -> bool:
        """False if the host's value is a file that may only be read."""
        return not isinstance(self.data, np.memmap) or bool(self.data.flags.writeable)

    def set_data(self, array: Array) -> None:
        """Let the host's value be an array; a mapped file takes its elements."""
        if isinstance(self.data, np.memmap):
            self.data[...] = array
        else:
            self.data = array

    @property
    def replica_grouping(self) -> ReplicaGrouping:
        """Groups of replicas with values of their own."""
        return self.rows.grouping or self.ir.replica_grouping()

    @property
    def retrieval_mode(self) -> str:
        """Choice of the replicas whose values come back; for groups of one replica each there is but one."""
        return RETRIEVAL_MODES[self.rows.all_replicas]

    @property
    def shape_on_replica(self) -> tuple[int, ...]:
        """Its shape."""
        return self.shape

    @property
    def shape_on_host(self) -> tuple[int, ...]:
        """Shape of what the host gives: a first dimension of the groups of replicas, absent for one."""
        return self.rows.host_shape


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


def host_array(
    data: Any,
    kind: Any,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> tuple[Array, dtype]:
    """Data of the host as an array of its own, and its type; floats become 8-bit ones by a scale.

    Raises:
        GraphTypeError: Its type is none of popxl's.
        GraphArgumentError: A mapped file that is not C-ordered, or of another type than the tensor is to have.
    """
    if hasattr(data, "detach") and hasattr(data, "numpy"):
        data = data.detach().cpu().numpy()
    array = np.asarray(data)
    if array.dtype.kind not in "biufcV":
        raise UnknownTypeError(f"Data of {array.dtype} make no tensor: {data!r}", remedy="numbers")
    chosen = as_dtype(array.dtype) if kind is None else as_dtype(kind)
    if kind is None and downcast:
        chosen = narrowed(chosen)
    if isinstance(data, np.memmap):
        if not data.flags.c_contiguous:
            raise GraphArgumentError("a memory-mapped array has to be C-ordered", remedy="np.memmap(…, order='C')")
        if data.dtype != chosen.as_numpy():
            raise GraphArgumentError(
                f"a memory-mapped array has to be of the tensor's type: it is {data.dtype.name}, not {chosen.name}",
                because="it is not copied",
                remedy=f"a file of {chosen.name}, or np.array(data)",
            )
        return data, chosen
    if chosen.is_float8 and array.dtype.kind in "fiu":
        from abele.frontends.popxl.fp8_utils import host_pow2scale_cast_to_fp8

        return host_pow2scale_cast_to_fp8(array, chosen, log2_scale or 0, nan_on_overflow is not False), chosen
    if log2_scale is not None or nan_on_overflow is not None:
        raise GraphArgumentError(f"log2_scale and nan_on_overflow are for 8-bit floats, not for {chosen.name}")
    return np.array(array, dtype=chosen.as_numpy(), order="C"), chosen


def constant(
    data: Any,
    dtype: Any = None,
    name: str | None = None,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Constant:
    """A new constant of the current graph."""
    from abele.frontends.popxl.graph import get_current_graph

    given = np.array(data) if isinstance(data, np.memmap) else data
    array, kind = host_array(given, dtype, downcast, log2_scale, nan_on_overflow)
    return Constant(get_current_graph(), name or "c", array, kind)


def variable(
    data: Any,
    dtype: Any = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: str | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A new variable of the main graph.

    Args:
        data: Values; a first dimension has those of each group of replicas, absent for one group.
        dtype: Element type, by default that of the data.
        name: Its name.
        downcast: Narrow data of 64 bits.
        replica_grouping: Groups of replicas with values of their own; by default one of all.
        retrieval_mode: ``one_per_group``, the default: values of the first replica of each group come back; or
            ``all_replicas``.

    Raises:
        GraphArgumentError: Another graph is selected, or the data has another number of groups.
    """
    from abele.frontends.popxl.graph import get_current_graph

    graph = get_current_graph()
    if not graph.is_main:
        raise GraphArgumentError(
            "You can only initialise a variable tensor within the main graph", remedy="hand it to the graph"
        )
    array, kind = host_array(data, dtype, downcast, log2_scale, nan_on_overflow)
    rows = host_rows(graph.ir, array.shape, replica_grouping, retrieval_mode)
    return Variable(graph, name or "v", rows.retrieved(array), kind, rows)


def host_rows(
    ir: Ir, shape: tuple[int, ...], grouping: ReplicaGrouping | None, retrieval_mode: str | None = None
) -> HostRows:
    """Rows of a variable whose data has a shape.

    Raises:
        GraphArgumentError: There is no such mode, or the shape has no row for each group.
    """
    if retrieval_mode not in (None, *RETRIEVAL_MODES):
        raise GraphArgumentError(
            f"Invalid retrieval_mode {retrieval_mode!r}", remedy=" or ".join(map(repr, RETRIEVAL_MODES))
        )
    every = retrieval_mode == "all_replicas"
    if grouping is None and not every:
        return HostRows(shape)
    checked = checked_grouping(ir, grouping)
    count = checked.num_groups
    if count > 1 and (not shape or shape[0] != count):
        raise GraphArgumentError(
            f"the data has shape {list(shape)}, and the replicas form {count} groups",
            remedy=f"a first dimension of {count}, with the values of each group",
        )
    every = every and count < ir.replication_factor
    return HostRows(shape if count == 1 else shape[1:], checked, every)


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
    # Constants, variables and inputs of graphs come to the IPU that reads them.
    placed = [t for t in tensors if not isinstance(t, Constant | Variable) and t not in t.graph.inputs]
    if len({t.ipu for t in placed}) > 1:
        shown = ", ".join(f"{t.id!r} on IPU {t.ipu}" for t in tensors)
        raise GraphArgumentError(f"{kind} takes tensors of one IPU, got {shown}", remedy="t.copy_to_ipu(…)")


__all__ = ["Alias", "Constant", "Tensor", "TensorByRef", "TensorSpec", "Variable", "constant", "variable"]
