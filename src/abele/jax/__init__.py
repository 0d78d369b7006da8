"""``from abele import jax``: functions of JAX on the modelled machine."""

from abele.frontends.jax import *  # noqa: F403
