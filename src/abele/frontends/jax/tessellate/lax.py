"""Fills, copies, scaled sums, rotations and primitives in place, which ``jax.lax`` does not have.

The primitives that overwrite their first operand are ``add_inplace_p``, ``exp_inplace_p`` and so on: where something
else reads the operand later, a copy of it is overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from abele.frontends.jax.tessellate import primitives
from abele.frontends.jax.tessellate.arrays import (
    TileShardedArray,
    as_tiles,
    check_sharded,
    tile_constant_sharded,
    tile_gather,
)
from abele.frontends.jax.tessellate.mapping import (
    TilePrimitive,
    create_ipu_tile_primitive,
    register_ipu_tile_primitive,
    tile_map,
)
from abele.frontends.jax.tessellate.random import (
    tile_get_hw_seeds,
    tile_random_normal,
    tile_random_uniform,
    tile_set_hw_seeds,
)
from abele.frontends.jax.tessellate.translations import IN_PLACE, equation, kind_of
from abele.frontends.jax.tessellate.types import (
    IpuTileMapEquation,
    IpuVertexAttributeF32,
    Shape,
    make_ipu_vertex_in_info,
    make_ipu_vertex_inout_info,
    make_ipu_vertex_out_info,
)

globals().update(IN_PLACE)

# --- fills ------------------------------------------------------------------------------------------------------------


def _filled(avals: Sequence[Any], attributes: Any) -> list[ShapedArray]:
    return [ShapedArray(tuple(attributes["shape"]), np.dtype(attributes["dtype"]))]


fill_p = TilePrimitive("fill", _filled)


@fill_p.def_impl
def _fill(*, shape: Shape, fill_value: Any, dtype: Any) -> Any:
    return jnp.full(shape, fill_value, dtype)


def _fill_vertex(p: Any, tiles: Any, inavals: Any, attributes: Any) -> IpuTileMapEquation:
    (made,) = _filled(inavals, attributes)
    value = attributes["fill_value"]
    number = float(value) if np.issubdtype(made.dtype, np.floating) or made.dtype == jnp.bfloat16 else int(value)
    return IpuTileMapEquation(
        vname=f"popops::Fill<{kind_of(made)}>",
        pname=p.name,
        tiles=tiles,
        outputs_info=(make_ipu_vertex_out_info("out", made),),
        attributes_f32=(IpuVertexAttributeF32("in", number),),
    )


register_ipu_tile_primitive(fill_p, _fill_vertex)


def tile_fill(shape: Shape, fill_value: Any, dtype: Any, tiles: Sequence[int]) -> TileShardedArray:
    """A row of one number on each tile.

    Args:
        shape: Shape of a row.
        fill_value: The number.
        dtype: Element type.
        tiles: Tile of each row.
    """
    numbers = tuple(int(n) for n in ((shape,) if isinstance(shape, int) else shape))
    value = np.asarray(fill_value).item()
    made: TileShardedArray = tile_map(fill_p, tiles=tiles, shape=numbers, fill_value=value, dtype=np.dtype(dtype))
    return made


def tile_sharded_identity(dtype: Any, tiles: Sequence[int]) -> TileShardedArray:
    """The identity matrix, a row on each tile."""
    return tile_constant_sharded(np.eye(len(as_tiles(tiles))).astype(dtype), tiles)


def tile_copy(arr: TileShardedArray) -> TileShardedArray:
    """A copy on the same tiles.

    Raises:
        TypeMismatchError: The array is not on tiles.
    """
    check_sharded("tile_copy", [arr])
    return tile_gather(arr, range(arr.num_tiles), arr.tiles, copy=True)


# --- scaled sums ------------------------------------------------------------------------------------------------------


def _scaled(name: str, vertex: str, sign: int) -> TilePrimitive:
    made = TilePrimitive(name, lambda avals, attributes: [avals[0]])

    @made.def_impl
    def meaning(x: Any, y: Any, scale: Any) -> Any:
        return x + sign * jnp.reshape(scale, ()) * y

    def translate(p: Any, tiles: Any, inavals: Any, attributes: Any) -> IpuTileMapEquation:
        x, y, scale = inavals
        first = make_ipu_vertex_inout_info("A", x)
        others = [make_ipu_vertex_in_info("B", y), make_ipu_vertex_in_info("scaleB", scale)]
        name = f"popops::{vertex}<{kind_of(x)},{kind_of(y)},{kind_of(scale)},false,false>"
        return equation(p, tiles, name, [first, *others], [first], size=int(np.prod(x.shape, dtype=np.int64)))

    register_ipu_tile_primitive(made, translate)
    return made


scaled_add_p = _scaled("scaled_add", "ScaledAddSupervisor", 1)
scaled_sub_p = _scaled("scaled_sub", "ScaledSubtractSupervisor", -1)


def scaled_add(x: TileShardedArray, y: TileShardedArray, scale: TileShardedArray) -> TileShardedArray:
    """``x + scale · y``, with one number ``scale`` on each tile."""
    made: TileShardedArray = tile_map(scaled_add_p, x, y, scale)
    return made


def scaled_sub(x: TileShardedArray, y: TileShardedArray, scale: TileShardedArray) -> TileShardedArray:
    """``x − scale · y``, with one number ``scale`` on each tile."""
    made: TileShardedArray = tile_map(scaled_sub_p, x, y, scale)
    return made


tile_scaled_add, tile_scaled_sub = scaled_add, scaled_sub

# --- rotations --------------------------------------------------------------------------------------------------------

rotation2d_p = create_ipu_tile_primitive(
    "rotation2d",
    "tessellate::Rotation2d<{inrow0}>",
    inputs=["cs", "inrow0", "inrow1"],
    outputs={"outrow0": 1, "outrow1": 2},
)
"""Two rows turned: ``c · row0 − s · row1`` and ``s · row0 + c · row1``, of ``cs = (c, s)``."""


@rotation2d_p.def_impl
def _rotation2d(cs: Any, inrow0: Any, inrow1: Any) -> Any:
    c, s = jnp.ravel(cs)[:2]
    return c * inrow0 - s * inrow1, s * inrow0 + c * inrow1


__all__ = [
    "fill_p",
    "primitives",
    "rotation2d_p",
    "scaled_add",
    "scaled_add_p",
    "scaled_sub",
    "scaled_sub_p",
    "tile_copy",
    "tile_fill",
    "tile_get_hw_seeds",
    "tile_random_normal",
    "tile_random_uniform",
    "tile_scaled_add",
    "tile_scaled_sub",
    "tile_set_hw_seeds",
    "tile_sharded_identity",
    *IN_PLACE,
]
