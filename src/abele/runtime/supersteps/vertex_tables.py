"""Vertex groups as native leaves: tables of pointers and lengths, and the gathers and scatters around.

A region that is one piece of host memory is used in place, by a pointer into the arena. That is nearly all of them,
since variables are stored whole on the host, whatever tiles they are mapped to. Others get room in scratch memory, with
a list of copies before and after the vertices. Tables are structures of arrays over all vertices, made by sorts and
running sums; native code walks them without knowing what a region is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.codelet import FieldDef
from abele.codelet.printing import PrintSink
from abele.codelet.tree import Print
from abele.graph import Edge, StateData, VertexGroup
from abele.graph.intervals import distinct
from abele.runtime.memory.arena import Arena, check_numbers, check_stretches
from abele.runtime.memory.host_memory import ALIGNMENT, address_of, guarded_block
from abele.runtime.supersteps.copy_leaves import Runs

# Scratch memory of supersteps: data that exchange gathers for vertices of scattered regions.

_CHUNK_BYTES = 1 << 20


class ScratchPool:
    """Memory that one superstep after the other uses; its contents live no longer than a superstep."""

    def __init__(self) -> None:
        self._chunks: list[npt.NDArray[np.uint8]] = []
        self._chunk = 0
        self._used = 0

    @property
    def bytes(self) -> int:
        """Memory held."""
        return sum(len(c) for c in self._chunks)

    def reset(self) -> None:
        """Begin the next superstep: all memory is free again."""
        self._chunk = self._used = 0

    def take(self, size: int) -> int:
        """Address of ``size`` free bytes, aligned to 64."""
        return address_of(self.block(size))

    def block(self, size: int) -> npt.NDArray[np.uint8]:
        """``size`` free bytes, aligned to 64."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        # Chunks are never moved or freed: tables hold addresses in them.
        while self._chunk < len(self._chunks) and self._used + size > len(self._chunks[self._chunk]):
            self._chunk, self._used = self._chunk + 1, 0
        if self._chunk == len(self._chunks):
            self._chunks.append(guarded_block(max(size, _CHUNK_BYTES)))
        found = self._chunks[self._chunk][self._used : self._used + size]
        self._used += size
        return found


_NO_ROW = 4096
"""An address at which no process has memory."""
_NOTHING = Runs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class FieldMemory:
    """Host memory that one edge field of all vertices of a group uses, row by row.

    Attributes:
        vertex: Vertex of each row, int64[rows], non-decreasing.
        address: First byte of each, int64[rows].
        bytes: Length of each, int64[rows].
        written: True if the vertices may write it.
    """

    vertex: Int64
    address: Int64
    bytes: Int64
    written: bool


@dataclass
class VertexTables:
    """Arguments of a codelet's native code for all vertices of a group.

    Attributes:
        columns: Arrays in the order that ``CompiledCodelet.run`` expects, field by field.
        gather: Copies into scratch memory before the vertices run.
        scatter: Copies out of it after they ran.
        state: Values of the state fields, which persist from one execution to the next, and their contents at load.
        memory: Memory that each edge field points to.
        zones: Begin and end of memory around the state, which nobody writes.
        sink: Takes what the vertices print, if they do.
    """

    columns: list[npt.NDArray[Any]] = field(default_factory=list)
    gather: list[Runs] = field(default_factory=list)
    scatter: list[Runs] = field(default_factory=list)
    state: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = field(default_factory=list)
    memory: list[FieldMemory] = field(default_factory=list)
    zones: list[tuple[int, int]] = field(default_factory=list)
    sink: PrintSink | None = None

    @property
    def addresses(self) -> tuple[int, ...]:
        """Addresses of the columns."""
        return tuple(address_of(c) for c in self.columns)

    @property
    def work_bytes(self) -> int:
        """Bytes of all the fields of all vertices."""
        return sum(int(m.bytes.sum()) for m in self.memory)


def vertex_tables(
    group: VertexGroup, arena: Arena, scratch: ScratchPool, states: ScratchPool, prints: tuple[Print, ...] = ()
) -> VertexTables:
    """Tables of a group: pointers straight into the arena where a region is contiguous there, else into scratch.

    Vectors of state, and lists of rows, lie in memory of ``states``, which must not be used again. The vertices of all
    replicas stand one after the other, those of replica 0 first.
    """
    tables = VertexTables()
    for field_def in group.codelet.fields:
        if field_def.direction == "state":
            _add_state(tables, field_def, group.state[field_def.name], group.num, arena.replicas, states)
        else:
            _add_edge(
                tables,
                field_def,
                group.edges[field_def.name],
                num=group.num,
                arena=arena,
                scratch=scratch,
                states=states,
            )
    if prints:
        tables.sink = PrintSink(prints)
        tables.columns.append(tables.sink.column)
    return tables


def _add_edge(
    tables: VertexTables,
    field_def: FieldDef,
    edge: Edge,
    num: int,
    arena: Arena,
    scratch: ScratchPool,
    states: ScratchPool,
) -> None:
    width, replicas = field_def.type.bytes, arena.replicas
    check_edge(edge, num)
    found = [region_pointers(edge, width, arena, scratch, replica) for replica in range(replicas)]
    moves = Runs.concat([m for _, m in found])
    pointers = np.concatenate([p[edge.index] for p, _ in found])
    lengths = np.tile(edge.regions.sizes[edge.index], replicas)
    if edge.row_begin is not None:
        tables.columns.append(repeated_rows(edge.row_begin, replicas))
    tables.columns.append(pointers if edge.row_begin is None else _between_bad_rows(pointers, states))
    if field_def.rank:
        tables.columns.append(lengths)
    written = field_def.direction != "in"
    rows = edge.vertex_of_row
    vertex = np.tile(rows, replicas) + np.repeat(np.arange(replicas, dtype=np.int64) * num, len(rows))
    tables.memory.append(FieldMemory(vertex, pointers, lengths * width, written))
    if len(moves.bytes):
        if field_def.direction != "out":
            tables.gather.append(moves)
        if field_def.direction != "in":
            tables.scatter.append(Runs(moves.destination, moves.source, moves.bytes))


def check_edge(edge: Edge, num: int) -> None:
    """The wiring of a field is that of ``num`` vertices, by regions that there are.

    Raises:
        EngineError: It is not.
    """
    regions = edge.regions
    check_stretches(regions.ptr, regions.num, len(regions.begin), "regions")
    check_numbers(edge.index, regions.num, "a field is wired to a region that does not exist")
    begin = np.arange(num + 1, dtype=np.int64) if edge.row_begin is None else edge.row_begin
    check_stretches(begin, num, len(edge.index), "rows")


def repeated_rows(begin: Int64, times: int) -> Int64:
    """Bounds of consecutive stretches, int64[n + 1] from 0, listed several times after each other."""
    shift = np.repeat(np.arange(times, dtype=np.int64) * begin[-1], len(begin) - 1)
    return np.append(np.tile(begin[:-1], times) + shift, begin[-1] * times)


def region_pointers(edge: Edge, width: int, arena: Arena, scratch: ScratchPool, replica: int = 0) -> tuple[Int64, Runs]:
    """Host address of every region of an edge, and the gathers that those in several pieces need.

    Args:
        edge: The wiring of one field.
        width: Bytes of an element.
        arena: Memory of the variables.
        scratch: Pool of memory for gathered regions.
        replica: Number of the replica.

    Returns:
        Addresses, int64[regions]; copies from the arena to scratch.
    """
    regions = edge.regions
    pieces = arena.pieces(regions.begin, regions.length, replica)
    row = regions.row[pieces.source]
    first = np.searchsorted(row, np.arange(regions.num + 1))
    count = np.diff(first)
    # Empty regions point to somewhere valid, so that code which forms an address without using it is safe.
    pointers = np.full(regions.num, arena.anywhere, dtype=np.int64)
    held = count > 0
    pointers[held] = pieces.address[first[:-1][held]]
    scattered = (count > 1) & _used(edge)
    if not scattered.any():
        return pointers, _NOTHING
    # Each scattered region starts at a cache line.
    room = np.where(scattered, -(-regions.sizes * width // ALIGNMENT) * ALIGNMENT, 0)
    place = scratch.take(int(room.sum())) + np.cumsum(room) - room
    pointers[scattered] = place[scattered]
    mine = scattered[row]
    ends = np.cumsum(pieces.bytes)
    before = ends - pieces.bytes
    # Bytes of the same region before this piece.
    inside = before - before[first[:-1][row]]
    return pointers, Runs(pieces.address, place[row] + inside, pieces.bytes).where(mine)


def fields_overlap(tables: VertexTables) -> bool:
    """True if some vertex has two fields (or rows of one) in shared memory, of which one is written."""
    memory = [m for m in tables.memory if len(m.vertex)]
    if not any(m.written for m in memory):
        return False
    # Addresses as ranks, so that each vertex can be given a range of its own and one sorted list serves all of them.
    cuts = distinct(np.concatenate([*(m.address for m in memory), *(m.address + m.bytes for m in memory)]))
    begins = [m.vertex * len(cuts) + np.searchsorted(cuts, m.address) for m in memory]
    ends = [m.vertex * len(cuts) + np.searchsorted(cuts, m.address + m.bytes) for m in memory]
    begin = np.concatenate([b for b, m in zip(begins, memory, strict=True) if m.written])
    end = np.concatenate([e for e, m in zip(ends, memory, strict=True) if m.written])
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    # Two written intervals of one vertex overlap.
    if (begin[1:] < end[:-1]).any():
        return True
    reads = [(b, e) for b, e, m in zip(begins, ends, memory, strict=True) if not m.written]
    return any(_meet(low, high, begin, end) for low, high in reads)


def _meet(low: Int64, high: Int64, begin: Int64, end: Int64) -> bool:
    """True if an interval [low, high) meets one of the sorted, separate intervals [begin, end)."""
    slot = np.searchsorted(begin, high, side="left") - 1
    return bool(((slot >= 0) & (end[np.maximum(slot, 0)] > low) & (high > low)).any())


def _used(edge: Edge) -> npt.NDArray[np.bool_]:
    used = np.zeros(edge.regions.num, dtype=bool)
    used[edge.index] = True
    return used


def _add_state(
    tables: VertexTables, field_def: FieldDef, state: StateData, num: int, replicas: int, room: ScratchPool
) -> None:
    bounds = np.arange(num + 1, dtype=np.int64) if state.row_begin is None else state.row_begin
    check_stretches(bounds, num, len(state.values), "values of state")
    initial = np.tile(state.values, replicas)
    if state.row_begin is None:
        values = np.array(initial, dtype=field_def.type.np)
        tables.state.append((values, initial))
        tables.columns.append(values)
        return
    values = _between_zones(tables, np.asarray(initial, dtype=field_def.type.np), room)
    tables.state.append((values, initial))
    begin = repeated_rows(state.row_begin, replicas)
    tables.columns.append(address_of(values) + begin[:-1] * field_def.type.bytes)
    tables.columns.append(np.diff(begin))


def _between_bad_rows(pointers: Int64, room: ScratchPool) -> Int64:
    """A copy of a list of rows, with rows around it that cannot be touched."""
    pad = ALIGNMENT // 8
    table = room.block(pointers.nbytes + 2 * ALIGNMENT).view(np.int64)
    table[:] = _NO_ROW
    table[pad : pad + len(pointers)] = pointers
    return table[pad : pad + len(pointers)]


def _between_zones(tables: VertexTables, initial: npt.NDArray[Any], room: ScratchPool) -> npt.NDArray[Any]:
    """A copy of an array with zones on both sides."""
    size = initial.nbytes
    block = room.block(2 * ALIGNMENT + -(-size // ALIGNMENT) * ALIGNMENT)
    values = block[ALIGNMENT : ALIGNMENT + size].view(initial.dtype)
    values[...] = initial
    begin = address_of(block)
    tables.zones += [(begin, begin + ALIGNMENT), (begin + ALIGNMENT + size, begin + len(block))]
    return values
