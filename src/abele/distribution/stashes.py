"""Activation rings: values of a stage of a pipeline for a later one on the same IPU, micro-batch by micro-batch.

Between the two stages are as many ticks as their numbers differ by, and every ``stride`` ticks the first stage makes
the value of another micro-batch. Within a tick later stages run before earlier ones. So a value that is read up to
``stride`` ticks later is still where it was made. One that is read ``n`` ticks later needs ``n / stride`` places: with
stride 1 and 3 ticks, a ring of 3 rows. The oldest row is read before it is written anew. Values from other IPUs arrive
before any stage runs, and have to be read one tick earlier. All values of one type that the same stages read are one
row of a ring, written and read in one step each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from abele.distribution.stash_rows import RingRow
from abele.graph import Copy, Graph, RemoteBuffer, Steps, Tensor
from abele.network.ir import Value
from abele.numerics import u32
from abele.poplibs import popops
from abele.poplibs.popops.expr import _1, select


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

    def advance(self, prog: Steps) -> None:
        """Append what moves on by one place: a micro-batch has gone through the stage."""
        for length, index in self._indices.items():
            if length == 1:
                continue
            popops.map_in_place(
                self._graph, select(0, _1 + 1, _1 + 1 == length), [index], prog, name=f"next_of_{length}"
            )
