"""Grids that the planner weighs: sizes of their buckets, their temporaries, and what an even pattern costs on them.

All fields are arrays with one number for each candidate.

Example: 256 × 256 blocks of 16 × 16, a sixteenth of them held, on a grid of 16 × 11 × 8: a cell of 16 × 24 blocks has
24 of them, each of its 8 buckets 3, and room for 4.

Source: popsparse.md §4. Beyond PopLibs' own estimate stand barriers, and what spills cost
(:mod:`~abele.poplibs.popsparse.dynamic.spills`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from abele.arrays import Bool, Float64, Int64
from abele.machine.ipu import Ipu
from abele.numerics import ElementType, f16
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.costs import WORKERS, VertexWork
from abele.poplibs.popsparse.dynamic.options import DynamicOptions
from abele.poplibs.popsparse.dynamic.params import DynamicFullyConnectedParams
from abele.poplibs.popsparse.dynamic.plan import device_block, fast_edge, is_half, z_grain
from abele.poplibs.popsparse.dynamic.spills import deviations, expected_passes
from abele.poplibs.popsparse.dynamic.work import vertex_cycles
from abele.poplibs.popsparse.float8 import result_type

U16 = 65535


@dataclass(frozen=True)
class GridCandidates:
    """Grids of one product.

    Attributes:
        layer: Sizes.
        dtype: Type of values and dense operands.
        options: Options of the plan.
        ipu: The chip.
        px: Parts of the rows.
        py: Parts of the columns.
        pz: Parts of the dense columns.
    """

    layer: DynamicFullyConnectedParams
    dtype: ElementType
    options: DynamicOptions
    ipu: Ipu
    px: Int64
    py: Int64
    pz: Int64

    def chosen(self, which: Bool | Int64) -> GridCandidates:
        """Some of the candidates."""
        return replace(self, px=self.px[which], py=self.py[which], pz=self.pz[which])

    # Sizes of a cell and of a bucket.

    @cached_property
    def block(self) -> tuple[int, int]:
        """Block on the device."""
        return device_block(self.layer.sparsity.blockDimensions, self.dtype)

    @property
    def is_half(self) -> bool:
        """True for operands whose sums may be halves."""
        return is_half(self.dtype)

    @property
    def _density(self) -> float:
        return 1.0 if self.options.dense else self.layer.nzRatio

    @cached_property
    def xg(self) -> Int64:
        """Block rows of a cell."""
        return -(-(self.layer.outputChannelsPerGroup // self.block[0]) // self.px)

    @cached_property
    def yg(self) -> Int64:
        """Block columns of a cell."""
        return -(-(self.layer.inputChannelsPerGroup // self.block[1]) // self.py)

    @cached_property
    def zg(self) -> Int64:
        """Dense columns of a tile."""
        grain = 1 if self.block != (1, 1) else z_grain(self.dtype)
        grains = -(-self.layer.batchSize // grain)
        return -(-grains // self.pz) * grain

    @cached_property
    def rows(self) -> Float64:
        """Rows with values in a bucket, expected; cells with fewer rows than buckets cut rows."""
        rows = np.maximum(1, np.ceil(self.xg / self.pz))
        wide = self.yg * np.minimum(1.0, self.xg / self.pz)
        return np.asarray(np.maximum(1.0, np.ceil(rows * (1 - (1 - self._density) ** wide) - 1e-9)))

    @cached_property
    def by_row(self) -> Float64:
        """Values (blocks) of such a row."""
        held = np.ceil(self.xg * self.yg / self.pz * self._density - 1e-9)
        return np.ceil(held / self.rows - 1e-9)

    @cached_property
    def held(self) -> Float64:
        """Blocks of a bucket of an even pattern."""
        total = self.layer.numNonZeroValues / self.layer.numGroups / (self.block[0] * self.block[1])
        return np.asarray(np.maximum(1.0, np.ceil(np.ceil(total) / (self.px * self.py * self.pz) - 1e-9)))

    @cached_property
    def nz_slots(self) -> Int64:
        """Blocks that a bucket has room for."""
        area = self.block[0] * self.block[1]
        slots = np.rint(self.held * (1 + self.options.oversize)).astype(np.int64)
        word = 2 if self.is_half or self.options.grad_w else 1  # words of the exchange, and 8 bytes of partials
        return slots if area % word == 0 else slots + slots % word

    @cached_property
    def meta_slots(self) -> Int64:
        """Entries of a bucket's meta-info."""
        if self.block == (1, 1):
            header = 9 + WORKERS * (10 if self.options.grad_w else 5)
        else:
            header = 7 + (4 * WORKERS if self.options.grad_w else 0)
        return _even(2 * header + np.ceil(self.rows * (2 + self.by_row) * (1 + self.options.oversize)))

    @cached_property
    def grad_a_slots(self) -> Int64:
        """Entries of a bucket's list of columns, where there is one."""
        if self.options.shared or not self.options.grad_a:
            return np.zeros_like(self.px)
        # The bucket's values by columns instead: as many, in rows of the transpose.
        columns = np.maximum(1.0, np.ceil(self.yg * (1 - (1 - self._density) ** np.ceil(self.xg / self.pz))))
        by_column = np.ceil(self.rows * self.by_row / columns)
        header = 9 + 5 * WORKERS if self.block == (1, 1) else 7
        return _even(2 * header + np.ceil(columns * (2 + 2 * by_column) * (1 + self.options.oversize)))

    @cached_property
    def nz_bytes(self) -> Int64:
        """Bytes of a bucket's values."""
        return self.nz_slots * self.block[0] * self.block[1] * self.dtype.bytes

    @cached_property
    def meta_bytes(self) -> Int64:
        """Bytes of the meta-info that goes with them."""
        return 2 * np.maximum(self.meta_slots, self.grad_a_slots)

    @cached_property
    def fits_u16(self) -> Bool:
        """True where offsets within a cell fit 16 bits, as scaled on the machine."""
        scale = 2 if self.is_half else 4
        reach = np.maximum((self.yg * self.block[1] - 1) * self.zg * scale, self.xg * self.block[0] - 1)
        slots = np.maximum(self.nz_slots, self.meta_slots)
        return np.asarray((reach <= U16) & (self.px * self.py < U16) & (slots <= U16))

    # Temporaries.

    @property
    def partial_size(self) -> int:
        """Bytes of a partial sum."""
        return self.options.partials.bytes if self.is_half else 4

    def _slices(self, grad_a: bool) -> tuple[Int64, Int64]:
        """Elements of a tile's dense slice and of its partials."""
        rows, columns = self.xg * self.block[0] * self.zg, self.yg * self.block[1] * self.zg
        return (rows, columns) if grad_a else (columns, rows)

    @cached_property
    def temporary_bytes(self) -> Int64:
        """Most bytes of temporaries of a tile, over passes and stages."""
        bucket = self.nz_bytes + self.meta_bytes
        worst = np.zeros_like(self.px)
        for grad_a in (False, True)[: 1 + self.options.grad_a]:
            dense, partials = self._slices(grad_a)
            parts = self.px if grad_a else self.py
            out = partials * self.partial_size
            at_work = dense * self.dtype.bytes + out + np.maximum(self.pz * bucket, 2 * bucket)
            worst = np.maximum(worst, np.maximum(at_work, np.where(parts > 1, 2 * out, 0)))
        if self.options.grad_w:
            dense = (self._slices(False)[0] + self._slices(True)[0]) * self.dtype.bytes
            own = self.nz_slots * self.block[0] * self.block[1] * 4
            worst = np.maximum(
                worst, np.where(self.moves_buckets, dense + 2 * (self.meta_bytes + own), 2 * dense + own)
            )
        return worst

    # Cycles of an even pattern, and of what spills.

    @property
    def _rate(self) -> float:
        return self.ipu.exchange.bytes_per_cycle

    @property
    def step_cycles(self) -> int:
        """Barrier and launch of a superstep."""
        ipu = self.ipu
        return ipu.sync.on_chip_cycles + ipu.launch.compute_set_cycles + ipu.exchange.phase_overhead_cycles

    def stages(self) -> list[tuple[str, str, Float64]]:
        """Pass, stage and cycles."""
        found = self._product("fwd", grad_a=False)
        if self.options.grad_a:
            found += self._product("gradA", grad_a=True)
        if self.options.grad_w:
            found += self._weights()
        return found

    def _product(self, name: str, *, grad_a: bool) -> list[tuple[str, str, Float64]]:
        dense, partials = self._slices(grad_a)
        parts = self.px if grad_a else self.py
        bucket = self.nz_bytes + self.meta_bytes
        paired = np.where(self.pz % 2 == 0, self.ipu.exchange.pair_bytes_per_cycle, self._rate)
        receive = dense * self.dtype.bytes / self._rate + self.pz * bucket / paired
        compute = self.vertex_cycles("gradA" if grad_a else "fwd", self.pz)
        zero = costs.zero_cycles(partials * self.partial_size)
        passes = self.passes
        one = bucket / self._rate + self.vertex_cycles("gradA" if grad_a else "fwd", 1) + 2 * self.step_cycles
        stages = [
            ("exchange", receive + self.step_cycles),
            ("compute", compute + zero + 2 * self.step_cycles),
            ("spills", passes * self.pz * one + self.step_cycles),
            ("reduction", self._reduction(partials, parts)),
        ]
        return [(name, stage, cycles) for stage, cycles in stages]

    def _reduction(self, partials: Int64, parts: Int64) -> Float64:
        half = self.is_half and self.options.partials == f16
        received = partials * self.partial_size * (parts - 1) / parts / self._rate
        summed = received + costs.reduce_cycles(np.ceil(partials / parts), parts, half) + 2 * self.step_cycles
        made = result_type(self.dtype).bytes
        cast = costs.cast_cycles(partials, self.partial_size, made) + self.step_cycles
        return np.where(parts > 1, summed, cast if self.partial_size != made else 0)

    def _weights(self) -> list[tuple[str, str, Float64]]:
        passes = self.passes
        compute = self.vertex_cycles("gradW", 1)
        moved = np.minimum(self._moved_buckets, self._moved_dense)
        rounds = self.pz * (1 + passes)
        stages = [
            ("exchange", moved * rounds + self.step_cycles * rounds),
            ("compute", (compute + self.step_cycles) * self.pz),
            ("spills", (compute + self.step_cycles) * self.pz * passes),
        ]
        return [("gradW", stage, cycles) for stage, cycles in stages]

    @cached_property
    def _moved_buckets(self) -> Float64:
        return (self.nz_slots * self.block[0] * self.block[1] * 4 + 2 * self.meta_slots) / self._rate

    @cached_property
    def _moved_dense(self) -> Float64:
        return (self._slices(False)[0] + self._slices(True)[0]) * self.dtype.bytes / self._rate

    @cached_property
    def moves_buckets(self) -> Bool:
        """True where moving buckets takes less than moving dense slices, or as asked for."""
        if self.options.moves_buckets is not None:
            return np.full(len(self.px), self.options.moves_buckets)
        return np.asarray(self._moved_buckets < self._moved_dense)

    def vertex_cycles(self, name: str, buckets: Int64 | int) -> Float64:
        """Cycles of a pass's vertex on the busiest tile, with ``buckets`` buckets of a uniform random pattern."""
        return vertex_cycles(self, name, self._busiest(name, buckets))

    def _busiest(self, name: str, buckets: Int64 | int) -> VertexWork:
        """Work of the busiest tile: the fullest cell's blocks, and the fullest worker's rows.

        The fullest of N cells has √(2 ln N) deviations more than the mean, within the room of its buckets; the fullest
        of six workers 1.27, the expected largest of six normal variables.
        """
        cells = self.layer.numGroups * self.px * self.py
        mean, deviation = self.cell_blocks
        room = np.minimum(self.pz * self.nz_slots, self.xg * self.yg)
        peak = np.minimum(np.ceil(mean + deviation * np.sqrt(2 * np.log(cells))), room)
        share = np.maximum(1.0, peak / self.pz)  # of one bucket
        relevant = np.minimum(np.asarray(buckets), np.maximum(1.0, peak))
        rows = np.minimum(self.rows, share)
        values = share / rows
        if self.block == (1, 1):
            several = np.ceil(rows / WORKERS)
            values = values + 1.27 * np.sqrt(np.maximum(values * (1 - self._density), 0) / several)
        return VertexWork(rows, values, self.zg, buckets, relevant)

    @cached_property
    def cell_blocks(self) -> tuple[Float64, Float64]:
        """Mean and standard deviation of a cell's blocks in a uniform random pattern."""
        mean = np.asarray(self.xg * self.yg * self._density, np.float64)
        return mean, np.asarray(np.sqrt(np.maximum(mean * (1 - self._density), 1e-9)), np.float64)

    @cached_property
    def passes(self) -> Float64:
        """Passes that what spills of a uniform random pattern is expected to take."""
        mean, cells = self.cell_blocks[0], self.px * self.py
        # Entries of the meta-info: two for each row, cut rows among them, and one for each value.
        entries = self.pz * (self.meta_slots - _header(self)) - 2 * (self.rows * self.pz + self.pz)
        room = np.minimum(self.pz * self.nz_slots, entries).astype(np.float64)
        places = np.asarray(self.xg * self.yg, np.float64)
        found = expected_passes(deviations(room, mean, places), self.layer.numGroups * cells)
        return np.where(cells > 1, np.minimum(found, cells - 1), 0.0)

    @cached_property
    def amp_grad_w(self) -> Bool:
        """True where the matrix units compute gradients of weights the faster way."""
        edge = fast_edge(self.block, self.dtype)
        if not edge or self.layer.batchSize % (16 if self.is_half else 8):
            return np.zeros(len(self.px), bool)
        work = VertexWork(self.rows, self.by_row, self.zg, 1, 1)
        half = self.options.partials == f16
        return np.asarray(
            costs.amp_grad_w_cycles(work, edge, self.is_half, half)
            < costs.block_grad_w_cycles(work, edge, self.is_half, half)
        )


def _header(of: GridCandidates) -> int:
    if of.block == (1, 1):
        return 9 + WORKERS * (10 if of.options.grad_w else 5)
    return 7 + (4 * WORKERS if of.options.grad_w else 0)


def _even(entries: Float64) -> Int64:
    rounded = np.ceil(entries).astype(np.int64)
    return np.asarray(rounded + rounded % 2)
