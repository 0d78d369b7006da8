"""Memory of functions: machines for their replicas, and advice where a function does not fit, in the words of JAX."""

from __future__ import annotations

from dataclasses import replace

from abele.machine import systems
from abele.network import Schedule
from abele.session import Advice, Settings
from abele.session.settings import DEFAULT_SYSTEM

_PODS = (DEFAULT_SYSTEM, "bow-pod16", "bow-pod64", "bow-pod256", "bow-pod1024")


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
