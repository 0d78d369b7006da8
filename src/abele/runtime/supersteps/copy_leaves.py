"""Copies between views as native leaves over lists of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph.interval_set import EMPTY, IntervalSet
from abele.graph.intervals import cut_alike
from abele.runtime.control.leaf import Argument, Leaf, Phase
from abele.runtime.control.primitives import ELEMENT_BYTES, copy_elements, copy_runs
from abele.runtime.memory.arena import MemoryPieces, check_equal
from abele.runtime.memory.host_memory import address_of, aligned_block

_LONGEST_RUN_BYTES = 1 << 15


@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of bytes to be copied, each from one place to another.

    Attributes:
        source: First byte of each at the source, int64[k]: an address, or an offset into a stream.
        destination: The same at the destination.
        bytes: Length of each, int64[k].
    """

    source: Int64
    destination: Int64
    bytes: Int64

    @property
    def total_bytes(self) -> int:
        """Bytes copied."""
        return int(self.bytes.sum())

    def where(self, keep: npt.NDArray[np.bool_]) -> Runs:
        """The runs that ``keep`` selects."""
        return Runs(self.source[keep], self.destination[keep], self.bytes[keep])

    @staticmethod
    def concat(parts: Sequence[Runs]) -> Runs:
        """All runs of several lists."""
        columns = zip(*((p.source, p.destination, p.bytes) for p in parts), strict=True)
        return Runs(*(np.concatenate(c) for c in columns))

    def overlap(self) -> bool:
        """True if a byte is both read and written."""
        order = np.argsort(self.destination, kind="stable")
        begin, end = self.destination[order], (self.destination + self.bytes)[order]
        slot = np.searchsorted(begin, self.source + self.bytes, side="left") - 1
        return bool(((slot >= 0) & (end[np.maximum(slot, 0)] > self.source)).any())


def contiguous(address: int, size: int) -> MemoryPieces:
    """``size`` bytes from ``address`` on, as pieces."""
    count = 1 if size else 0
    return MemoryPieces(np.full(count, address, np.int64), np.full(count, size, np.int64), np.zeros(count, np.int64))


def joined(parts: Sequence[MemoryPieces]) -> MemoryPieces:
    """Lists of pieces after each other."""
    columns = zip(*((p.address, p.bytes, p.source) for p in parts), strict=True)
    return MemoryPieces(*(np.concatenate(c) for c in columns))


def paired(source: MemoryPieces, destination: MemoryPieces) -> Runs:
    """Runs that copy one list of pieces onto another of as many bytes, in order; pieces in place are left out."""
    check_equal(source.total_bytes, destination.total_bytes, "a copy")
    length, mine, theirs = cut_alike(source.bytes, destination.bytes)
    at = source.address[mine.interval] + mine.offset
    to = destination.address[theirs.interval] + theirs.offset
    runs = Runs(at, to, length)
    return runs.where(at != to)


def shortened(runs: Runs) -> Runs:
    """The same copies with long runs cut, so that threads can share them."""
    count = -(-runs.bytes // _LONGEST_RUN_BYTES)
    if len(count) == 0 or count.max() == 1:
        return runs
    which = np.repeat(np.arange(len(count)), count)
    step = (np.arange(len(which)) - (np.cumsum(count) - count)[which]) * _LONGEST_RUN_BYTES
    left = np.minimum(runs.bytes[which] - step, _LONGEST_RUN_BYTES)
    return Runs(runs.source[which] + step, runs.destination[which] + step, left)


def copy_leaf(
    name: str, runs: Runs, writes: IntervalSet = EMPTY, *, source: Argument = 0, destination: Argument = 0
) -> Leaf:
    """Leaf of runs that do not overlap; its units are runs.

    Args:
        name: For listings.
        runs: Runs to copy.
        writes: Elements of variables that are written.
        source: Base that the runs' sources count from.
        destination: Base that their destinations count from.
    """
    width = int(runs.bytes[0]) if len(runs.bytes) else 0
    tables: tuple[Int64, ...]
    # All runs of one element: a loop of loads and stores, without a length to read per run.
    if width in ELEMENT_BYTES and (runs.bytes == width).all():
        address, tables = copy_elements(width), (runs.source, runs.destination)
    else:
        runs = shortened(runs)
        address, tables = copy_runs(), (runs.source, runs.destination, runs.bytes)
    tables = tuple(np.ascontiguousarray(t) for t in tables)
    args = (source, destination, *map(address_of, tables))
    work = 2 * runs.total_bytes + 24 * len(runs.bytes)
    return Leaf(name, address, len(runs.bytes), args, work, writes, keep=tables)


def copy_phases(
    name: str, source: MemoryPieces, destination: MemoryPieces, writes: IntervalSet = EMPTY
) -> tuple[Phase, ...]:
    """Phases that copy pieces onto pieces; all reads come before the first write where the two overlap."""
    runs = paired(source, destination)
    if len(runs.bytes) == 0:
        return ()
    if not runs.overlap():
        return ((copy_leaf(name, runs, writes),),)
    # Overlap: everything is read into memory of its own, and after a barrier written from there.
    staging = aligned_block(source.total_bytes)
    between = contiguous(address_of(staging), len(staging))
    read = copy_leaf(f"{name} (read)", paired(source, between))
    write = copy_leaf(f"{name} (write)", paired(between, destination), writes)
    return ((read.keeping(staging),), (write.keeping(staging),))
