"""``from abele import jax``: functions of JAX, compiled for the machine.

``abele.jax.jit`` takes what ``jax.jit`` takes. ``grad``, ``vmap`` and the others are JAX's own: it traces them.
"""

from jax import checkpoint, grad, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap

from abele.frontends.jax import Compiled, DeviceArray, Jitted, Lowered, jit, pmap

__all__ = [
    "Compiled",
    "DeviceArray",
    "Jitted",
    "Lowered",
    "checkpoint",
    "grad",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "pmap",
    "value_and_grad",
    "vjp",
    "vmap",
]
