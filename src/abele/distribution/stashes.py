"""Activation rings: values of a stage of a pipeline for a later one on the same IPU, micro-batch by micro-batch.

Between the two stages are as many ticks as their numbers differ by, and every ``stride`` ticks the first stage makes
the value of another micro-batch. Within a tick later stages run before earlier ones. So a value that is read up to
``stride`` ticks later is still where it was made. One that is read ``n`` ticks later needs ``n / stride`` places: with
stride 1 and 3 ticks, a ring of 3 rows. The oldest row is read before it is written anew. Values from other IPUs arrive
before any stage runs, and have to be read one tick earlier. Small values of one type that the same stages read are one
row of a ring, written and read in one step each. A large one has a ring of its own, and is read when its first reader
is about to run: until then it is there once, not twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from abele.graph import Copy, Graph, RemoteBuffer, Steps, Tensor, concat
from abele.network.ir import Stage, Value
from abele.network.locations import TensorLocation
from abele.numerics import ElementType, u32
from abele.poplibs import popops
from abele.poplibs.popops.elementwise.cast import cast_with_output
from abele.poplibs.popops.expr import _1, select
from abele.poplibs.poputil.layout import clone
from abele.poplibs.poputil.order import storage_order

# Rows of rings: values of one element type, one after the other, as they are or as narrower floats.
#
# Narrower floats are made when a row is written: each element is divided by the format's scale, limited to its largest
# number and rounded once, and widened again when the row is read. So whoever reads the row sees numbers that differ
# from those that were made by up to half a unit in the last place of the narrow format.


@dataclass(frozen=True)
class WaitingValue:
    """A value that waits for later stages.

    Attributes:
        value: It.
        tensor: Tensor of the stage that made it.
        stored: The element type as which it waits.
    """

    value: Value
    tensor: Tensor
    stored: ElementType


def stored_as(value: Value, stash: ElementType | None, *, exact: bool) -> ElementType:
    """The type as which a value waits: the stash's, if the forward pass made it and nothing reads it ``exact``."""
    if stash is None or exact or not value.dtype.is_float or value.stage != Stage.FORWARD:
        return value.dtype
    return stash


def held(graph: Graph, tensor: Tensor, prog: Steps) -> Tensor:
    """A tensor that shows each of its elements once; a copy, where it shows some several times."""
    if not tensor.contains_aliases and not tensor.contains_constant:
        return tensor
    made = graph.map_linear(graph.variable(tensor.dtype, tensor.shape, name="held"))
    prog.add(Copy(tensor, made, name="hold"))
    return made


class RingRow:
    """The values of a row.

    Args:
        graph: The IPU's.
        tensors: The values, where they were made; all of one type.
        stored: The element type of the ring; that of the values, or a narrower float.
    """

    def __init__(self, graph: Graph, tensors: Mapping[Value, Tensor], stored: ElementType) -> None:
        self._graph = graph
        self._tensors = dict(tensors)
        self.stored = stored
        self._made = concat([_flat(tensor) for tensor in self._tensors.values()])

    @property
    def is_narrow(self) -> bool:
        """True if the ring has another type than the values."""
        return self.stored != self._made.dtype

    @property
    def shown(self) -> tuple[Value, ...]:
        """The values, in order."""
        return tuple(self._tensors)

    @property
    def size(self) -> int:
        """Elements."""
        return self._made.size

    @cached_property
    def tensor(self) -> Tensor:
        """The row as the ring stores it, [elements]: the values themselves, or what :meth:`fill` rounds them to."""
        return self.variable("narrowed", self.stored) if self.is_narrow else self._made

    def variable(self, name: str, dtype: ElementType) -> Tensor:
        """A new row that lies as the values do, [elements]."""
        parts = self._tensors.items()
        return concat([clone(self._graph, _flat(t), f"{v.name or 'value'}/{name}", dtype) for v, t in parts])

    def fill(self, prog: Steps) -> Tensor:
        """:attr:`tensor`; appends the step that rounds the values to it, where they are rounded."""
        if self.is_narrow:
            cast_with_output(self._graph, self._made, self.tensor, prog, "narrow_row", saturate=True)
        return self.tensor

    def values(self, stored: Tensor, prog: Steps) -> dict[Value, Tensor]:
        """The values of a row of the ring, [elements] of :attr:`stored`; appends what widens them."""
        if self.is_narrow:
            wide = self.variable("widened", self._made.dtype)
            cast_with_output(self._graph, stored, wide, prog, "widen_row")
            stored = wide
        found, begin = {}, 0
        for value, tensor in self._tensors.items():
            end, order = begin + tensor.size, storage_order(tensor)
            found[value] = order.undo(stored[begin:end].reshape(order.extents))
            begin = end
        return found


_ALONE_BYTES = 1024
"""Bytes of each tile from which on a value has a row of its own: it is then read just before its first reader. Smaller
ones are not worth a step each.
"""


def rows_of(graph: Graph, waiting: Iterable[WaitingValue], location: TensorLocation) -> Iterator[tuple[RingRow, bool]]:
    """Rows of the values of one element type that lie alike, and whether they lie in streaming memory."""
    found: dict[tuple[str, str, bool, int], list[WaitingValue]] = {}
    for number, part in enumerate(waiting):
        away = location.is_off_chip(part.tensor.size)
        is_large = part.tensor.size * part.tensor.dtype.bytes >= _ALONE_BYTES * graph.num_tiles
        alone = number if is_large and not away else -1
        found.setdefault((part.tensor.dtype.name, part.stored.name, away, alone), []).append(part)
    for (_, _, away, _), parts in found.items():
        yield RingRow(graph, {part.value: part.tensor for part in parts}, parts[0].stored), away


def _flat(tensor: Tensor) -> Tensor:
    """Its elements in the order in which they lie in memory."""
    return storage_order(tensor).apply(tensor).flatten()


@dataclass(frozen=True, eq=False)
class StageRing(ABC):
    """Places for the values of several micro-batches.

    Attributes:
        graph: The IPU's.
        row: Tensors that a row is made of.

    Rings of one place need no index.
    """

    graph: Graph
    row: RingRow

    def read(self, index: Tensor | None, prog: Steps) -> dict[Value, Tensor]:
        """Append the steps that read a row; returns its tensor for each value."""
        return self.row.values(self.taken(index, prog), prog)

    @abstractmethod
    def write(self, index: Tensor | None, prog: Steps) -> None:
        """Append the steps that write a row."""

    @abstractmethod
    def taken(self, index: Tensor | None, prog: Steps) -> Tensor:
        """Append the step that reads a row; returns its elements as they are stored."""


@dataclass(frozen=True, eq=False)
class TableRing(StageRing):
    """A ring on the chip.

    Attributes:
        table: [places, elements].
    """

    table: Tensor

    @staticmethod
    def of(graph: Graph, row: RingRow, places: int) -> TableRing:
        """A ring for rows that lie as they were made."""
        piece = row.tensor.reshape((1, -1))
        if places == 1 and row.is_narrow:
            return TableRing(graph, row, piece)
        table = popops.create_sliceable_tensor_from_slice(graph, piece, [0], [places], name="ring")
        return TableRing(graph, row, table)

    def write(self, index: Tensor | None, prog: Steps) -> None:
        """A copy, or an update of the table where there are several rows; one narrow row is rounded in place."""
        piece = self.row.fill(prog).reshape((1, -1))
        if self.table.shape[0] > 1:
            assert index is not None
            popops.dynamic_update(
                self.graph, self.table, piece, offset=index, dims=[0], sizes=[1], prog=prog, name="write_ring"
            )
        elif not self.row.is_narrow:
            prog.add(Copy(piece, self.table, name="write_ring"))

    def taken(self, index: Tensor | None, prog: Steps) -> Tensor:
        """The table itself where it is one row."""
        if self.table.shape[0] == 1:
            return self.table.flatten()
        assert index is not None
        return popops.dynamic_slice(self.graph, self.table, index, [0], [1], prog, name="read_ring").flatten()


@dataclass(frozen=True, eq=False)
class RemoteRing(StageRing):
    """A ring in streaming memory: on the chip is only the row that a stage has just made or is about to use.

    Attributes:
        buffer: A row for each place.
    """

    buffer: RemoteBuffer

    @staticmethod
    def of(graph: Graph, row: RingRow, places: int, name: str) -> RemoteRing:
        """A ring of so many rows."""
        return RemoteRing(graph, row, graph.top_level.remote_buffer(name, row.stored, row.size, places))

    def write(self, index: Tensor | None, prog: Steps) -> None:
        """A copy to a row of the buffer."""
        prog.add(Copy(self.row.fill(prog), self.buffer, name="store_ring", offset=self._row(index)))

    def taken(self, index: Tensor | None, prog: Steps) -> Tensor:
        """A copy of a row of the buffer, in the layout of the written tensors."""
        whole = self.row.variable("loaded", self.row.stored)
        prog.add(Copy(self.buffer, whole, name="load_ring", offset=self._row(index)))
        return whole

    def _row(self, index: Tensor | None) -> Tensor | None:
        return index if self.buffer.repeats > 1 else None


class RingPlaces:
    """Positions of a stage in the rings that it writes and reads: one number for all rings of a length."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._indices: dict[int, Tensor] = {}

    def index(self, length: int) -> Tensor:
        """The place, u32[1], in rings of a length."""
        if length not in self._indices:
            made = self._graph.variable(u32, (1,), name=f"place_of_{length}", initial=0)
            self._indices[length] = self._graph.map(made, 0)
        return self._indices[length]

    def known(self, length: int) -> Tensor | None:
        """The place, u32[1], in rings of a length, if there are any."""
        return self._indices.get(length)

    def advance(self, prog: Steps) -> None:
        """Append what moves on by one place: a micro-batch has gone through the stage."""
        for length, index in self._indices.items():
            if length == 1:
                continue
            popops.map_in_place(
                self._graph, select(0, _1 + 1, _1 + 1 == length), [index], prog, name=f"next_of_{length}"
            )
