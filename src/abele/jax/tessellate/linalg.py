"""``abele.jax.tessellate.linalg``: see :mod:`abele.frontends.jax.tessellate.linalg`."""

from abele.frontends.jax.tessellate.linalg import *  # noqa: F403
