"""Handlers of the primitives of ``jax.lax``, a module for each family."""

from abele.frontends.jaxpr.lax import control, elementwise, products, reductions, shapes  # noqa: F401
