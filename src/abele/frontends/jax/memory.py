"""Memory of functions: how much they take, machines for their replicas, and advice where one does not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from abele.frontends.jaxpr import type_of
from abele.machine import systems
from abele.network import Schedule
from abele.numerics import ElementType, f32
from abele.session import Advice, Settings
from abele.session.settings import DEFAULT_SYSTEM

_PODS = (DEFAULT_SYSTEM, "bow-pod16", "bow-pod64", "bow-pod256", "bow-pod1024")


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of a compiled function; JAX's names are those of ``Compiled.memory_analysis()``.

    Attributes:
        argument_size_in_bytes: Arguments of a call.
        output_size_in_bytes: Results of a call.
        alias_size_in_bytes: Donated arguments whose place a result takes.
        temp_size_in_bytes: Temporaries on the fullest tile.
        generated_code_size_in_bytes: Code on the fullest tile.
        fullest_tile: Number of the tile that holds most.
        fullest_tile_bytes: Bytes that it holds.
        available_tile_bytes: Bytes that it has.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int
    fullest_tile: int
    fullest_tile_bytes: int
    available_tile_bytes: int


def device_type(aval: Any) -> tuple[tuple[int, ...], ElementType]:
    """Shape and element type of an array on the device: keys are their words, complex numbers their two parts.

    Raises:
        TypeMismatchError: An element type that the device lacks.
    """
    return ((*aval.shape, 2), f32) if aval.dtype == np.complex64 else type_of(aval)


def bytes_of(aval: Any) -> int:
    """Bytes of an array on the device."""
    shape, dtype = device_type(aval)
    return int(np.prod(shape, dtype=np.int64)) * dtype.np.itemsize


def on_enough_ipus(settings: Settings, schedule: Schedule) -> Settings:
    """The settings, with the smallest Pod that has an IPU for each replica where no machine was chosen."""
    if settings.chosen_system is not None:
        return settings
    fits = (name for name in _PODS if systems.get(name).num_ipus >= schedule.replicas)
    return replace(settings, system=next(fits, _PODS[-1]))


def words(advice: Advice) -> list[str]:
    """Remedies for a lack of memory, as lines of a program of JAX."""
    found = {}
    if advice.halve:
        found["halve"] = "half precision: arguments as jnp.float16 or jnp.bfloat16"
    if advice.partials:
        found["partials"] = 'settings={"partials": "f16"}: partial sums of products in half precision'
    if advice.batch is not None:
        found["batch"] = f"a smaller batch than {advice.batch}, with device_iterations={advice.micro_batches}"
    if advice.proportion is not None:
        found["proportion"] = (
            f'settings={{"memory_proportion": {advice.proportion:g}}} instead of {advice.proportion_now:g}'
        )
    found["again"] = "jax.checkpoint around layers: their activations are computed again in the backward pass"
    found["parts"] = "jax.shard_map over a mesh: each replica holds a part of the arrays"
    if advice.machine is not None:
        found["machine"] = f"a machine with more memory on an IPU: target={advice.machine!r}"
    return advice.ordered(found, 'settings={"allow_out_of_memory": True} for a report of the program as it is')
