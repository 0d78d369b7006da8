"""``from abele.jax import tessellate``: TessellateIPU's names, for programs that place rows and vertices."""

from abele.frontends.jax import tessellate as _tessellate
from abele.frontends.jax.tessellate import *  # noqa: F403
from abele.frontends.jax.tessellate.names import install
from abele.jax.tessellate import core as core
from abele.jax.tessellate import lax as lax
from abele.jax.tessellate import linalg as linalg

# Programs that import all names mean another ``lax``: JAX's.
__all__ = [*_tessellate.__all__, "install"]
