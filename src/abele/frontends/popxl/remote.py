"""Remote buffers: rows in streaming memory, variables that lie in them, and their host side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends.popxl.dtypes import as_dtype, dtype
from abele.frontends.popxl.errors import ContextError, GraphArgumentError, GraphTypeError
from abele.frontends.popxl.graph import Graph, get_current_graph, get_ir
from abele.frontends.popxl.ir import Ir
from abele.frontends.popxl.locations import ReplicatedTensorSharding, TensorLocation, TensorStorage
from abele.frontends.popxl.replicas import HostRows, ReplicaGrouping
from abele.frontends.popxl.tensors import Tensor, Variable, host_array, host_rows

MOST_ENTRIES = 2**31 - 1
"""Rows that an offset of 32 bits counts."""


class RemoteBuffer:
    """Rows of one shape and type in streaming memory; those that nothing was written to are zeros.

    Args:
        ir: Ir that it is of.
        tensor_shape: Shape of a row.
        tensor_dtype: Element type.
        entries: Number of rows; it may be set until a session is made.
        meta_shape: Shape of the tensor that rows are shards of.

    Attributes:
        grouping: Groups of replicas with values of their own, where rows are shards.
        shards: Groups of replicas that share a tensor, where rows are shards.

    Raises:
        GraphArgumentError: No rows, or rows without elements.
    """

    def __init__(
        self, ir: Ir, tensor_shape: Sequence[int], tensor_dtype: Any, entries: int, meta_shape: Sequence[int] = ()
    ) -> None:
        self.ir = ir
        self.meta_shape = tuple(int(n) for n in meta_shape)
        self.grouping: ReplicaGrouping | None = None
        self.shards: ReplicaGrouping | None = None
        self.variables: list[RemoteVariable] = []
        self._is_used = False
        self._entries = 0
        self._id = len(ir.remote_buffers)
        self._shape, self._dtype = _row_shape(tensor_shape), _row_dtype(tensor_dtype)
        self.entries = entries
        ir.remote_buffers.append(self)

    @property
    def remote_buffer_id(self) -> int:
        """Its number in the Ir."""
        return self._id

    @remote_buffer_id.setter
    def remote_buffer_id(self, remote_buffer_id: int) -> None:
        if remote_buffer_id != self._id:
            raise GraphArgumentError(f"{self!r} keeps its number, it cannot become {remote_buffer_id}")

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """Shape of a row."""
        return self._shape

    @tensor_shape.setter
    def tensor_shape(self, tensor_shape: Sequence[int]) -> None:
        shape = _row_shape(tensor_shape)
        if shape != self._shape:
            self._check_unused("tensor_shape")
            self._shape = shape

    @property
    def tensor_dtype(self) -> dtype:
        """Element type."""
        return self._dtype

    @tensor_dtype.setter
    def tensor_dtype(self, tensor_dtype: Any) -> None:
        kind = _row_dtype(tensor_dtype)
        if kind is not self._dtype:
            self._check_unused("tensor_dtype")
            self._dtype = kind

    @property
    def entries(self) -> int:
        """Number of rows."""
        return self._entries

    @entries.setter
    def entries(self, entries: int) -> None:
        if isinstance(entries, bool) or not isinstance(entries, int | np.integer):
            raise GraphTypeError(f"Entries must be a whole number, not {entries!r}")
        if not 1 <= entries <= MOST_ENTRIES:
            raise GraphArgumentError(
                f"Entries must be a non-zero, positive integer below 2³¹. Value provided: {entries}"
            )
        if self.ir.is_frozen and entries != self._entries:
            raise ContextError("The Ir can not change after a session was made of it", remedy="make the session last")
        beyond = [v for v in self.variables if v.offset >= entries]
        if beyond:
            raise GraphArgumentError(f"{entries} entries have no row {beyond[0].offset}, where {beyond[0]!r} lies")
        self._entries = int(entries)

    @property
    def state_name(self) -> str:
        """Name of all rows among the states of a network; variables have none like it."""
        name = f"remote_buffer_{self._id}"
        while any(v.id == name for v in self.ir.main_graph.variables):
            name += "_"
        return name

    @property
    def row_type(self) -> tuple[tuple[int, ...], str]:
        """Shape and name of the type of a row."""
        return self._shape, self._dtype.name

    @property
    def spec(self) -> tuple[tuple[int, ...], dtype]:
        """Shape and type of a row."""
        return self._shape, self._dtype

    def _check_unused(self, what: str) -> None:
        if self._is_used or self.variables:
            raise GraphArgumentError(f"{what} of {self!r} can not change: it holds variables, or ops read it")

    def check(self, kind: str, tensor: Tensor) -> None:
        """Raise unless a tensor is like a row.

        Raises:
            GraphArgumentError: It is not.
        """
        if (tensor.shape, tensor.dtype.name) != (self._shape, self._dtype.name):
            raise GraphArgumentError(
                f"Tensor {tensor!r} does not match buffer.",
                at=kind,
                because=f"rows of {self!r} are {self._dtype.name}{list(self._shape)}",
            )

    def used_at(self, kind: str, offset: Any) -> int | Tensor:
        """An offset that an op of the current graph has; the buffer's rows are fixed from now on.

        Raises:
            GraphTypeError: It is neither a whole number nor a tensor.
            GraphArgumentError: There is no such row, or the tensor is no 32-bit integer of this graph.
        """
        graph = get_current_graph()
        if graph.ir != self.ir:
            raise GraphArgumentError(f"{self!r} is of another Ir")
        self._is_used = True
        if not isinstance(offset, Tensor):
            return self.row(kind, offset)
        graph.check_here(offset, "offset")
        if offset.nelms != 1 or offset.dtype.name not in ("int32", "uint32"):
            raise GraphArgumentError(f"{kind} takes one int32 or uint32 as offset, got {offset!r}")
        return offset

    def row(self, kind: str, offset: Any) -> int:
        """Number of a row.

        Raises:
            GraphTypeError: It is no whole number.
            GraphArgumentError: There is no such row.
        """
        if isinstance(offset, bool) or not isinstance(offset, int | np.integer):
            raise GraphTypeError(f"{kind} takes a whole number or a tensor as offset, not {offset!r}")
        if not 0 <= offset < self._entries:
            raise GraphArgumentError(f"{kind}: offset {offset} is outside of {self!r}: 0 to {self._entries - 1}")
        return int(offset)

    def rows(self, arrays: Iterable[tuple[int, Array]], before: Array | None = None) -> Array:
        """All rows: those given, others as they were before, or zeros; of several replicas, [replicas, rows, …].

        Args:
            arrays: Numbers of rows, and what the replicas have there: [replicas, …].
            before: All rows as they were.
        """
        each = (self.ir.replication_factor, self._entries, *self._shape)
        made = np.zeros(each, self._dtype.element.np) if before is None else before.reshape(each)
        for offset, array in arrays:
            made[:, offset] = array
        return made if len(made) > 1 else made[0]

    def __hash__(self) -> int:
        return hash((self.ir.id, self._id))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"RemoteBuffer({self._id} {self._dtype.name}{list(self._shape)} entries={self._entries})"


def _row_shape(given: Sequence[int]) -> tuple[int, ...]:
    shape = (given,) if isinstance(given, int | np.integer) else tuple(given)
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) for n in shape):
        raise GraphTypeError(f"a remote buffer's tensor_shape is whole numbers, not {given!r}")
    if any(n < 1 for n in shape):
        raise GraphArgumentError(f"rows of a remote buffer have elements, tensor_shape is {tuple(shape)}")
    return tuple(int(n) for n in shape)


def _row_dtype(given: Any) -> dtype:
    kind = as_dtype(given)
    kind.element  # noqa: B018  (raises where the machine has no such type)
    return kind


class RemoteVariable(Variable):
    """A variable in a row of a remote buffer: ops load it before they read it."""

    def __init__(
        self, graph: Graph, name: str, data: Array, kind: dtype, rows: HostRows, *, buffer: RemoteBuffer, offset: int
    ) -> None:
        super().__init__(graph, name, data, kind, rows, meta_shape=buffer.meta_shape)
        self.buffer, self.offset = buffer, offset

    @property
    def location_info(self) -> TensorLocation:
        """Off the chip; shared by replicas, or not."""
        sharding = ReplicatedTensorSharding.Off if self.rows.shards is None else ReplicatedTensorSharding.On
        return TensorLocation(TensorStorage.OffChip, sharding, self.rows.shards)

    def check_usable(self) -> None:
        """Raise: ops read what is on the chip.

        Raises:
            GraphArgumentError: Always.
        """
        raise GraphArgumentError(
            f"{self!r} is in streaming memory, where no op reads it",
            remedy=f"ops.remote_load(buffer, {self.offset})",
        )


def remote_buffer(tensor_shape: Sequence[int], tensor_dtype: Any, entries: int = 1) -> RemoteBuffer:
    """A new buffer of the current Ir."""
    return RemoteBuffer(get_ir(), tensor_shape, tensor_dtype, entries)


def remote_variable(
    data: Any,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: Any = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: str | None = None,
) -> RemoteVariable:
    """A new variable in a row of a buffer; groups of replicas as of :func:`~abele.frontends.popxl.tensors.variable`.

    Raises:
        GraphArgumentError: It is not made in the main graph, is no row of the buffer, or another is there.
    """
    array, kind = host_array(data, dtype, downcast)
    rows = host_rows(get_ir(), array.shape, replica_grouping, retrieval_mode)
    return in_row(remote_buffer, offset, array, kind, rows, name)


def in_row(
    remote_buffer: RemoteBuffer, offset: int, array: Array, kind: dtype, rows: HostRows, name: str | None
) -> RemoteVariable:
    """A new variable of the main graph in a row of a buffer; see :func:`remote_variable`."""
    graph = get_current_graph()
    if not isinstance(remote_buffer, RemoteBuffer):
        raise GraphTypeError(f"remote_variable takes a RemoteBuffer, not {remote_buffer!r}")
    if not graph.is_main:
        raise GraphArgumentError(
            "You can only initialise a variable tensor within the main graph", remedy="ops.remote_load(buffer, offset)"
        )
    if graph.ir != remote_buffer.ir:
        raise GraphArgumentError(f"{remote_buffer!r} is of another Ir")
    row = remote_buffer.row("remote_variable", offset)
    other = next((v for v in remote_buffer.variables if v.offset == row), None)
    if other is not None:
        raise GraphArgumentError(f"row {row} of {remote_buffer!r} is that of {other!r}")
    if (rows.replica_shape, kind.name) != remote_buffer.row_type:
        raise GraphArgumentError(
            f"Tensor {name or 'v'} {kind.name}{list(rows.replica_shape)} does not match buffer.",
            because=repr(remote_buffer),
        )
    made = RemoteVariable(graph, name or "v", rows.retrieved(array), kind, rows, buffer=remote_buffer, offset=row)
    remote_buffer.variables.append(made)
    return made


__all__ = ["RemoteBuffer", "RemoteVariable", "remote_buffer", "remote_variable"]
