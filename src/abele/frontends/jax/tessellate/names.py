"""The modules that programs for TessellateIPU import, and what they ask of JAX."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import wraps
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.core
import jax.extend.core
import jax.interpreters.xla

from abele.frontends.jax.install import install as jit_for_the_machine
from abele.frontends.jax.tessellate import arrays, lax, linalg, mapping, primitives, random, types, vertex_utils

NUM_TILES = 1472
"""Tiles of an IPU. Source: Bow and GC200 have 1,472 tiles."""


@dataclass(frozen=True)
class TileGatherParams(types.Json):
    """Arguments of a gather.

    Attributes:
        previous_tiles: Tile of each row.
        indices: Number of each row of the result.
        tiles: Tile of each row of the result.
    """

    previous_tiles: Any = ()
    indices: Any = ()
    tiles: Any = ()

    def __post_init__(self) -> None:
        for name in ("previous_tiles", "indices", "tiles"):
            object.__setattr__(self, name, list(getattr(self, name)))

    @classmethod
    def from_json_str(cls, text: str) -> TileGatherParams:
        """The record that JSON says."""
        import json

        return cls(**json.loads(text))


@dataclass(frozen=True)
class TileDataBarrierParams(types.Json):
    """Arguments of a barrier.

    Attributes:
        vname: Name of a vertex.
        inputs_tiles: Tiles of each array.
    """

    vname: str = ""
    inputs_tiles: Any = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs_tiles", [list(tiles) for tiles in self.inputs_tiles])

    @property
    def max_tile(self) -> int:
        """The last tile."""
        return max((t for tiles in self.inputs_tiles for t in tiles), default=0)

    @classmethod
    def from_json_str(cls, text: str) -> TileDataBarrierParams:
        """The record that JSON says."""
        import json

        given = json.loads(text)
        return cls(given["vname"], given["inputs_tiles"])


@dataclass(frozen=True)
class IpuDevice:
    """The device that ``jax.devices("ipu")`` gives."""

    id: int = 0
    platform: str = "ipu"
    device_kind: str = "ipu"
    num_tiles: int = NUM_TILES
    version: str = "ipu21"
    is_ipu_model: bool = True

    @property
    def target_type(self) -> str:
        """Kind of target: a model of the machine."""
        return "IPU_MODEL"


def _own() -> dict[str, Any]:
    from abele.frontends.jax import tessellate

    found: dict[str, Any] = {}
    for module in (primitives, types, random, arrays, mapping, vertex_utils, lax, linalg, tessellate):
        found |= {n: v for n, v in vars(module).items() if not n.startswith("_") and not isinstance(v, ModuleType)}
    named = {c.__name__: c for c in (TileGatherParams, TileDataBarrierParams)}
    ours = {
        "get_primitive_translation": mapping.get_ipu_tile_primitive_translation,
        "ipu_hw_cycle_count": arrays.ipu_cycle_count,
        "ipuTypeSize": types.ipu_type_size,
        "tile_sharded_constant": arrays.tile_constant_sharded,
        "__version__": "0.3.0",
    }
    return found | named | ours


_PLACES = {
    "": "",
    "core": "tile_array tile_array_primitives tile_array_primitives_impl tile_interpreter tile_interpreter_primitives "
    "tile_interpreter_primitives_impl tile_interpreter_hw_primitives tile_interpreter_lax_primitives "
    "tile_interpreter_vertex_utils vertex_utils tile_common_utils",
    "lax": "tile_lax_array tile_lax_unary tile_lax_binary tile_lax_dot tile_lax_reduce tile_lax_gather "
    "tile_lax_scatter tile_random tile_lax_basic tile_lax_cumulative",
    "linalg": "tile_linalg tile_linalg_qr tile_linalg_jacobi tile_linalg_hessenberg",
    "utils": "",
    "external": "",
    "lib": "pytessellate_ipu_core pytessellate_ipu_ops_jax",
}
"""Modules of TessellateIPU, with those inside of each."""


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
        if not place:
            continue
        package = _module(f"tessellate_ipu.{place}", contents)
        setattr(root, place, package)
        for name in inside.split():
            setattr(package, name, _module(f"tessellate_ipu.{place}.{name}", contents))
    root.core.vertex_utils = sys.modules["tessellate_ipu.core.vertex_utils"]
    _extend_jax()


def _module(name: str, contents: dict[str, Any]) -> Any:
    made = sys.modules[name] = ModuleType(name, f"TessellateIPU's {name}, on the machine that Abele models.")
    made.__path__ = []
    vars(made).update(contents)
    return made


def _extend_jax() -> None:
    host_devices = jax.devices

    @wraps(host_devices)
    def chosen_devices(backend: Any = None) -> Any:
        return [IpuDevice()] if backend == "ipu" else host_devices(backend)

    jax.devices = chosen_devices
    core: Any = jax.core
    for name in ("Primitive", "Jaxpr", "JaxprEqn", "ClosedJaxpr", "Literal", "Var"):
        if name not in vars(core):
            setattr(core, name, getattr(jax.extend.core, name))
    xla: Any = jax.interpreters.xla
    if "ShapedArray" not in vars(xla):
        xla.ShapedArray = jax.core.ShapedArray
    flags = SimpleNamespace(jax_ipu_use_model=True, jax_ipu_model_num_tiles=NUM_TILES, jax_platform_name="cpu")
    if not hasattr(jax.config, "FLAGS"):
        jax.config.FLAGS = flags
