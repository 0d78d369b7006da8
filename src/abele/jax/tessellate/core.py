"""``abele.jax.tessellate.core``: see :mod:`abele.frontends.jax.tessellate.core`."""

from abele.frontends.jax.tessellate.core import *  # noqa: F403
