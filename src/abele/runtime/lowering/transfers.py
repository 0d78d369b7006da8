"""Transfers: copies on the device, between replicas, with host streams and with remote buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.arrays import Int64
from abele.errors import RemoteBufferError
from abele.graph import Copy, CrossReplicaCopy, CrossReplicaExchange, Program, RemoteBuffer, Stream, Tensor
from abele.graph.elements import elements_of
from abele.graph.interval_set import IntervalSet
from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.leaf import Leaf, Phase, StreamUse
from abele.runtime.control.primitives import move_rows
from abele.runtime.lowering.steering import fail
from abele.runtime.memory.arena import MemoryPieces, check_equal
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.supersteps.copy_leaves import contiguous, copy_leaf, copy_phases, joined, paired
from abele.words import counted

if TYPE_CHECKING:
    from abele.runtime.lowering.lower import ProgramLowering

_CHUNK_BYTES = 1 << 15


def lower_copy(lowering: ProgramLowering, copy: Copy) -> None:
    """A copy between any two ends."""
    match copy.source, copy.destination:
        case Tensor() as source, Tensor() as destination:
            if copy not in lowering.copies:
                arena = lowering.context.arena
                pieces = arena.all_pieces_of(source), arena.all_pieces_of(destination)
                lowering.copies[copy] = copy_phases(copy.debug.full_name, *pieces, elements_of(destination))
            lowering.emitter.phases(lowering.copies[copy])
        case Stream() as source, Tensor() as destination:
            _from_stream(lowering, source, destination)
        case Tensor() as source, Stream() as destination:
            _to_stream(lowering, source, destination)
        case RemoteBuffer() as buffer, Tensor() as tensor:
            _remote(lowering, copy, buffer, tensor, outward=False)
        case Tensor() as tensor, RemoteBuffer() as buffer:
            _remote(lowering, copy, buffer, tensor, outward=True)


def lower_cross_replica(lowering: ProgramLowering, step: CrossReplicaCopy | CrossReplicaExchange) -> None:
    """Views of each replica to views of others."""
    arena = lowering.context.arena
    if lowering.meetings is not None:
        lowering.meetings.copy(step, arena, lowering.emitter, lowering.context.callbacks)
        return
    source = joined([arena.all_pieces_of(copy.source) for copy in step.copies])
    replicas = range(arena.replicas)
    ends = [arena.pieces_of(copy.destination, copy.map[r]) for copy in step.copies for r in replicas]
    writes = IntervalSet.union(elements_of(copy.destination) for copy in step.copies)
    lowering.emitter.phases(copy_phases(step.debug.full_name, source, joined(ends), writes))


def open_stream(lowering: ProgramLowering, use: StreamUse, replica: int) -> None:
    """Move a stream on for the copy of one replica.

    All replicas read the same item of a stream that is not replicated; of what they write to one, the host is given
    what replica 0 wrote.
    """
    stream = use.stream
    if stream.replicated or replica == 0:
        lowering.emitter.fetch(use)
    elif stream.direction == "out":
        lowering.emitter.discard(use)


def close_stream(lowering: ProgramLowering, use: StreamUse, replica: int, last: int) -> None:
    """The copy of one replica was made; ``last`` is the last replica."""
    stream = use.stream
    if stream.replicated or replica == (0 if stream.direction == "out" else last):
        lowering.emitter.drain(use)


def _from_stream(lowering: ProgramLowering, stream: Stream, tensor: Tensor) -> None:
    emitter, arena = lowering.emitter, lowering.context.arena
    use, writes, item = StreamUse(stream), elements_of(tensor), contiguous(0, stream.bytes)
    if not stream.replicated:
        items = joined([item] * arena.replicas)
        emitter.fetch(use)
        emitter.phase(
            (copy_leaf(f"from {stream.name}", paired(items, arena.all_pieces_of(tensor)), writes, source=use),)
        )
        emitter.drain(use)
        return
    for replica in range(arena.replicas):
        emitter.fetch(use)
        runs = paired(item, arena.pieces_of(tensor, replica))
        emitter.phase((copy_leaf(f"from {stream.name}", runs, writes, source=use),))
        emitter.drain(use)


def _to_stream(lowering: ProgramLowering, tensor: Tensor, stream: Stream) -> None:
    emitter, arena = lowering.emitter, lowering.context.arena
    use, item = StreamUse(stream), contiguous(0, stream.bytes)
    for replica in range(arena.replicas if stream.replicated else 1):
        emitter.fetch(use)
        emitter.phase(
            (copy_leaf(f"to {stream.name}", paired(arena.pieces_of(tensor, replica), item), destination=use),)
        )
        emitter.drain(use)


def _remote(lowering: ProgramLowering, copy: Copy, buffer: RemoteBuffer, tensor: Tensor, *, outward: bool) -> None:
    emitter, context = lowering.emitter, lowering.context
    if copy.offset is None:
        there = joined([contiguous(a, buffer.bytes // buffer.repeats) for a in context.remote.addresses(buffer)])
        here, name = context.arena.all_pieces_of(tensor), copy.debug.full_name
        ends = (here, there) if outward else (there, here)
        emitter.phases(copy_phases(name, *ends, *(() if outward else (elements_of(tensor),))))
        return
    tables = [_row_table(lowering, copy.offset, r) for r in range(context.arena.replicas)]
    _check_rows(lowering, copy, buffer, tables)
    sides = [_Side(lowering, copy, tensor, r) for r in range(context.arena.replicas)]
    if outward:
        emitter.phase(tuple(leaf for side in sides for leaf in side.collect))
    bases = context.remote.addresses(buffer)
    emitter.phase(
        tuple(
            _rows_leaf(copy, buffer, base, side, table, outward)
            for base, side, table in zip(bases, sides, tables, strict=True)
        )
    )
    if not outward:
        emitter.phase(tuple(leaf for side in sides for leaf in side.spread))


class _Side:
    """The rows on the device in one replica, after each other: the view itself where it lies so, else a staging area.

    Attributes:
        address: First byte.
        bytes: All of them.
        writes: Elements that are written when rows arrive.
        collect: Copies that fill the staging area from the view.
        spread: Copies from it into the view.
        keep: Objects that must stay alive.
    """

    def __init__(self, lowering: ProgramLowering, copy: Copy, tensor: Tensor, replica: int) -> None:
        pieces = lowering.context.arena.pieces_of(tensor, replica)
        self.writes = elements_of(tensor)
        self.bytes = pieces.total_bytes
        self.collect: Phase = ()
        self.spread: Phase = ()
        self.keep: object = None
        assert copy.offset is not None
        # Rows that arrive must not overwrite the row numbers before all were read.
        if len(pieces) == 1 and not copy.offset.overlaps(tensor):
            self.address = int(pieces.address[0])
            return
        self.keep = staging = aligned_block(pieces.total_bytes)
        self.address = address_of(staging)
        between, name = contiguous(self.address, pieces.total_bytes), copy.debug.full_name
        self.collect = (copy_leaf(f"{name} (collect)", paired(pieces, between)).keeping(staging),)
        self.spread = (copy_leaf(f"{name} (spread)", paired(between, pieces), self.writes).keeping(staging),)


def _rows_leaf(copy: Copy, buffer: RemoteBuffer, base: int, side: _Side, table: Int64, outward: bool) -> Leaf:
    row = buffer.num_elements * buffer.dtype.bytes
    check_equal(len(table) * row, side.bytes, f"{copy.debug.full_name}, of {len(table):,} rows,")
    chunk = min(row, _CHUNK_BYTES)
    chunks, count = -(-row // chunk), len(table)
    # Rows that are written twice are written in order, so a unit takes all rows; those that are read stand alone.
    number, units = (count, chunks) if outward else (1, count * chunks)
    args = (base, side.address, address_of(table), number, row, chunk, chunks, int(outward))
    name = f"{copy.debug.full_name}: {count} rows of {buffer.name}"
    writes = elements_of(copy.destination)
    return Leaf(name, move_rows(), units, args, 2 * count * row, writes, keep=(table, side.keep))


def _row_table(lowering: ProgramLowering, offset: Tensor, replica: int) -> Int64:
    """Address of every row number, int64[rows]."""
    return word_addresses(lowering.context.arena.pieces_of(offset, replica), 4)


def word_addresses(pieces: MemoryPieces, width: int) -> Int64:
    """Address of every element of pieces of memory, int64[elements]."""
    count = pieces.bytes // width
    inside = np.arange(int(count.sum()), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(pieces.address, count) + inside * width


def _check_rows(lowering: ProgramLowering, copy: Copy, buffer: RemoteBuffer, tables: list[Int64]) -> None:
    emitter, assembler = lowering.emitter, lowering.emitter.assembler
    wrong, right = assembler.label(), assembler.label()
    emitter.fence()
    for table in tables:
        emitter.keep(table)
        assembler.emit(Opcode.ROWS, address_of(table), len(table), buffer.repeats, target=wrong)
    assembler.emit(Opcode.JUMP, target=right)
    assembler.place(wrong)
    fail(lowering, lambda: _row_error(lowering, copy, buffer))
    assembler.place(right)
    emitter.expect_barrier()


def _row_error(lowering: ProgramLowering, copy: Copy, buffer: RemoteBuffer) -> RemoteBufferError:
    assert copy.offset is not None
    arena = lowering.context.arena
    rows = np.stack([arena.read(copy.offset, r).reshape(-1) for r in range(arena.replicas)]).astype(np.int64)
    replica, place = (int(i) for i in np.argwhere((rows < 0) | (rows >= buffer.repeats))[0])
    where = f" in replica {replica}" if arena.replicas > 1 else ""
    return RemoteBufferError(
        f"row {rows[replica, place]} of remote buffer {buffer.name!r}, which has {counted(buffer.repeats, 'row')}"
        f" (0 to {buffer.repeats - 1})",
        at=copy.debug.location,
        because=f"element {place} of the offset {copy.offset!r} holds it{where}",
    )


STEPS: dict[type[Program], Callable[[ProgramLowering, Any], None]] = {
    Copy: lower_copy,
    CrossReplicaCopy: lower_cross_replica,
    CrossReplicaExchange: lower_cross_replica,
}
