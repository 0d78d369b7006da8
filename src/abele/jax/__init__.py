"""``from abele import jax``: functions of JAX, compiled for the machine.

``abele.jax.jit`` takes what ``jax.jit`` takes, ``pmap`` runs on replicas. ``grad``, ``vmap`` and others are JAX's own,
which traces them. Programs run unchanged with ``python -m abele.jax program.py``, or after ``abele.jax.install()``.
"""

from jax import (
    checkpoint,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    shard_map,
    value_and_grad,
    vjp,
    vmap,
)  # isort: skip

from abele.frontends.jax import *  # noqa: F403
from abele.frontends.jax import __all__ as _names

__all__ = [
    *_names,
    "checkpoint",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "shard_map",
    "value_and_grad",
    "vjp",
    "vmap",
]
