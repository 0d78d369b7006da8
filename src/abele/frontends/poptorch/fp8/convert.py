""":func:`fp8_linear`: the linear layers of a model, in 8-bit floats."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any, TypeVar

from torch import nn

from abele.errors import UnsupportedOpError, nearest
from abele.frontends.poptorch.errors import ArgumentError, Error
from abele.frontends.poptorch.fp8.linear import Fp8Linear, Fp8Product
from abele.frontends.poptorch.fp8.recipe import Fp8Recipe
from abele.frontends.poptorch.unit_scaling.layers import UnitLinear

Module = TypeVar("Module", bound=nn.Module)


def fp8_linear(module: Module, recipe: Fp8Recipe | None = None, *, skip: Sequence[str] = ()) -> Module:
    """Let a model's linear layers multiply 8-bit floats; it changes ``module`` and gives it back.

    Layers keep their parameters, in their own types. Layers that give scores are best skipped, as in the published
    runs, which have decoder layers in 8-bit floats only.

    Args:
        module: A model, also a unit-scaled one.
        recipe: Formats and scales; by default each tensor's scale follows its largest element.
        skip: Names of layers that stay as they are; ``*`` in a name stands for anything.

    Raises:
        ArgumentError: ``module`` is no module, ``recipe`` no recipe, or a name of ``skip`` is that of no linear layer.
        UnsupportedOpError: The model has no linear layer that is not skipped, or one of a kind that is not known.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"fp8_linear takes a torch.nn.Module, got {type(module).__name__}")
    if recipe is not None and not isinstance(recipe, Fp8Recipe):
        raise ArgumentError(f"fp8_linear takes an Fp8Recipe, got {recipe!r}")
    if isinstance(skip, str):
        raise ArgumentError(f"the names to skip are a list, got {skip!r}", remedy=f"skip=[{skip!r}]")
    layers = {name: part for name, part in module.named_modules(remove_duplicate=False) if isinstance(part, nn.Linear)}
    # A pattern that fits nothing is a slip of the pen: name the nearest layer.
    for pattern in skip:
        if not fnmatch.filter(layers, pattern):
            close = nearest(pattern, layers)
            raise Error(
                f"no linear layer fits {pattern!r}, which is to be skipped",
                remedy=f"did you mean {close!r}?" if close else f"layers are {', '.join(list(layers)[:8]) or 'none'}",
            )
    skipped = {name for pattern in skip for name in fnmatch.filter(layers, pattern)}
    chosen = {name: layer for name, layer in layers.items() if name not in skipped}
    if not chosen:
        raise UnsupportedOpError(
            f"{type(module).__name__} has no linear layer that could multiply 8-bit floats",
            because="all of them are skipped" if layers else None,
            remedy="skip fewer" if layers else "torch.nn.Linear",
        )
    # Subclasses may compute something else in ``forward``; refuse all before any layer is changed.
    for name, layer in chosen.items():
        if type(layer) not in (nn.Linear, Fp8Linear) and not isinstance(layer, UnitLinear):
            raise UnsupportedOpError(
                f"the layer {name!r} is a {type(layer).__name__}, which does not compute as torch.nn.Linear does",
                remedy=f"skip=[{name!r}]",
            )
    # Changing the class keeps the layer's identity, parameters and hooks.
    product = Fp8Product(recipe or Fp8Recipe())
    for layer in chosen.values():
        converted: Any = layer
        if type(layer) is nn.Linear:
            converted.__class__ = Fp8Linear
        converted.product = product
    return module
