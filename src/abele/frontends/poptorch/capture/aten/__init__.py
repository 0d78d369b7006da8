"""Handlers of ATen operators, one file a family; importing this package registers them all."""

from abele.frontends.poptorch.capture.aten import (
    arithmetic,
    attention,
    contraction,
    convolution,
    creation,
    functions,
    interpolation,
    lookup,
    losses,
    normalisation,
    padding,
    pooling,
    random,
    recurrent,
    reductions,
    shapes,
)

__all__ = [
    "arithmetic",
    "attention",
    "contraction",
    "convolution",
    "creation",
    "functions",
    "interpolation",
    "lookup",
    "losses",
    "normalisation",
    "padding",
    "pooling",
    "random",
    "recurrent",
    "reductions",
    "shapes",
]
