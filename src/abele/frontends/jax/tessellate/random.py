"""Random numbers of the tiles' own generators: states of workers, and draws from them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from abele.errors import InvalidOptionError, TensorError
from abele.frontends.jax.tessellate.arrays import TileShardedArray, as_tiles, check_sharded
from abele.frontends.jax.tessellate.types import IpuType, user_line
from abele.network.ops.tiles import SEED_WORDS, WORKERS

_calls = itertools.count()
"""Draws on the host so far, so that each gives other numbers."""

Tiles = tuple[int, ...]


def _primitive(name: str, meaning: Any) -> Primitive:
    made = Primitive(name)
    made.def_impl(meaning)
    mlir.register_lowering(made, mlir.lower_fun(meaning, multiple_results=False))
    return made


def _host_seeds(*, tiles: Tiles) -> Any:
    key = jax.random.fold_in(jax.random.key(0), next(_calls))
    return jax.random.bits(key, (len(tiles), WORKERS, SEED_WORDS), jnp.uint32)


def _host_draw(*, tiles: Tiles, size: int, dtype: Any, distribution: str, offset: float, scale: float) -> Any:
    key = jax.random.fold_in(jax.random.key(1), next(_calls))
    if distribution == "uniform":
        drawn = jax.random.uniform(key, (len(tiles), size), jnp.float32, -0.5, 0.5)
    else:
        drawn = jax.random.normal(key, (len(tiles), size), jnp.float32)
    return (offset + scale * drawn).astype(dtype)


tile_get_hw_seeds_p = _primitive("tile_get_hw_seeds", _host_seeds)
tile_set_hw_seeds_p = _primitive("tile_set_hw_seeds", lambda seeds, *, tiles: jnp.asarray(seeds))
tile_random_p = _primitive("tile_random", _host_draw)
tile_get_hw_seeds_p.def_abstract_eval(
    lambda *, tiles: ShapedArray((len(tiles), WORKERS, SEED_WORDS), np.dtype(np.uint32))
)
tile_set_hw_seeds_p.def_abstract_eval(lambda seeds, *, tiles: seeds)
tile_random_p.def_abstract_eval(lambda *, tiles, size, dtype, **_: ShapedArray((len(tiles), size), np.dtype(dtype)))


def tile_get_hw_seeds(tiles: Sequence[int], sync: bool = False) -> TileShardedArray:
    """Random states of the workers of tiles: uint32 [tiles, workers, 4]."""
    numbers = as_tiles(tiles)
    return TileShardedArray(tile_get_hw_seeds_p.bind(tiles=numbers), numbers)


def tile_set_hw_seeds(seeds: TileShardedArray, sync: bool = False) -> TileShardedArray:
    """Set the random states of the workers of tiles.

    Args:
        seeds: uint32 [tiles, workers, 4]. Equal states give equal numbers.
        sync: True for a barrier before it; the machine has one anyway.

    Returns:
        The seeds. Draws that come later read the new states.

    Raises:
        TensorError: Another shape or type.
    """
    check_sharded("tile_set_hw_seeds", [seeds])
    if np.dtype(seeds.dtype) != np.uint32 or seeds.size != seeds.num_tiles * WORKERS * SEED_WORDS:
        raise TensorError(
            f"seeds are {seeds.dtype}{list(seeds.shape)}",
            at=user_line(),
            remedy=f"uint32{[seeds.num_tiles, WORKERS, SEED_WORDS]}",
        )
    whole = seeds.tile_reshape((WORKERS, SEED_WORDS))
    made = tile_set_hw_seeds_p.bind(jnp.asarray(whole.array), tiles=seeds.tiles)
    return TileShardedArray(made, seeds.tiles).tile_reshape(seeds.tile_shape)


def _drawn(distribution: str, tiles: Sequence[int], size: int, dtype: Any, offset: Any, scale: Any) -> Any:
    numbers, kind = as_tiles(tiles), np.dtype(dtype)
    if IpuType.of(kind) not in (IpuType.FLOAT, IpuType.HALF):
        raise InvalidOptionError(
            f"random numbers of type {kind}", at=user_line(), remedy="draw float32 or float16, and convert them"
        )
    made = tile_random_p.bind(
        tiles=numbers,
        size=int(size),
        dtype=kind,
        distribution=distribution,
        offset=float(offset),
        scale=float(scale),
    )
    return TileShardedArray(made, numbers)


def tile_random_uniform(
    tiles: Sequence[int],
    size: int,
    dtype: Any = np.float32,
    offset: float = 0.0,
    scale: float = 1.0,
    sync: bool = False,
) -> TileShardedArray:
    """Numbers uniform in [offset − scale / 2, offset + scale / 2), from the generators of tiles.

    Args:
        tiles: Tile of each row.
        size: Elements of a row.
        dtype: float32 or float16.
        offset: Middle of the interval.
        scale: Length of the interval.
        sync: True for a barrier before it; the machine has one anyway.

    Raises:
        InvalidOptionError: Another type.
    """
    made: TileShardedArray = _drawn("uniform", tiles, size, dtype, offset, scale)
    return made


def tile_random_normal(
    tiles: Sequence[int],
    size: int,
    dtype: Any = np.float32,
    mean: float = 0.0,
    stddev: float = 1.0,
    sync: bool = False,
) -> TileShardedArray:
    """Normally distributed numbers, from the generators of tiles; arguments as of :func:`tile_random_uniform`."""
    made: TileShardedArray = _drawn("normal", tiles, size, dtype, mean, stddev)
    return made
