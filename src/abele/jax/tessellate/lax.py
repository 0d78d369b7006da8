"""``abele.jax.tessellate.lax``: see :mod:`abele.frontends.jax.tessellate.lax`."""

from abele.frontends.jax.tessellate.lax import *  # noqa: F403
