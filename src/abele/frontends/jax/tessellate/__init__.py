"""TessellateIPU's names: programs place each row of an array on a tile, and a vertex beside it.

.. code-block:: python

    x = tile_put_sharded(data, tiles=(0, 1, 2))
    y, start = ipu_cycle_count(x)
    z = tile_map(jax.lax.add_p, y, y)
    z, end = ipu_cycle_count(z)

Outside of ``abele.jax.jit`` the same calls run row by row on the host, as ``jax.vmap`` of the primitive.
"""

from abele.frontends.jax.tessellate import reading as _reading
from abele.frontends.jax.tessellate import vertices as _vertices
from abele.frontends.jax.tessellate.arrays import (
    TileShardedArray,
    check_tile_array_multi_slice,
    ipu_cycle_count,
    tile_constant_replicated,
    tile_constant_sharded,
    tile_data_barrier,
    tile_gather,
    tile_put_replicated,
    tile_put_sharded,
)
from abele.frontends.jax.tessellate.lax import (
    scaled_add,
    scaled_sub,
    tile_copy,
    tile_fill,
    tile_get_hw_seeds,
    tile_random_normal,
    tile_random_uniform,
    tile_set_hw_seeds,
    tile_sharded_identity,
)
from abele.frontends.jax.tessellate.mapping import (
    create_ipu_tile_primitive,
    declare_ipu_tile_primitive,
    get_ipu_tile_primitive_translation,
    primitive_clone,
    register_ipu_tile_primitive,
    tile_map,
)

_REGISTERED = (_reading, _vertices)
"""Modules whose handlers and vertices are known once they are loaded."""

__all__ = [
    "TileShardedArray",
    "check_tile_array_multi_slice",
    "create_ipu_tile_primitive",
    "declare_ipu_tile_primitive",
    "get_ipu_tile_primitive_translation",
    "ipu_cycle_count",
    "primitive_clone",
    "register_ipu_tile_primitive",
    "scaled_add",
    "scaled_sub",
    "tile_constant_replicated",
    "tile_constant_sharded",
    "tile_copy",
    "tile_data_barrier",
    "tile_fill",
    "tile_gather",
    "tile_get_hw_seeds",
    "tile_map",
    "tile_put_replicated",
    "tile_put_sharded",
    "tile_random_normal",
    "tile_random_uniform",
    "tile_set_hw_seeds",
    "tile_sharded_identity",
]
