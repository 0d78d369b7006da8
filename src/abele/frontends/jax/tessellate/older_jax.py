"""Names that JAX had when programs for IPUs were written: the device ``ipu``, its options, ``jax.core.Primitive``.

What JAX still has stays as it is.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from functools import wraps
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.core
import jax.extend.core
import jax.interpreters.xla
import jax.lib
import jaxlib
from jax._src import core as jax_core
from jax._src import xla_bridge

from abele.machine.systems import BOW

_CHIP = BOW


class IpuTargetType(IntEnum):
    """Kind of machine: a host, an IPU, or a model of one."""

    CPU = 0
    IPU = 1
    IPU_MODEL = 2


@dataclass(frozen=True)
class IpuDevice:
    """The device that ``jax.devices("ipu")`` gives."""

    id: int = 0
    num_tiles: int = _CHIP.num_tiles
    version: str = "ipu21"
    platform: str = field(default="ipu", repr=False)
    device_kind: str = field(default="ipu", repr=False)
    process_index: int = field(default=0, repr=False)
    num_ipus: int = field(default=1, repr=False)
    num_worker_contexts: int = field(default=_CHIP.num_workers, repr=False)
    bytes_per_tile: int = field(default=_CHIP.tile.total_bytes, repr=False)
    tile_clock_frequency: int = field(default=int(_CHIP.clock_hz), repr=False)
    is_ipu_model: bool = field(default=True, repr=False)

    @property
    def target_type(self) -> IpuTargetType:
        """Kind of target: a model of the machine."""
        return IpuTargetType.IPU_MODEL


_OPTIONS: dict[str, Any] = {
    "jax_ipu_use_model": True,
    "jax_ipu_model_num_tiles": _CHIP.num_tiles,
    "jax_ipu_device_count": 1,
    "jax_ipu_visible_devices": "0",
    "jax_platform_name": "cpu",
}


def extend_jax() -> None:
    """Let JAX know the device and the older names."""
    _add_device()
    _add_options()
    core: Any = jax.core
    for name in ("Primitive", "Jaxpr", "JaxprEqn", "ClosedJaxpr", "Literal", "Var", "new_jaxpr_eqn", "gensym"):
        _set_missing(core, name, getattr(jax.extend.core, name))
    for name in ("get_aval", "jaxpr_as_fun", "CallPrimitive", "DropVar"):
        _set_missing(core, name, getattr(jax_core, name, None))
    _set_missing(jax.interpreters.xla, "ShapedArray", jax.core.ShapedArray)
    for module in (jax.interpreters.xla, jax.numpy):
        _set_missing(module, "DeviceArray", jax.Array)
    _set_missing(jax, "DeviceArray", jax.Array)
    for name in ("map", "leaves", "flatten", "unflatten", "structure"):
        _set_missing(jax, f"tree_{name}", getattr(jax.tree, name))
    _add_module(jax, "abstract_arrays", ShapedArray=jax.core.ShapedArray)
    _add_module(jaxlib, "xla_extension", DeviceArray=jax.Array, Array=jax.Array)
    _add_module(jaxlib, "ipu_xla_client", IpuTargetType=IpuTargetType, IpuDevice=IpuDevice)
    bridge = {n: getattr(xla_bridge, n) for n in ("get_backend", "process_index", "process_count", "backends")}
    bridge |= {n: getattr(jax, n) for n in ("devices", "local_devices", "device_count")}
    _add_module(jax.lib, "xla_bridge", **bridge)


def _set_missing(module: Any, name: str, value: Any) -> None:
    if name not in vars(module) and value is not None:
        setattr(module, name, value)


def _add_module(package: Any, name: str, **contents: Any) -> None:
    if not hasattr(package, name):
        made = sys.modules[f"{package.__name__}.{name}"] = ModuleType(f"{package.__name__}.{name}")
        vars(made).update(contents)
        setattr(package, name, made)


def _add_device() -> None:
    devices, local, count, put, default = (
        jax.devices, jax.local_devices, jax.device_count, jax.device_put, jax.default_device
    )  # fmt: skip

    @wraps(devices)
    def chosen_devices(backend: Any = None) -> Any:
        return [IpuDevice()] if backend == "ipu" else devices(backend)

    @wraps(local)
    def local_devices(*args: Any, backend: Any = None, **given: Any) -> Any:
        return [IpuDevice()] if backend == "ipu" else local(*args, backend=backend, **given)

    @wraps(count)
    def device_count(backend: Any = None) -> int:
        return 1 if backend == "ipu" else int(count(backend))

    @wraps(put)
    def device_put(x: Any, device: Any = None, **given: Any) -> Any:
        return put(x, None if isinstance(device, IpuDevice) else device, **given)

    def default_device(device: Any = None) -> Any:
        return nullcontext() if isinstance(device, IpuDevice) else default(device)

    jax.devices, jax.local_devices, jax.device_count, jax.device_put = (
        chosen_devices, local_devices, device_count, device_put
    )  # fmt: skip
    jax.default_device = default_device


def _add_options() -> None:
    config: Any = jax.config
    update = config.update

    def updated(name: str, value: Any) -> None:
        if name.startswith("jax_ipu_") or (name, value) == ("jax_platform_name", "ipu"):
            setattr(config.FLAGS, name, value)
        else:
            update(name, value)

    if not hasattr(config, "FLAGS"):
        config.FLAGS = SimpleNamespace(**_OPTIONS)
    config.update = updated
