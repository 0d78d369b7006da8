"""Handlers of the primitives of ``jax.lax``, a module for each family."""

from abele.frontends.jaxpr.lax import (  # noqa: F401
    callbacks,
    collectives,
    control,
    convolutions,
    elementwise,
    fourier,
    indexing,
    linear_algebra,
    marks,
    products,
    random,
    reductions,
    shapes,
    sorting,
    sparse,
    windows,
)
