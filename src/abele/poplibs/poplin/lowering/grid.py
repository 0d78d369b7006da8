"""Slices: part of each operand that every vertex of a planned contraction works on.

There is one vertex for each combination of parts, and one tile for each vertex. The order of vertices is that of
``ContractionPlan.split_dims``, in which dimensions that are summed over come last: so the vertices of one output
block, whose partials are summed, are neighbours, and a block's partials are a row of a [blocks, depth] array. The order
of *tiles* is another one: parts of the out-channels vary fastest, because their tiles want the same input, and the
exchange delivers to an even and the next odd tile at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.graph import IntervalMap, Regions
from abele.poplibs.poplin.contraction.operand import Box, Operand
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.poplibs.poplin.planner.target import PlanningTarget
from abele.poplibs.poplin.vertices import geometry_fields as at
from abele.poplibs.poplin.vertices.field_table import field_table
from abele.poplibs.poplin.vertices.work import Work
from abele.poplibs.poputil.regions import split_evenly

# The geometry that a partial-product vertex is given: extents, relations and strides of its slices.

_UNIT_AXIS = Axis(1, 1, 1)
_Fields = dict[int, Int64 | int]
_Strides = Mapping[tuple[str, bool], Int64]


@dataclass(frozen=True)
class Slices:
    """First index and size of the slices of all vertices, by dimension name.

    Attributes:
        start: First index, int64[n] each: split dimensions, and the inputs that they reach.
        size: Number of indices, int64[n] each.
    """

    start: Box
    size: Box

    @property
    def num(self) -> int:
        """Number of vertices."""
        return len(self.size["g"])


def geometry(
    axes: tuple[Axis, ...], slices: Slices, x: Operand, w: Operand, out: Operand, pitch: Int64
) -> npt.NDArray[np.int32]:
    """The geometry vectors of all vertices, int32[n, 50].

    Elements are named in :mod:`~abele.poplibs.poplin.vertices.geometry_fields`. A vertex walks each operand by local
    strides: its slice is contiguous on the tile, whatever the operand's storage looks like around it. Out-channels of a
    position take ``pitch`` places, int64[n], of which the last may be padding.
    """
    size = slices.size
    inner = {dim: _inner(dim, operands) for dim, operands in (("ci", (x, w)), ("co", (w, out)), ("b", (x, out)))}
    fields = _extents(axes, size, inner)
    for d, place in _placed(axes):
        fields |= _relation(axes, slices, d, place)
    strides = {
        "x": x.local_strides(size),
        "w": w.local_strides(size),
        "y": _padded(out.local_strides(size), size["co"], pitch),
    }
    fields |= _channel_strides(strides, size, inner)
    fields |= _field_strides(axes, strides)
    return field_table(fields, at.NUM_FIELDS, slices.num)


def _padded(strides: _Strides, channels: Int64, pitch: Int64) -> _Strides:
    """Strides of a block in which the channels, innermost, take ``pitch`` places."""
    if np.array_equal(channels, pitch):
        return strides
    return {at: stride if at == ("co", False) else stride // channels * pitch for at, stride in strides.items()}


def _placed(axes: tuple[Axis, ...]) -> list[tuple[int | None, int]]:
    """Field dimensions of the vertex as (axis, place); leading ones that the contraction lacks have no axis."""
    missing = at.FIELD_DIMS - len(axes)
    return [(None if place < missing else place - missing, place) for place in range(at.FIELD_DIMS)]


def _inner(dim: str, operands: tuple[Operand, Operand]) -> int | None:
    """Indices in a block of a dimension, or None where no operand stores it in blocks."""
    return next((b for op in operands if (b := op.block(dim)) is not None), None)


def _extents(axes: tuple[Axis, ...], size: Box, inner: Mapping[str, int | None]) -> _Fields:
    """Numbers of indices; of channels and samples in two levels, one block where they are not stored in blocks."""
    fields: _Fields = {at.NUM_G: size["g"]}
    two_levels = (("co", at.NUM_CO1, at.NUM_CO0), ("b", at.NUM_B1, at.NUM_B0), ("ci", at.NUM_CI1, at.NUM_CI0))
    for dim, outer_field, inner_field in two_levels:
        block = inner[dim]
        fields[outer_field] = 1 if block is None else size[dim] // block
        fields[inner_field] = size[dim] if block is None else block
    for d, place in _placed(axes):
        for name, field in (("o", at.NUM_O), ("k", at.NUM_K), ("i", at.NUM_I)):
            fields[field[place]] = 1 if d is None else size[f"{name}{d}"]
    return fields


def _relation(axes: tuple[Axis, ...], slices: Slices, d: int | None, place: int) -> _Fields:
    """Fields that relate inputs to outputs and kernel positions, in the indices of each slice.

    The axis holds for indices of the whole contraction. With i = start_i + i', and o and k likewise, the starts join
    the offset and the steps stay what they are.
    """
    axis = _UNIT_AXIS if d is None else axes[d]
    offset: Int64 | int = axis.offset
    if d is not None:
        start = slices.start
        # Indices of a slice count from its own start: the starts join the constant of the relation, and steps stay.
        offset = offset + axis.out_step * start[f"o{d}"] + axis.kernel_step * start[f"k{d}"]
        offset = offset - axis.in_step * start[f"i{d}"]
    steps = {at.IN_STEP: axis.in_step, at.OUT_STEP: axis.out_step, at.KERNEL_STEP: axis.kernel_step}
    return {at.OFFSET[place]: offset} | {field[place]: step for field, step in steps.items()}


def _channel_strides(strides: Mapping[str, _Strides], size: Box, inner: Mapping[str, int | None]) -> _Fields:
    """Strides along groups, samples and channels: of blocks, and of places in a block."""
    fields: _Fields = {f: strides[op].get(("g", False), 0) for f, op in ((at.X_G, "x"), (at.W_G, "w"), (at.Y_G, "y"))}

    def blocks(op: str, dim: str) -> Int64 | int:
        block = inner[dim]
        # One block alone has no stride between blocks: a step over the whole block stands for it.
        whole = strides[op].get((dim, False), 0) * (size[dim] if block is None else block)
        return strides[op].get((dim, True), whole)

    for field, op, dim in (
        (at.X_B1, "x", "b"),
        (at.X_CI1, "x", "ci"),
        (at.W_CO1, "w", "co"),
        (at.W_CI1, "w", "ci"),
        (at.Y_B1, "y", "b"),
        (at.Y_CO1, "y", "co"),
    ):
        fields[field] = blocks(op, dim)
    for field, op, dim in (
        (at.X_B0, "x", "b"),
        (at.W_CO0, "w", "co"),
        (at.Y_B0, "y", "b"),
        (at.Y_CO0, "y", "co"),
    ):
        fields[field] = strides[op].get((dim, False), 0)
    return fields


def _field_strides(axes: tuple[Axis, ...], strides: Mapping[str, _Strides]) -> _Fields:
    """Strides along inputs, kernel positions and outputs."""
    fields: _Fields = {}
    for d, place in _placed(axes):
        for op, name, field in (("x", "i", at.X_I), ("w", "k", at.W_K), ("y", "o", at.Y_O)):
            fields[field[place]] = 0 if d is None else strides[op].get((f"{name}{d}", False), 0)
    return fields


MOST_MOVING = 0.1
"""Share of a tile's memory from which on operands of products arrive in halves, where they may. Chosen."""
_COST_OF_HALVES = 1 / 128
"""Most that the superstep of a second half is of a product's cycles. Chosen."""


@dataclass(frozen=True)
class VertexGrid:
    """The vertices of a plan: one for every combination of parts, those of one output block next to each other.

    Attributes:
        plan: The plan.
        half: Number of the half of every vertex's in-channels that it is of; None for all.
    """

    plan: ContractionPlan
    half: int | None = None

    @property
    def num(self) -> int:
        """Number of vertices."""
        return self.plan.tiles

    def halves(self, target: PlanningTarget) -> tuple[VertexGrid, ...]:
        """This, or its halves: each has half of every vertex's in-channels.

        One half arrives and is multiplied after the other, and its products are added to those of the first, where they
        lie. So half of the operands is there at a time, and no more. It costs a superstep, so it is done only where
        slices are more than :data:`MOST_MOVING` of a tile and take long to multiply.
        """
        problem, size = self.plan.problem, self.all.size
        x, w = (np.prod([size[dim] for dim in dims], axis=0) for dims in (self.input_dims, self.weight_dims))
        is_large = int((x + w).max()) * problem.dtype.bytes > MOST_MOVING * target.tile_bytes
        takes_long = target.superstep_cycles < _COST_OF_HALVES * self.plan.cycles
        can = problem.is_pointwise and self.plan.method.family == "amp" and size["ci"].min() > self._grain("ci")
        return (replace(self, half=0), replace(self, half=1)) if is_large and takes_long and can else (self,)

    def _grain(self, dim: str) -> int:
        """Factor that parts of a dimension are multiples of."""
        return self.plan.grains[self.plan.problem.split_dims.index(dim)]

    @cached_property
    def tiles(self) -> npt.NDArray[np.int32]:
        """Tile of every vertex: neighbours differ in their out-channels, so that pairs of tiles want the same input.

        Passes of a layer that are planned together number their tiles alike, whatever its dimensions are to each.
        """
        dims = self.plan.problem.split_dims
        # Number the tiles with the out-channels innermost, then read the numbers in the order of vertices.
        numbered = self.plan.order or sorted(dims, key="co".__eq__)
        ranks = np.arange(self.num, dtype=np.int32).reshape([self.plan.split[dim] for dim in numbered])
        return np.ascontiguousarray(ranks.transpose([numbered.index(dim) for dim in dims])).reshape(-1)

    def _index(self, dims: tuple[str, ...]) -> dict[str, Int64]:
        """Part along each of ``dims`` for every combination of their parts."""
        parts = [self.plan.split[d] for d in dims]
        index = np.unravel_index(np.arange(prod(parts), dtype=np.int64), parts)
        return dict(zip(dims, (np.asarray(i, dtype=np.int64) for i in index), strict=True))

    def slices(self, dims: tuple[str, ...]) -> Slices:
        """Start and size along ``dims`` and along the inputs that they reach, for every combination of parts."""
        start: dict[str, Int64] = {}
        size: dict[str, Int64] = {}
        for dim, part in self._index(dims).items():
            starts, sizes = self._pieces(dim)
            start[dim], size[dim] = starts[part], sizes[part]
        for d, axis in enumerate(self.plan.problem.axes):
            o, k = f"o{d}", f"k{d}"
            if o in start and k in start:
                start[f"i{d}"], size[f"i{d}"] = axis.input_range(start[o], size[o], start[k], size[k])
        return Slices(start, size)

    def _pieces(self, dim: str) -> tuple[Int64, Int64]:
        """First index and size of every part of a dimension; of in-channels, in this half."""
        starts, sizes = self.plan.pieces(dim)
        if dim != "ci" or self.half is None:
            return starts, sizes
        grain = self._grain(dim)
        middle = np.minimum((-(-sizes // grain) + 1) // 2 * grain, sizes)
        return (starts + middle, sizes - middle) if self.half else (starts, middle)

    @cached_property
    def all(self) -> Slices:
        """The slices of every vertex, along every dimension."""
        return self.slices(self.plan.problem.split_dims)

    def shared(self, operand: Operand, dims: tuple[str, ...]) -> tuple[Regions, Int64]:
        """Regions of an operand that depends on the split ``dims`` alone, and the region of every vertex."""
        part = self.slices(dims)
        everyone = self._index(self.plan.problem.split_dims)
        index = np.ravel_multi_index([everyone[d] for d in dims], [self.plan.split[d] for d in dims])
        return operand.regions(part.start, part.size), np.asarray(index, dtype=np.int64)

    @property
    def input_dims(self) -> tuple[str, ...]:
        """Split dimensions that the slice of the input depends on."""
        return tuple(d for d in self.plan.problem.split_dims if d != "co")

    @property
    def weight_dims(self) -> tuple[str, ...]:
        """Split dimensions that the slice of the weights depends on."""
        return tuple(d for d in self.plan.problem.split_dims if d in ("g", "co", "ci") or d[0] == "k")

    @property
    def out_dims(self) -> tuple[str, ...]:
        """Split dimensions that the slice of the output depends on."""
        return tuple(d for d in self.plan.problem.split_dims if d in ("g", "b", "co") or d[0] == "o")

    @cached_property
    def out_channels(self) -> Int64:
        """Out-channels of every output block, int64[blocks]."""
        return self.slices(self.out_dims).size["co"]

    @cached_property
    def written_channels(self) -> Int64:
        """Places that they take in partials, int64[blocks]: more where the vertex writes whole groups."""
        return self.plan.method.written_channels(self.out_channels)

    def work(self) -> Work:
        """Work of every vertex."""
        problem, slices = self.plan.problem, self.all
        size, rank = slices.size, problem.rank
        everyone = self._index(problem.split_dims)
        ones = np.ones(self.num, dtype=np.int64)
        positions, field, taps = size["b"].astype(np.float64), ones, ones
        for d, axis in enumerate(problem.axes):
            cuts = [
                np.append(starts, starts[-1] + sizes[-1]) for starts, sizes in map(self.plan.pieces, (f"o{d}", f"k{d}"))
            ]
            # Padding and dilation leave positions without an input: a vertex works on the pairs that meet, not on
            # outputs times kernel.
            pairs = axis.count_pairs(*cuts)[everyone[f"o{d}"], everyone[f"k{d}"]]
            positions = positions * pairs / size[f"k{d}"]
            field, taps = field * size[f"o{d}"], taps * size[f"k{d}"]
        inner = size[f"k{rank - 1}"] if rank else ones
        outputs = size["b"] * field
        return Work(
            dtype=problem.dtype,
            partials=problem.partials,
            groups=size["g"],
            in_channels=size["ci"],
            out_channels=size["co"],
            positions=np.ceil(positions).astype(np.int64),
            outputs=outputs,
            run=size[f"o{rank - 1}"] if rank else outputs,
            kernel_outer=taps // inner,
            kernel_inner=inner,
        )


# Homes: which tile ends up with which share of a planned contraction's output.
#
# A block of the output that one vertex computes stays where it is computed: moving it would cost an exchange and gain
# nothing. A block of which several tiles hold partials is shared out equally among these same tiles. Each then
# receives only its share of the other partials, so the last stage takes 1/depth of the exchange that one receiver
# would, and all tiles add. Shares are multiples of 32 bytes: smaller ones would make the pieces so short that their
# fixed cost dominates.

PIECE_BYTES = 32
"""Shares of a block that the tiles sum are multiples of this, so that partials are sent in few pieces."""


@dataclass(frozen=True)
class Home:
    """Share of a plan's output that each tile holds in the end.

    Attributes:
        regions: The shares, in the output's storage.
        tile: Tile of each, int32[n].
        block: Output block that each is part of, int64[n].
        low: First element of each in its block, int64[n].
        length: Elements of each, int64[n].
    """

    regions: Regions
    tile: npt.NDArray[np.int32]
    block: Int64
    low: Int64
    length: Int64

    def is_crowded(self, tiles: int) -> bool:
        """True if a tile holds more than twice what an even share for so many tiles would be."""
        most = np.bincount(self.tile, weights=self.length).max(initial=0)
        return bool(most > 2 * -(-int(self.length.sum()) // tiles))


def home(plan: ContractionPlan, out: Operand) -> Home:
    """Tiles and regions in which ``plan`` leaves the output ``out``.

    A block that one vertex computes stays on its tile; one that several have partials of is shared equally by the tiles
    that do.
    """
    return home_of(plan, _blocks(plan, out))


def home_of(plan: ContractionPlan, blocks: Regions) -> Home:
    """:func:`home` of an output whose blocks are ``blocks``."""
    grid, least = VertexGrid(plan), max(1, PIECE_BYTES // plan.problem.partials.bytes)
    # Where channels are padded, shares are of whole positions, and of whole words.
    whole = np.lcm(grid.out_channels, 2)
    padded = grid.out_channels != grid.written_channels
    grain = np.where(padded, -(-least // whole) * whole, least)
    block, low, length = split_evenly(blocks.sizes, np.full(blocks.num, plan.depth, dtype=np.int64), grain)
    # Share s of a block goes to the s-th of the tiles that hold its partials.
    first = np.searchsorted(block, np.arange(blocks.num))
    tile = grid.tiles[block * plan.depth + np.arange(len(block)) - first[block]]
    return Home(cut_regions(blocks, block, low, length), tile, block, low, length)


def home_on(plan: ContractionPlan, out: Operand, tiles: IntervalMap) -> Home:
    """Tiles and regions of an output that is mapped already: every block is cut where the tile changes."""
    blocks = _blocks(plan, out)
    begin, length, tile, interval = tiles.split(blocks.begin, blocks.length)
    block = blocks.row[interval]
    starts = np.append(True, (block[1:] != block[:-1]) | (tile[1:] != tile[:-1]))
    first = np.flatnonzero(starts)
    position = np.cumsum(length) - length
    block_start = np.cumsum(blocks.sizes) - blocks.sizes
    regions = Regions.from_intervals(out.storage, np.cumsum(starts) - 1, begin, length, len(first))
    return Home(regions, tile[first], block[first], position[first] - block_start[block[first]], regions.sizes)


def _blocks(plan: ContractionPlan, out: Operand) -> Regions:
    """The output blocks, in the order of their vertices."""
    grid = VertexGrid(plan)
    slices = grid.slices(grid.out_dims)
    return out.regions(slices.start, slices.size)


def cut_regions(regions: Regions, region: Int64, low: Int64, length: Int64) -> Regions:
    """Parts of regions: part p is ``length[p]`` elements of region ``region[p]`` from its element ``low[p]`` on.

    The parts are in order and cover the regions without a gap.
    """
    ends = np.cumsum(regions.length)
    starts = ends - regions.length
    region_starts = np.cumsum(regions.sizes) - regions.sizes
    part_starts = region_starts[region] + low
    # Positions count through all regions, one after the other; pieces end where an interval or a part does.
    cuts = np.union1d(starts, part_starts)
    lengths = np.diff(cuts, append=ends[-1])
    interval = np.searchsorted(starts, cuts, side="right") - 1
    part = np.searchsorted(part_starts, cuts, side="right") - 1
    begin = regions.begin[interval] + cuts - starts[interval]
    return Regions.from_intervals(regions.tensor, part, begin, lengths, len(region))
