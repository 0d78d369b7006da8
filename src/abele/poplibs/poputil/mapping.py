"""Tile mappings of tensors: linear ones, those of views, and how even they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from abele.arrays import Int64
from abele.errors import TileMappingError
from abele.graph import Graph, Tensor
from abele.graph.mapping import TileMapping
from abele.numerics import ElementType
from abele.words import counted

DEFAULT_MIN_BYTES_PER_TILE = 128
"""Bytes below which a linear mapping uses fewer tiles. Source: PopLibs ``mapTensorLinearly`` default."""


def vector_grain(graph: Graph, dtype: ElementType) -> int:
    """Elements that one access of the 64-bit data path moves."""
    return max(1, graph.system.ipu.data_path_bytes // dtype.bytes)


def calc_linear_tile_mapping(
    graph: Graph, tensor: Tensor, min_elements: int | None = None, grain: int | None = None
) -> TileMapping:
    """The mapping that spreads the flattened ``tensor`` over all tiles in equal chunks, without applying it.

    Args:
        graph: The graph whose tiles are used.
        tensor: Tensor to spread.
        min_elements: Smallest chunk; by default as many elements as 128 bytes hold.
        grain: Chunks are multiples of this; by default as many elements as 8 bytes hold.

    Raises:
        TileMappingError: A grain below 1, or a negative smallest chunk.
    """
    return linear_mapping(graph, tensor.size, tensor.dtype, min_elements, grain)


def linear_mapping(
    graph: Graph, size: int, dtype: ElementType, min_elements: int | None = None, grain: int | None = None
) -> TileMapping:
    """The linear mapping of ``size`` elements of ``dtype``; see :func:`calc_linear_tile_mapping`.

    Whole grains are dealt so that no tile has more than one grain above another, as long as each has ``min_elements``.

    Raises:
        TileMappingError: A grain below 1, or a negative smallest chunk.
    """
    if (grain is not None and grain < 1) or (min_elements is not None and min_elements < 0):
        raise TileMappingError(
            f"{counted(size, 'element')} cannot be spread in grains of {grain}, {min_elements} on a tile at least",
            remedy="a grain of at least 1, and a smallest chunk that is not negative",
        )
    if size == 0:
        return TileMapping.unmapped(0)
    grain = grain or vector_grain(graph, dtype)
    smallest = DEFAULT_MIN_BYTES_PER_TILE // dtype.bytes if min_elements is None else min_elements
    grains = -(-size // grain)
    least = max(1, -(-smallest // grain))
    tiles = max(1, min(graph.system.num_tiles, grains // least))
    # Rounded down, so no tile has more than one grain above another.
    cuts = np.arange(tiles, dtype=np.int64) * grains // tiles
    return TileMapping(size, cuts * grain, np.arange(tiles, dtype=np.int32))


def calc_linear_tile_mapping_and_new_offset(
    graph: Graph, tensor: Tensor, offset: int = 0, min_elements: int | None = None, grain: int | None = None
) -> tuple[TileMapping, int]:
    """The linear mapping of ``tensor`` from tile ``offset`` on, and the tile after the last that it uses.

    Args:
        graph: The graph whose tiles are used; they wrap around.
        tensor: Tensor to spread.
        offset: First tile.
        min_elements: As in :func:`calc_linear_tile_mapping`.
        grain: As in :func:`calc_linear_tile_mapping`.

    Raises:
        TileMappingError: A grain below 1, or a negative smallest chunk.
    """
    linear, tiles = calc_linear_tile_mapping(graph, tensor, min_elements, grain), graph.system.num_tiles
    tile = ((linear.tile + offset) % tiles).astype(np.int32)
    used = int(linear.tile.max(initial=-1)) + 1
    return TileMapping(linear.size, linear.begin, tile), (offset + used) % tiles


def map_tensor_linearly(
    graph: Graph, tensor: Tensor, min_elements: int | None = None, grain: int | None = None
) -> Tensor:
    """Spread the flattened ``tensor`` over all tiles in equal chunks (see :func:`calc_linear_tile_mapping`).

    Raises:
        TileMappingError: A grain below 1, or a negative smallest chunk.
    """
    return set_mapping(graph, tensor, calc_linear_tile_mapping(graph, tensor, min_elements, grain))


def map_tensor_linearly_with_offset(
    graph: Graph, tensor: Tensor, offset: int, min_elements: int | None = None, grain: int | None = None
) -> Tensor:
    """As :func:`map_tensor_linearly`, from tile ``offset`` on; tiles wrap around.

    Raises:
        TileMappingError: A grain below 1, or a negative smallest chunk.
    """
    linear = calc_linear_tile_mapping(graph, tensor, min_elements, grain)
    tile = ((linear.tile + offset) % graph.system.num_tiles).astype(np.int32)
    return set_mapping(graph, tensor, TileMapping(linear.size, linear.begin, tile))


def map_small(graph: Graph, tensor: Tensor, seed: int = 0) -> Tensor:
    """Spread ``tensor`` as :func:`map_tensor_linearly` does, but a small one from a tile on that its shape chooses.

    So the first tiles do not hold a piece of every small tensor. Tensors of one shape, as a parameter, its gradient and
    its sums, lie alike. They begin on the first tile of a pair. Small is what takes half of the tiles or fewer.

    Args:
        graph: The graph.
        tensor: Tensor to place.
        seed: Chooses the tile as well: gains and shifts of norms are as many, of the same shapes.
    """
    first = choose_mapping_offset(graph.num_tiles, tensor.shape, seed) // 2 * 2 if is_small(graph, tensor) else 0
    return graph.map_linear(tensor, first_tile=first)


def is_small(graph: Graph, tensor: Tensor) -> bool:
    """True for a tensor that, spread linearly, takes half of the tiles or fewer."""
    return 2 * tensor.size * tensor.dtype.bytes <= graph.num_tiles * DEFAULT_MIN_BYTES_PER_TILE


def choose_mapping_offset(num_tiles: int, shape: Iterable[int], seed: int = 0) -> int:
    """A tile to start a mapping at, spread by a hash of the shape, so that small tensors do not pile up on tile 0.

    Raises:
        TileMappingError: No tile.
    """
    if num_tiles < 1:
        raise TileMappingError(f"a mapping cannot start on one of {counted(num_tiles, 'tile')}")
    # Not Python's `hash`, which differs from process to process for strings: a mapping is the same in every run.
    text = repr((seed, *map(int, shape))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") % num_tiles


def set_mapping(graph: Graph, tensor: Tensor, mapping: TileMapping) -> Tensor:
    """Place every piece of ``mapping``, given over the flattened ``tensor``, on its tile. Returns ``tensor``.

    Raises:
        TileMappingError: The mapping is of another size, or names a tile that there is not.
    """
    return graph.map(tensor, mapping)


def elements_per_tile(mapping: TileMapping, num_tiles: int) -> Int64:
    """Elements on each tile, int64[num_tiles]; unmapped elements count nowhere."""
    mapped = mapping.tile >= 0
    counts = np.bincount(mapping.tile[mapped], weights=mapping.length[mapped], minlength=num_tiles)
    return counts.astype(np.int64)


def tile_imbalance(graph: Graph, tensor: Tensor, min_elements: int | None = None, grain: int | None = None) -> int:
    """Elements that the fullest tile of ``tensor`` holds above the fullest of its linear mapping."""
    fullest = int(elements_per_tile(graph.mapping_of(tensor), graph.system.num_tiles).max(initial=0))
    linear = calc_linear_tile_mapping(graph, tensor, min_elements, grain)
    return max(0, fullest - int(linear.length.max(initial=0)))
