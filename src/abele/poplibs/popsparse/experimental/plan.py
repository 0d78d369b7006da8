"""Plans of products of blocks: strips or chunks, passes, and the tile of each unit.

The number of parts (strips of rows, or chunks of the inner dimension) is the one choice beside the partition. More
parts keep more tiles busy and make each piece smaller, but every part loads the weights anew, or leaves partial sums to
add. Powers of two are tried. Each is partitioned as it would run, and estimated by the cost functions of the vertices
that would be placed, so that the estimate and the program differ in exchange alone.

Cycles and memory are weighed by ``memoryCycleRatio``: of r, cycles relative to the fastest count 1 − r, and temporary
bytes relative to the smallest r.

Example: 64 × 4,096 · 4,096 × 4,096 in blocks of 16 at density 1/16 has 4,096 held blocks. One strip gives each of 1,472
tiles two or three units of 64 positions; four strips 11 or 12 of 16, which load weights four times as often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from abele.arrays import Int64
from abele.machine import System
from abele.poplibs.poplin.planner.target import PlanningTarget, target_of
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.method import Method
from abele.poplibs.poplin.vertices.work import Work
from abele.poplibs.popsparse.experimental.params import BlockProductOptions, BSMatMulParams
from abele.poplibs.popsparse.experimental.partition import Tiles, partition
from abele.poplibs.popsparse.experimental.units import BlockUnits
from abele.poplibs.popsparse.float8 import check_chip

_MOST_UNITS_PER_TILE = 64
"""Units per tile above which no further parts are tried. Chosen."""
_MOST_CANDIDATES = 2**20
"""Units above which only the first candidate is estimated. Chosen: about a second of NumPy."""


class BlockVertices(NamedTuple):
    """Vertices of one pass: units that share a tile and what the matrix units hold.

    Attributes:
        order: Units by vertex, int64[units].
        begin: First unit of each vertex in that order, and the end of the last, int64[vertices + 1].
        tile: Tile of each, int32[vertices].
    """

    order: Int64
    begin: Int64
    tile: Tiles

    @property
    def counts(self) -> Int64:
        """Units of each vertex, int64[vertices]."""
        return np.diff(self.begin)


@dataclass(frozen=True)
class ProductPass:
    """One pass of a plan.

    Attributes:
        units: Its units.
        tile: Tile of each, int32[units].
    """

    units: BlockUnits
    tile: Tiles

    @cached_property
    def vertices(self) -> BlockVertices:
        """Vertices of the pass, tile by tile."""
        units = self.units
        order = np.lexsort((units.block, units.part, units.together, self.tile))
        tile, key = self.tile[order], units.together[order]
        starts = np.flatnonzero(np.append(units.num > 0, (tile[1:] != tile[:-1]) | (key[1:] != key[:-1])))
        begin = np.append(starts, units.num)
        return BlockVertices(order, begin, tile[begin[:-1]])

    @cached_property
    def work(self) -> Work:
        """Sizes of the vertices, as the cost functions of products take them."""
        units, vertices = self.units, self.vertices
        params, first = units.params, vertices.order[vertices.begin[:-1]]
        bm, bk, bn = params.blockSize
        ones = np.ones(len(first), np.int64)
        if params.isResultSparse:
            positions, inner = vertices.counts * bm, units.extent[first]
        else:
            positions, inner = units.extent[first], vertices.counts * bk
        return Work(
            params.inDataType,
            params.partialDataType,
            groups=ones,
            in_channels=inner,
            out_channels=ones * bn,
            positions=positions,
            outputs=positions,
            run=positions,
            kernel_outer=ones,
            kernel_inner=ones,
        )


@dataclass(frozen=True)
class BlockPlan:
    """A product of blocks, shared out between tiles.

    Attributes:
        params: The product.
        options: Options that it was planned with.
        method: Form of the vertices.
        passes: Parts of the result, made one after the other.
        cycles: Estimated cycles.
        temporary_bytes: Estimated bytes that the fullest tile receives and sums, beside operands and result.
    """

    params: BSMatMulParams
    options: BlockProductOptions
    method: Method
    passes: tuple[ProductPass, ...]
    cycles: int
    temporary_bytes: int

    @property
    def parts(self) -> int:
        """Strips or chunks of a group."""
        return self.passes[0].units.parts

    def __str__(self) -> str:
        what = "chunks" if self.params.isResultSparse else "strips"
        tiles = max(len(np.unique(p.tile)) for p in self.passes)
        return (
            f"{self.params.pattern} · {self.options.method}, {self.parts} {what}, {len(self.passes)} passes, "
            f"{tiles:,} tiles, about {self.cycles:,} cycles and {self.temporary_bytes:,} B"
        )


@lru_cache(maxsize=128)
def plan_blocks(params: BSMatMulParams, options: BlockProductOptions, system: System) -> BlockPlan:
    """The plan of a product on one IPU of ``system``, or on all its tiles if it is one.

    Calls of equal parameters share it.

    Raises:
        TypeMismatchError: 8-bit floats on a chip that does not multiply them.
    """
    check_chip("a product of blocks", params.inDataType, system)
    target = target_of(system)
    method = _method(params, target)
    found = [_planned(params, options, method, target, parts) for parts in _parts(params, target)]
    fastest, smallest = min(p.cycles for p in found), min(p.temporary_bytes for p in found)
    ratio = options.memory_ratio

    def weight(plan: BlockPlan) -> float:
        return (1 - ratio) * plan.cycles / max(fastest, 1) + ratio * plan.temporary_bytes / max(smallest, 1)

    return min(found, key=weight)


def _method(params: BSMatMulParams, target: PlanningTarget) -> Method:
    units, core = target.conv_units(params.inDataType, params.partialDataType)
    if not units:
        return Method("hmac")
    return Method("amp_1x1", units, 1, target.wide_loads, core)


def _parts(params: BSMatMulParams, target: PlanningTarget) -> list[int]:
    """Numbers of strips or chunks that are worth a look."""
    along = 1 if params.isResultSparse else 0
    most = params.dim[along] // params.blockSize[along]
    blocks = max(params.pattern.num_blocks, 1)
    wanted = min(most, max(1, _MOST_UNITS_PER_TILE * target.tiles // blocks))
    if blocks > _MOST_CANDIDATES:
        return [1]
    return sorted({*(1 << i for i in range(wanted.bit_length())), wanted})


def _planned(
    params: BSMatMulParams, options: BlockProductOptions, method: Method, target: PlanningTarget, parts: int
) -> BlockPlan:
    units = BlockUnits.of(params, parts)
    passes = tuple(
        ProductPass(some, partition(some, options.method, target.tiles)) for some in _in_passes(units, options.passes)
    )
    found = [_estimate(one, method, target) for one in passes]
    cycles = int(sum(sum(e.cycles) for e in found))
    return BlockPlan(params, options, method, passes, cycles, max(e.temporary_bytes for e in found))


def _in_passes(units: BlockUnits, passes: int) -> list[BlockUnits]:
    """Units of each pass: whole outputs, in order, about as many units in each pass."""
    if passes == 1 or not units.num:
        return [units]
    order = np.argsort(units.out, kind="stable")
    outputs = units.out[order]
    first = np.searchsorted(outputs, outputs)
    number = np.empty(units.num, np.int64)
    number[order] = first * passes // units.num
    kept = [units.take(np.flatnonzero(number == n)) for n in range(passes)]
    return [some for some in kept if some.num] or [units]


_TERMS = ("exchange of operands", "products", "sums of parts", "sync and launch")


def product_cycles(plan: BlockPlan, system: System) -> tuple[tuple[str, int], ...]:
    """Expected cycles of a plan by name, in the order of execution."""
    target = target_of(system)
    columns = zip(*(_estimate(one, plan.method, target).cycles for one in plan.passes), strict=True)
    return tuple((name, int(sum(column))) for name, column in zip(_TERMS, columns, strict=True))


class _BlockEstimate(NamedTuple):
    """Expected cycles of a pass, in the order of :data:`_TERMS`, and bytes that its fullest tile takes in or sums."""

    cycles: tuple[float, ...]
    temporary_bytes: int


def _estimate(one: ProductPass, method: Method, target: PlanningTarget) -> _BlockEstimate:
    units, params, tiles = one.units, one.units.params, target.tiles
    if not units.num:
        return _BlockEstimate((0.0,) * len(_TERMS), 0)
    vertices = one.vertices
    compute = np.bincount(vertices.tile, method.cycles(one.work, target.load_bytes), minlength=tiles)
    received = np.zeros(tiles)
    for piece, elements in ((units.x, units.x_elements), (units.w, units.w_elements)):
        _, first = np.unique(one.tile.astype(np.int64) * (int(piece.max()) + 1) + piece, return_index=True)
        received += np.bincount(one.tile[first], elements[first] * params.inDataType.bytes, minlength=tiles)
    held = np.bincount(vertices.tile, _vertex_out(one) * params.partialDataType.bytes, minlength=tiles)
    arriving = float(received.max()) / target.exchange_bytes_per_cycle
    finish = _finish_cycles(one, target)
    steps = target.superstep_cycles * (2 if finish else 1)
    return _BlockEstimate((arriving, float(compute.max()), finish, steps), int((received + held).max()))


def _finish_cycles(one: ProductPass, target: PlanningTarget) -> float:
    """Cycles of the superstep that sums or converts what vertices wrote; 0 where there is none."""
    params, (out, elements, tile) = one.units.params, pieces_of(one)
    kinds = params.partialDataType, params.outDataType
    number, depths = np.unique(out, return_inverse=True, return_counts=True)[1:]
    depth = depths[number.reshape(-1)]
    # Each tile with a piece sums a share of the output, of which the other pieces' parts arrive.
    share, summed = -(-elements // depth), depth > 1
    arriving = np.bincount(tile, np.where(summed, share * (depth - 1) * params.partialDataType.bytes, 0))
    cycles = np.bincount(tile, np.where(summed, cost.reduce_add_list(share, depth, *kinds), 0))
    if params.partialDataType != params.outDataType:
        alone = np.bincount(tile, np.where(summed, 0, elements))
        cycles += np.where(alone > 0, cost.cast_interleaved(alone.astype(np.int64), *kinds), 0)
    if not cycles.any():
        return 0.0
    return float(cycles.max()) + float(arriving.max()) / target.exchange_bytes_per_cycle


def _vertex_out(one: ProductPass) -> Int64:
    """Elements that each vertex writes."""
    vertices = one.vertices
    if one.units.params.isResultSparse:
        return np.add.reduceat(one.units.out_elements[vertices.order], vertices.begin[:-1])
    return one.units.out_elements[vertices.order[vertices.begin[:-1]]]


def pieces_of(one: ProductPass) -> tuple[Int64, Int64, Tiles]:
    """Output, elements and tile of each piece that vertices write, in their order: a unit's, or a whole vertex's."""
    units, vertices = one.units, one.vertices
    if units.params.isResultSparse:
        return units.out[vertices.order], units.out_elements[vertices.order], one.tile[vertices.order]
    first = vertices.order[vertices.begin[:-1]]
    return units.out[first], units.out_elements[first], vertices.tile
