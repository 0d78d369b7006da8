"""The front end of JAX: ``jit`` over the reader of jaxprs."""

from abele.frontends.jax.jit import Compiled, Jitted, Lowered, jit
from abele.frontends.jax.pmap import pmap
from abele.frontends.jax.resident import DeviceArray

__all__ = ["Compiled", "DeviceArray", "Jitted", "Lowered", "jit", "pmap"]
