"""The modules that programs for TessellateIPU import, and what they ask of JAX."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import jax
import numpy.typing

from abele.frontends.jax.install import install as jit_for_the_machine
from abele.frontends.jax.tessellate import arrays, lax, linalg, mapping, primitives, random, types, vertex_utils
from abele.frontends.jax.tessellate.older_jax import extend_jax


@dataclass
class TileGatherParams(types.Json):
    """Arguments of a gather.

    Attributes:
        previous_tiles: Tile of each row.
        indices: Number of each row of the result.
        tiles: Tile of each row of the result.
    """

    previous_tiles: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    tiles: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("previous_tiles", "indices", "tiles"):
            setattr(self, name, list(getattr(self, name)))


@dataclass
class TileDataBarrierParams(types.Json):
    """Arguments of a barrier.

    Attributes:
        vname: Name of a vertex.
        inputs_tiles: Tiles of each array.
    """

    vname: str = ""
    inputs_tiles: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inputs_tiles = [list(tiles) for tiles in self.inputs_tiles]

    @property
    def max_tile(self) -> int:
        """The last tile."""
        return max((t for tiles in self.inputs_tiles for t in tiles), default=0)


@dataclass
class TileConstantParams(types.Json):
    """Arguments of a constant.

    Attributes:
        aval: Shape and type.
        tiles: Tile of each row, or of each copy.
        data: Contents, in row-major order.
    """

    aval: types.IpuShapedArray
    tiles: list[int] = field(default_factory=list)
    data: types.Base64Data = field(default_factory=types.Base64Data)

    def __post_init__(self) -> None:
        self.aval, self.tiles = types.IpuShapedArray(self.aval.shape, self.aval.dtype), list(self.tiles)


# --- primitives as functions of arrays --------------------------------------------------------------------------------


def tile_put_sharded_prim(x: Any, tiles: Sequence[int]) -> Any:
    """The array of :func:`tile_put_sharded`."""
    return arrays.tile_put_sharded(x, tiles).array


def tile_put_replicated_prim(x: Any, tiles: Sequence[int]) -> Any:
    """The array of :func:`tile_put_replicated`."""
    return arrays.tile_put_replicated(x, tiles).array


def tile_constant_sharded_prim(x: Any, tiles: Sequence[int]) -> Any:
    """The array of :func:`tile_constant_sharded`."""
    return arrays.tile_constant_sharded(x, tiles).array


def tile_constant_replicated_prim(x: Any, tiles: Sequence[int]) -> Any:
    """The array of :func:`tile_constant_replicated`."""
    return arrays.tile_constant_replicated(x, tiles).array


def tile_gather_prim(x: Any, previous_tiles: Sequence[int], indices: Sequence[int], tiles: Sequence[int]) -> Any:
    """The array of :func:`tile_gather`, of rows that lie on ``previous_tiles``."""
    return arrays.tile_gather(arrays.TileShardedArray(x, tuple(previous_tiles)), indices, tiles).array


def tile_data_barrier_prim(inputs: Sequence[Any], inputs_tiles: Sequence[Sequence[int]]) -> tuple[Any, ...]:
    """The arrays of :func:`tile_data_barrier`."""
    given = [arrays.TileShardedArray(x, tuple(t)) for x, t in zip(inputs, inputs_tiles, strict=True)]
    return tuple(a.array for a in arrays.tile_data_barrier(*given))


# --- modules ----------------------------------------------------------------------------------------------------------


def _own() -> dict[str, Any]:
    from abele.frontends.jax import tessellate

    found: dict[str, Any] = {}
    for module in (primitives, types, random, arrays, mapping, vertex_utils, lax, linalg, tessellate):
        found |= {n: v for n, v in vars(module).items() if not n.startswith("_") and not isinstance(v, ModuleType)}
    here = {n: v for n, v in globals().items() if n.endswith(("_prim", "Params"))}
    ours = {
        "__version__": "0.3.0",
        "Array": jax.Array,
        "ArrayLike": numpy.typing.ArrayLike,
        "DTypeLike": numpy.typing.DTypeLike,
        "NDArray": numpy.typing.NDArray,
        "get_primitive_translation": mapping.get_ipu_tile_primitive_translation,
        "hw_cycle_count": arrays.ipu_cycle_count,
        "ipuTypeSize": types.ipu_type_size,
        "ipu_hw_cycle_count": arrays.ipu_cycle_count,
        "tile_map_primitive": mapping.tile_map,
        "tile_sharded_constant": arrays.tile_constant_sharded,
    }
    return found | here | ours


_PLACES = {
    "core": "tile_array tile_array_primitives tile_array_primitives_impl tile_array_utils "
    "tile_common tile_common_types tile_common_utils tile_interpreter tile_interpreter_utils "
    "tile_interpreter_primitives tile_interpreter_primitives_impl tile_interpreter_hw_primitives "
    "tile_interpreter_vertex_utils tile_interpreter_linalg tile_interpreter_linalg_qr "
    "tile_interpreter_linalg_jacobi tile_interpreter_lax tile_interpreter_lax_primitives "
    "tile_interpreter_lax_array tile_interpreter_lax_unary tile_interpreter_lax_binary tile_interpreter_lax_dot "
    "tile_interpreter_lax_gather tile_interpreter_lax_reduce tile_interpreter_lax_scan tile_interpreter_lax_scatter "
    "tile_interpreter_lax_select custom_interpreter_primitives vertex vertex_utils",
    "lax": "tile_lax_array tile_lax_basic tile_lax_binary tile_lax_cumsum tile_lax_cumulative tile_lax_dot "
    "tile_lax_gather tile_lax_indexing tile_lax_inplace tile_lax_reduce tile_lax_scan tile_lax_scatter "
    "tile_lax_select tile_lax_small_dot tile_lax_unary tile_lax_random tile_random",
    "linalg": "tile_linalg tile_linalg_hessenberg tile_linalg_jacobi tile_linalg_qr tile_linalg_tridiagonal "
    "tile_linalg_utils",
    "utils": "",
    "external": "",
    "lib": "pytessellate_ipu_core pytessellate_ipu_ops_jax",
}
"""Modules of TessellateIPU in its versions, with those inside of each. All have all names."""


def install() -> None:
    """Let ``import tessellate_ipu`` find this package, and ``jax.jit`` be ours as after ``abele.jax.install()``.

    ``jax.devices("ipu")`` is one device, and names that JAX had when such programs were written are there again.
    """
    jit_for_the_machine()
    if "tessellate_ipu" in sys.modules:
        return
    contents = _own()
    root = _module("tessellate_ipu", contents)
    for place, inside in _PLACES.items():
        package = _module(f"tessellate_ipu.{place}", contents)
        setattr(root, place, package)
        for name in inside.split():
            setattr(package, name, _module(f"tessellate_ipu.{place}.{name}", contents))
    extend_jax()


def _module(name: str, contents: dict[str, Any]) -> Any:
    made = sys.modules[name] = ModuleType(name, f"TessellateIPU's {name}, on the machine that Abele models.")
    made.__path__ = []
    vars(made).update(contents)
    return made
