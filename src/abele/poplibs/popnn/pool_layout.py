"""Blocks of a pooled field, and the tile that makes each.

A tile's windows overlap at the edges of its block, so compact blocks fetch less than stretches of long rows do. The
blocks are chosen for the fewest expected cycles of the fullest tile: its window positions, what it fetches, and what it
rearranges where channels are grouped in another way than they come. Few channels per group leave more of the field to a
tile, so overheads are shared by more positions; but what reads the result works on 16 channels
of f16, or 8 of f32, at a time, so fewer lie together only where that saves a quarter. Source: machine reference §4.17.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from abele.arrays import Float64, Int32, Int64
from abele.graph import Graph, Tensor, TileMapping
from abele.machine import Ipu
from abele.numerics import ElementType, as_element_type
from abele.poplibs.popnn.pool_costs import PoolWork
from abele.poplibs.popnn.pool_params import PoolParams
from abele.poplibs.poputil.layout import channels_per_group, unmapped_activations
from abele.poplibs.poputil.mapping import set_mapping
from abele.poplibs.poputil.order import storage_order

GRAIN_BYTES = 8
MAX_GRAINS = 8
"""Most grains of a channel group; grains are vectors of the data path. Source: machine reference §4.17."""

PREFERRED_BYTES = 32
"""Preferred bytes of a group: 16 channels of f16, 8 of f32. Source: machine reference §4.17."""

PREFERENCE = 4 / 3
"""Ratio to the best cost up to which a plan with a preferred group is taken. Source: machine reference §4.17."""

REARRANGED_BYTES_PER_CYCLE = 4
"""Rate of a plan for groups that are not those of its input. Source: machine reference §4.17."""

CUTS_AT_A_TIME = 128
"""Ways to cut that are costed together, the likely cheapest first. Chosen."""


def create_pool_input(
    graph: Graph,
    dtype: ElementType | str,
    params: PoolParams,
    name: str = "acts",
    *,
    group: int | None = None,
) -> Tensor:
    """New activations, [batch, channels, *field], that lie as the gradient of their pooling reads them.

    Args:
        graph: Graph in which they are made.
        dtype: Element type.
        params: The pooling.
        name: Name of the variable.
        group: Channels that lie together; by default 16, 8 or 4 where that divides the channels, else all.

    Raises:
        TensorError: ``group`` does not divide the channels.
    """
    inner = channels_per_group(params.channels) if group is None else group
    return create_blocks(graph, as_element_type(dtype), params, name, group=inner, is_input=True, keeps_group=True)[0]


@dataclass(frozen=True)
class ChannelBlocks:
    """Blocks of activations seen as [groups, batch, *field, channels of a group].

    Attributes:
        group: Channels of a group.
        tile: Tile of each, int32[n].
        start: First group, sample and position of each, int64[n, 2 + rank].
        size: Groups, samples and positions of each, int64[n, 2 + rank].
    """

    group: int
    tile: Int32
    start: Int64
    size: Int64


def create_blocks(
    graph: Graph,
    dtype: ElementType,
    params: PoolParams,
    name: str,
    *,
    group: int,
    is_input: bool,
    keeps_group: bool = False,
) -> tuple[Tensor, ChannelBlocks]:
    """New activations, [batch, channels, *field], and the blocks that tiles make of them.

    Args:
        graph: Graph in which they are made.
        dtype: Element type.
        params: The pooling.
        name: Name of the variable.
        group: Channels that lie together in what is read.
        is_input: True if they have the shape of its input, rather than of its output.
        keeps_group: True if as many lie together here; by default that is chosen.
    """
    shape = params.in_shape if is_input else params.out_shape
    tiles = graph.system.num_tiles
    if not math.prod(shape):
        empty = np.zeros((0, 2 + params.rank), np.int64)
        made = unmapped_activations(graph, dtype, shape, name, group=group)
        return graph.map(made, 0), ChannelBlocks(group, np.zeros(0, np.int32), empty, empty)
    given, choices = group, [group] if keeps_group else _groups(params.channels, group, dtype)
    group, parts = _best_plan(
        graph.system.ipu, tiles, dtype, params, given=given, choices=tuple(choices), is_input=is_input
    )
    made = unmapped_activations(graph, dtype, shape, name, group=group)
    extents = (shape[1] // group, shape[0], *shape[2:])
    tile = _tile_of_each(extents, parts, tiles)
    # The mapping takes runs: one where the tile changes, `group` elements per position.
    first = np.flatnonzero(np.append(True, tile[1:] != tile[:-1]))
    mapping = TileMapping(made.size, first * group, tile[first].astype(np.int32))
    set_mapping(graph, storage_order(made).apply(made), mapping)
    return made, _blocks(group, extents, parts, tiles)


def _groups(channels: int, together: int, dtype: ElementType) -> list[int]:
    """Channels that a group may have where ``together`` of them are read together: whole grains that divide them."""
    grain = GRAIN_BYTES // dtype.bytes
    most = min(together, channels, MAX_GRAINS * grain)
    return [n for n in range(grain, most + 1, grain) if channels % n == 0] or [together]


@lru_cache(maxsize=256)
def _best_plan(
    ipu: Ipu,
    num_tiles: int,
    dtype: ElementType,
    params: PoolParams,
    *,
    given: int,
    choices: tuple[int, ...],
    is_input: bool,
) -> tuple[int, tuple[int, ...]]:
    """Channels of a group, and parts of groups, samples and field dimensions."""
    shape = params.in_shape if is_input else params.out_shape
    preferred = min(PREFERRED_BYTES // dtype.bytes, max(choices))
    best, cheapest = (choices[0], (1,) * len(shape)), math.inf
    # Large groups first: what smaller ones have to be below bounds their search.
    for group in sorted(choices, reverse=True):
        extents = (shape[1] // group, shape[0], *shape[2:])
        plan = _Planning(ipu, params, dtype, group, group != given, is_input=is_input)
        limit = cheapest if group >= preferred or best[0] < preferred else cheapest / PREFERENCE
        parts, cycles = _parts(plan, extents, num_tiles, limit)
        if cycles < limit:
            best, cheapest = (group, parts), cycles
    return best


def window_boxes(params: PoolParams, start: Int64, size: Int64) -> tuple[Int64, Int64, Int64]:
    """The input that blocks of outputs read, [n, rank] each: where it begins, its extent, and where in it the first
    window starts (below 0: in the padding). A block of padding alone gets one element that it does not use."""
    stride, kernel, field = map(np.array, (params.stride, params.kernel, params.field))
    begin = start * stride - np.array(params.padding_lower)
    # The end may lie before the field (padding above only) or the start behind it: the box keeps one element in either
    # case.
    low = np.clip(begin, 0, field - 1)
    high = np.maximum(np.minimum(begin + (size - 1) * stride + kernel, field), low + 1)
    return low, high - low, begin - low


def gradient_boxes(params: PoolParams, start: Int64, size: Int64) -> tuple[Int64, Int64, Int64]:
    """The outputs whose windows cover blocks of the input, [n, rank] each: first output, extent, and the first position
    of the block, counted from the padding, less the stride times the first output."""
    stride, kernel, outputs = map(np.array, (params.stride, params.kernel, params.out_shape[2:]))
    first = start + np.array(params.padding_lower)
    # Output o covers positions o·stride to o·stride + kernel - 1, so the first that meets `first` is the quotient
    # rounded up.
    low = np.clip(-((kernel - 1 - first) // stride), 0, outputs - 1)
    high = np.maximum(np.minimum((first + size - 1) // stride + 1, outputs), low + 1)
    return low, high - low, first - low * stride


def _spread(number: Int64, blocks: int, tiles: int) -> Int64:
    """Tile of blocks by their number: neighbours are neighbours."""
    return np.asarray(number * tiles // max(blocks, tiles), np.int64)


def _blocks(group: int, extents: Sequence[int], parts: Sequence[int], tiles: int) -> ChannelBlocks:
    numbers = np.indices(parts).reshape(len(parts), -1).T
    counts, whole = np.array(parts), np.array(extents)
    start, end = -(-numbers * whole // counts), -(-(numbers + 1) * whole // counts)
    tile = _spread(np.arange(len(numbers)), len(numbers), tiles)
    return ChannelBlocks(group, tile.astype(np.int32), start, end - start)


def _tile_of_each(extents: Sequence[int], parts: Sequence[int], tiles: int) -> Int64:
    """Tile of every position of a box with each dimension cut into parts."""
    number: Int64 = np.zeros((), np.int64)
    for extent, count in zip(extents, parts, strict=True):
        number = number[..., None] * count + np.arange(extent) * count // extent
    return _spread(number.reshape(-1), math.prod(parts), tiles)


def _parts(plan: _Planning, extents: Sequence[int], num_tiles: int, limit: float) -> tuple[tuple[int, ...], float]:
    """Parts of groups, samples and each field dimension with the fewest expected cycles, then the fewest parts first;
    and these cycles, infinitely many if none has fewer than ``limit``."""
    cuts = np.zeros((1, 0), np.int64)
    # All combinations, cut back after each dimension to those with no more blocks than tiles.
    for extent in extents:
        each = _cuts(extent)
        cuts = np.concatenate([np.repeat(cuts, len(each), axis=0), np.tile(each, len(cuts))[:, None]], axis=1)
        cuts = cuts[cuts.prod(axis=1) <= num_tiles]
    largest, smallest = -(-np.array(extents) // cuts), np.maximum(np.array(extents) // cuts, 1)
    # The exact cost takes long for all of them. The bound is never above it, so once the least bound left exceeds the
    # cheapest found, none of the rest can win; equal bounds are still tried, so the result does not depend on how many
    # are tried together.
    bound = plan.cycles(largest, is_bound=True)
    best, cheapest = 0, math.inf
    for tried in np.array_split(np.argsort(bound, kind="stable"), -(-len(cuts) // CUTS_AT_A_TIME)):
        if bound[tried[0]] > min(cheapest, limit):
            break
        slowest = np.zeros(len(tried))
        # The slowest tile need not hold the largest block: one a row smaller can leave more of a worker's row over.
        # Each field dimension has blocks of two sizes.
        for is_small in itertools.product((False, True), repeat=plan.params.rank):
            blocks = np.where([False, False, *is_small], smallest[tried], largest[tried])
            slowest = np.maximum(slowest, plan.cycles(blocks))
        first = tried[slowest == slowest.min()].min()
        # Ties go to the first in the order of `cuts`, whichever batch it was found in.
        if (slowest.min(), first) < (cheapest, best):
            best, cheapest = int(first), float(slowest.min())
    return tuple(int(n) for n in cuts[best]), cheapest


def _cuts(extent: int) -> Int64:
    """Numbers of parts that give blocks of different sizes."""
    sizes = -(-extent // np.arange(1, extent + 1))
    return np.unique(-(-extent // sizes))


@dataclass(frozen=True)
class _Planning:
    """Cost model for blocks of a pooling that are not placed yet."""

    ipu: Ipu
    params: PoolParams
    dtype: ElementType
    group: int
    is_regrouped: bool
    is_input: bool

    def cycles(self, blocks: Int64, *, is_bound: bool = False) -> Float64:
        """Expected cycles of tiles with blocks amid the field, [n, 2 + rank] of groups, samples and positions.

        With ``is_bound`` no more than those: as if workers could share all but one row's overhead evenly.
        """
        params, field = self.params, blocks[:, 2:]
        # A block in the middle meets no padding: the most work that any block of its size has.
        start = (np.array(params.in_shape if self.is_input else params.out_shape)[2:] - field) // 2
        if self.is_input:  # Positions at which a window starts are met by most windows.
            start = np.maximum(start - (start + np.array(params.padding_lower)) % np.array(params.stride), 0)
        _, extent, first = (gradient_boxes if self.is_input else window_boxes)(params, start, field)
        columns = [blocks[:, 1], blocks[:, 0], np.full(len(blocks), self.group)]
        for d in range(params.rank):
            columns += [extent[:, d], field[:, d], first[:, d]]
        compares = params.kind == "max" and self.is_input
        work = PoolWork(params.kernel, params.stride, self.dtype, compares, self.is_input)
        fetched = extent.prod(axis=1)
        # The gradient of a maximum also reads the outputs, and the inputs that they are compared with; or the places of
        # the first maxima alone.
        if compares:
            fetched = 2 * fetched + (0 if params.ties == "first" else field.prod(axis=1))
        received = fetched * blocks[:, 0] * blocks[:, 1] * self.group * self.dtype.bytes
        cycles = (work.least_cycles if is_bound else work.block_cycles)(np.stack(columns, axis=-1), self.ipu)
        rearranged = received / REARRANGED_BYTES_PER_CYCLE if self.is_regrouped else 0.0
        return np.asarray(cycles + received / self.ipu.exchange.bytes_per_cycle + rearranged, np.float64)
