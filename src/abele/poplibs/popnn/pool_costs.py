"""Costs of pooling vertices: every worker makes a run of positions, piece by piece of the rows that the run meets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Bool, Int64
from abele.machine import Ipu
from abele.machine.source import Cited, calibrated
from abele.numerics import ElementType
from abele.poplibs.poputil.regions import count_up

LAUNCH_CYCLES = 11
"""Starting all workers. Source: machine reference §1.5 (basicOpSupervisorOverhead)."""

ENTRY_SLOTS = 15
"""Slots of a worker before its first row. Source: machine reference §1.5, prologues take 15 to 60."""

ROW_SLOTS = 30
ITEM_SLOTS = 20
POSITION_SLOTS = 3
COMPARING_POSITION_SLOTS = 5
"""Slots of each piece of a row of a group of channels, each work item, and each channel vector at each window position.
A work item is what one window position adds to the piece. A position that combines takes a load, the operation and a
store beside a load; one that does so where two operands are equal has a comparison and a mask more, as the gradient of
maxima has. Source: machine reference §4.10 (pooling)."""

VECTOR_SLOTS = 20
"""Slots of each channel vector of a work item beside its positions. A vertex has strides between positions among its
fields, and a number of vectors per group. So its innermost loop runs over positions, and a loop around it over the
channel vectors: each has pointers to set, a loop to begin and a result to finish. Calibrated, see :func:`calibrations`.
"""

NUMBER_BYTES = 2
POINTER_BYTES = 4
LIST_BYTES = 4
ITEM_BYTES = 3 * NUMBER_BYTES
NUMBERS = 5
"""Numbers of a vertex; the other constants are bytes of its lists.

Bytes of a 16-bit number, of a pointer, of a row of a list (begin and length), and of an item of work (first output,
first input, number of positions). Numbers of a vertex: value to set first, groups and vectors of channels, strides of
input and output. Source: declarations of PopLibs' codelets (docs/library_vertices.md); a list for each piece of a row,
with an item for each window position that it meets, is guessed.
"""

INIT_SLOTS = 1
"""Slots of setting a channel vector of the result before anything is added to it: one store of 64 bits.
Source: machine reference §1.1."""


def calibrations() -> Iterator[tuple[str, Cited]]:
    """Calibrated constants of this module, by name."""
    layers = ("inception_tr_bs1_i1_dmaxpool", "inception_tr_bs1_i2_dmaxpool", "inception_tr_bs1_i10_dmax_pool")
    on = tuple(f"operators: {layer}, {chip}" for layer in layers for chip in ("gc2", "gc200"))
    text = "layers with stride 1, of which the formula of §4.10 alone leaves out 37 to 45 slots an item of two vectors"
    yield "popnn.pool_costs.VECTOR_SLOTS", calibrated(VECTOR_SLOTS, text, on=on)


@dataclass(frozen=True)
class PoolWork:
    """Parameters of the work of pooling vertices on their blocks.

    Attributes:
        kernel: Window along each field dimension.
        stride: Its step along each.
        dtype: Element type.
        compares: True if positions count only where two operands are equal: a gradient of maxima, or a search for them.
        is_gradient: True if the blocks are of the input's gradient.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: ElementType
    compares: bool
    is_gradient: bool

    def vertex_cycles(self, v: Any, ipu: Ipu) -> Int64:
        """Tile cycles of each vertex, from its fields."""
        blocks, which = self._forms(v)
        return self.block_cycles(blocks, ipu)[which]

    def block_cycles(self, blocks: Int64, ipu: Ipu) -> Int64:
        """Tile cycles of blocks, rows of ``blocks``: samples, groups, channels of each; then for each field dimension
        the extent of what is read, that of the block, and where its first position stands to what is read."""
        batch, groups, vectors = self._sizes(blocks, ipu)
        fields = [self._field(d, blocks) for d in range(len(self.kernel))]
        # Lists of work hold for all groups of channels: a loop around that over vectors runs over groups.
        pieces = self._pieces(batch, fields, ipu.num_workers)
        slots = self._slowest_worker(pieces, groups * vectors, ipu.num_workers)
        return np.asarray(LAUNCH_CYCLES + ipu.num_workers * (ENTRY_SLOTS + slots), np.int64)

    def vertex_state_bytes(self, v: Any, ipu: Ipu) -> Int64:
        """Bytes of the record of each vertex, from its fields."""
        blocks, which = self._forms(v)
        return self.block_state_bytes(blocks, ipu)[which]

    def block_state_bytes(self, blocks: Int64, ipu: Ipu) -> Int64:
        """Bytes that a vertex keeps on its tile for itself, lists of work included; ``blocks`` as for
        :meth:`block_cycles`."""
        batch, groups, _ = self._sizes(blocks, ipu)
        pieces = self._pieces(batch, [self._field(d, blocks) for d in range(len(self.kernel))], ipu.num_workers)
        lists = np.bincount(
            pieces.worker // ipu.num_workers, LIST_BYTES + ITEM_BYTES * pieces.items, minlength=len(blocks)
        ).astype(np.int64)
        # Inputs and outputs; the gradient of maxima has the inputs and outputs of the pooling beside them.
        pointers = (4 if self.compares and self.is_gradient else 2) * (LIST_BYTES + POINTER_BYTES * groups)
        starts = POINTER_BYTES + NUMBER_BYTES * ipu.num_workers
        size = pointers + starts + LIST_BYTES + POINTER_BYTES + lists + NUMBERS * NUMBER_BYTES
        return np.asarray(-(-size // POINTER_BYTES) * POINTER_BYTES, np.int64)

    def least_cycles(self, blocks: Int64, ipu: Ipu) -> Int64:
        """A bound of :meth:`block_cycles` from below: one row, and a worker's even share of items and positions."""
        batch, groups, vectors = self._sizes(blocks, ipu)
        met = batch * vectors
        for d in range(len(self.kernel)):
            field = self._field(d, blocks)
            met = met * field.met.sum(axis=(1, 2))[field.which]
        # Cuts between workers only add items, so the slowest has at least an even share of those of uncut rows.
        items, last = batch, self._field(len(self.kernel) - 1, blocks)
        for d in range(len(self.kernel) - 1):
            field = self._field(d, blocks)
            items = items * field.met.sum(axis=(1, 2))[field.which]
        items = items * last.met.any(axis=1).sum(axis=1)[last.which]
        slots = (self.position_slots * groups * met + self._item_slots(groups * vectors) * items) // ipu.num_workers
        return np.asarray(LAUNCH_CYCLES + ipu.num_workers * (ENTRY_SLOTS + ROW_SLOTS + slots), np.int64)

    def _forms(self, v: Any) -> tuple[Int64, Int64]:
        """The different blocks of vertices, and which is that of each."""
        names = [f"{n}_{d}" for d in range(len(self.kernel)) for n in ("in", "out", "first")]
        columns = [np.asarray(getattr(v, n), np.int64) for n in ("batch", "groups", "channels", *names)]
        table = np.stack(np.broadcast_arrays(*columns), axis=-1)
        # Many vertices have a block of the same form: each form is looked at once.
        blocks, which = np.unique(table, axis=0, return_inverse=True)
        return blocks, which.reshape(-1)

    def _sizes(self, blocks: Int64, ipu: Ipu) -> tuple[Int64, Int64, Int64]:
        """Samples, groups, and channel vectors of a group."""
        return blocks[:, 0], blocks[:, 1], -(-blocks[:, 2] // ipu.vector_width(self.dtype))

    def _field(self, dim: int, blocks: Int64) -> _FieldBlocks:
        # One row per different (extent, positions, first); the table of what is met can be large, so it is per kind.
        kinds, which = np.unique(blocks[:, 3 + 3 * dim : 6 + 3 * dim], axis=0, return_inverse=True)
        extent, out, first = (kinds[:, n, None, None] for n in range(3))
        position, k = np.arange(out.max(initial=0))[:, None], np.arange(self.kernel[dim])
        off: Any = np.int64(0)
        if self.is_gradient:
            # Of a gradient: output o meets position p by tap k if o·stride + k = p, so only whole quotients count.
            source, off = np.divmod(first + position - k, self.stride[dim])
        else:
            source = first + position * self.stride[dim] + k
        met = (off == 0) & (source >= 0) & (source < extent) & (position < out)
        which = which.reshape(-1)
        return _FieldBlocks(np.maximum(kinds[which, 1], 1), which, met)

    def _pieces(self, batch: Int64, fields: list[_FieldBlocks], workers: int) -> _RowPieces:
        width, last = fields[-1].out, fields[-1]
        positions = batch * np.prod([f.out for f in fields], axis=0, dtype=np.int64)
        # Workers have runs of positions, cut as the codelet cuts them; a run meets rows in pieces, and each piece costs
        # by itself.
        shares = np.arange(workers + 1) * positions[:, None] // workers
        begin, end = shares[:, :-1].reshape(-1), shares[:, 1:].reshape(-1)
        widths = np.repeat(width, workers)
        counts = np.where(end > begin, (end - 1) // widths - begin // widths + 1, 0)
        worker, number = count_up(counts)
        block, w = worker // workers, widths[worker]
        row = begin[worker] // w + number
        low, high = np.maximum(begin[worker] - row * w, 0), np.minimum(end[worker] - row * w, w)
        # Lines of input that a row of output meets: the product over the outer field dimensions, of which `row` is the
        # index.
        lines, place = np.ones(len(row), np.int64), row
        for field in reversed(fields[:-1]):
            place, at = np.divmod(place, field.out[block])
            lines = lines * field.met.sum(axis=2)[field.which[block], at]
        # Running sums give what any stretch of a row meets as a difference.
        along = np.pad(np.cumsum(last.met, axis=1, dtype=np.int64), ((0, 0), (1, 0), (0, 0)))
        reached = along[last.which[block], high] - along[last.which[block], low]
        items, met = lines * (reached > 0).sum(axis=1), lines * reached.sum(axis=1)
        return _RowPieces(len(batch), worker, items, met, high - low)

    def _slowest_worker(self, pieces: _RowPieces, vectors: Int64, workers: int) -> Int64:
        """Issue slots of the worker with the most, int64[blocks]."""
        each = vectors[pieces.worker // workers]
        slots = ROW_SLOTS + self._item_slots(each) * pieces.items + self.position_slots * each * pieces.met
        slots += INIT_SLOTS * each * pieces.positions
        total = np.bincount(pieces.worker, slots, minlength=pieces.blocks * workers).astype(np.int64)
        return np.asarray(total.reshape(-1, workers).max(axis=1, initial=0), np.int64)

    @staticmethod
    def _item_slots(vectors: Int64) -> Int64:
        return ITEM_SLOTS + VECTOR_SLOTS * vectors

    @property
    def position_slots(self) -> int:
        """Slots of a channel vector at a window position."""
        return COMPARING_POSITION_SLOTS if self.compares else POSITION_SLOTS


@dataclass(frozen=True)
class _FieldBlocks:
    """Blocks along a field dimension.

    Attributes:
        out: Positions of each, int64[blocks].
        which: The kind that each is of, int64[blocks].
        met: True where a window position meets what is read, at each position of a kind: bool[kinds, positions,
            kernel].
    """

    out: Int64
    which: Int64
    met: Bool


@dataclass(frozen=True)
class _RowPieces:
    """Pieces of rows that workers make, int64[n] each.

    Attributes:
        blocks: Number of blocks.
        worker: The worker, counted through all blocks.
        items: Work items of all groups of channels together.
        met: Window positions that are met, of all positions of the piece.
        positions: Positions of the piece.
    """

    blocks: int
    worker: Int64
    items: Int64
    met: Int64
    positions: Int64
