"""Which tile makes which block of a pooled field.

A tile's windows overlap at the edges of its block, so compact blocks fetch less than stretches of long rows do.
The blocks are chosen for the fewest cycles of the fullest tile: its window positions and what it fetches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.graph import Graph, Tensor, TileMapping
from abele.numerics import ElementType, as_element_type
from abele.poplibs.popnn.pool_codelets import ITEM_SLOTS, POSITION_SLOTS, ROW_SLOTS
from abele.poplibs.popnn.pool_params import PoolParams
from abele.poplibs.poputil.layout import channels_per_group, unmapped_activations
from abele.poplibs.poputil.mapping import set_mapping
from abele.poplibs.poputil.order import storage_order

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


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
        graph: Where to create them.
        dtype: Element type.
        params: The pooling.
        name: Name of the variable.
        group: Channels that lie together; by default 16, 8 or 4 where that divides the channels, else all.

    Raises:
        TensorError: ``group`` does not divide the channels.
    """
    inner = channels_per_group(params.channels) if group is None else group
    return create_blocks(graph, as_element_type(dtype), params, name, group=inner, is_input=True)[0]


@dataclass(frozen=True)
class Blocks:
    """Blocks of activations seen as [groups · batch, *field, channels of a group].

    Attributes:
        tile: Tile of each, int32[n].
        start: First group and position of each, int64[n, 1 + rank].
        size: Groups and positions of each, int64[n, 1 + rank].
    """

    tile: Int32
    start: Int64
    size: Int64


def create_blocks(
    graph: Graph, dtype: ElementType, params: PoolParams, name: str, *, group: int, is_input: bool
) -> tuple[Tensor, Blocks]:
    """New activations, [batch, channels, *field], and the blocks that tiles make of them.

    Args:
        graph: Where to create them.
        dtype: Element type.
        params: The pooling.
        name: Name of the variable.
        group: Channels that lie together.
        is_input: Whether they have the shape of its input, rather than of its output.
    """
    shape = params.in_shape if is_input else params.out_shape
    made = unmapped_activations(graph, dtype, shape, name, group=group)
    outer = shape[0] * (shape[1] // group)
    if not made.size:
        empty = np.zeros((0, 1 + params.rank), np.int64)
        return made.map(0), Blocks(np.zeros(0, np.int32), empty, empty)
    parts = _parts(graph, dtype, params, shape[2:], outer, group, is_input=is_input)
    blocks = _blocks((outer, *shape[2:]), parts, graph.system.num_tiles)
    tile = _tile_of_each((outer, *shape[2:]), parts, graph.system.num_tiles)
    first = np.flatnonzero(np.append(True, tile[1:] != tile[:-1]))
    mapping = TileMapping(made.size, first * group, tile[first].astype(np.int32))
    set_mapping(graph, storage_order(made).apply(made), mapping)
    return made, blocks


def _spread(number: Int64, blocks: int, tiles: int) -> Int64:
    """Tile of blocks by their number: neighbours are neighbours."""
    return np.asarray(number * tiles // max(blocks, tiles), np.int64)


def _blocks(extents: Sequence[int], parts: Sequence[int], tiles: int) -> Blocks:
    numbers = np.indices(parts).reshape(len(parts), -1).T
    counts, whole = np.array(parts), np.array(extents)
    start, end = -(-numbers * whole // counts), -(-(numbers + 1) * whole // counts)
    tile = _spread(np.arange(len(numbers)), len(numbers), tiles)
    return Blocks(tile.astype(np.int32), start, end - start)


def _tile_of_each(extents: Sequence[int], parts: Sequence[int], tiles: int) -> Int64:
    """Tile of every position of a box whose dimensions are cut into so many parts each."""
    number: Int64 = np.zeros((), np.int64)
    for extent, count in zip(extents, parts, strict=True):
        number = number[..., None] * count + np.arange(extent) * count // extent
    return _spread(number.reshape(-1), math.prod(parts), tiles)


def _parts(
    graph: Graph,
    dtype: ElementType,
    params: PoolParams,
    field: Sequence[int],
    outer: int,
    group: int,
    *,
    is_input: bool,
) -> tuple[int, ...]:
    """Parts of groups and samples, and of each field dimension: the fewest cycles for the fullest tile."""
    tiles = graph.system.num_tiles
    best, cheapest = (min(outer, tiles), *(1 for _ in field)), math.inf
    for cut in itertools.product(*(_cuts(n) for n in field)):
        if math.prod(cut) > tiles:
            continue
        together = min(outer, tiles // math.prod(cut))
        block = [-(-n // c) for n, c in zip(field, cut, strict=True)]
        cycles = _cycles(graph, dtype, params, -(-outer // together), block, group, is_input=is_input)
        if cycles < cheapest:
            best, cheapest = (together, *cut), cycles
    return best


def _cuts(extent: int) -> list[int]:
    """Numbers of parts that give blocks of different sizes."""
    return sorted({-(-extent // -(-extent // c)) for c in range(1, extent + 1)})


def _cycles(
    graph: Graph,
    dtype: ElementType,
    params: PoolParams,
    outer: int,
    block: Sequence[int],
    group: int,
    *,
    is_input: bool,
) -> float:
    """Cycles of a tile with a block of so many groups and positions: Source: machine reference §4.10, §2.1."""
    ipu = graph.system.ipu
    kernel, stride = params.kernel, params.stride
    geometry = list(zip(block, kernel, stride, strict=True))
    if is_input:
        fetched = math.prod(-(-b // s) + (k - 1) // s for b, k, s in geometry)
        window = math.prod(-(-k // s) for _, k, s in geometry)
    else:
        fetched = math.prod((b - 1) * s + k for b, k, s in geometry)
        window = math.prod(kernel)
    rows = outer * math.prod(block[:-1])
    parts = min(block[-1], -(-ipu.num_workers // rows))
    rounds = -(-rows * parts // ipu.num_workers)
    positions = -(-block[-1] // parts) * window * -(-group // ipu.vector_width(dtype))
    slots = rounds * (ROW_SLOTS + ITEM_SLOTS * math.prod(kernel) + POSITION_SLOTS * positions)
    received = fetched * outer * group * dtype.bytes * (2 if is_input else 1)
    return ipu.num_workers * slots + received / ipu.exchange.bytes_per_cycle
