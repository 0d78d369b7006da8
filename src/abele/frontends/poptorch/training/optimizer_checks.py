"""PopTorch's warnings about optimisers: classes of the user's own, and attributes without meaning on the device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from abele.frontends.poptorch import logs
from abele.frontends.poptorch.training import optim

_PLAIN = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam")
KNOWN: tuple[type, ...] = (
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.RMSprop,
    optim.LAMB,
    optim.LARS,
    *(getattr(torch.optim, name) for name in _PLAIN),
)
"""The classes whose rules are known."""

_OF_PYTORCH = {
    *("params", "param_names", "differentiable"),
    *("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "swa_lr"),
}
"""Entries of groups from PyTorch itself and from its schedulers."""


def kind_name(optimiser: torch.optim.Optimizer) -> str:
    """PopTorch's name for the rule of an optimiser."""
    if isinstance(optimiser, torch.optim.SGD):
        return "SGD1" if getattr(optimiser, "use_combined_accum", False) else "SGD2"
    base = next((kind.__name__ for kind in KNOWN if isinstance(optimiser, kind)), type(optimiser).__name__)
    if base in ("AdamW", "LAMB"):
        return base + ("" if getattr(optimiser, "bias_correction", True) else "NoBias")
    return base + ("Centered" if base == "RMSprop" and optimiser.param_groups[0]["centered"] else "")


def warn_of_optimizer(optimiser: torch.optim.Optimizer, told: set[tuple[str, str]]) -> None:
    """Warn of an optimiser's settings that the device does not take.

    Args:
        optimiser: The optimiser.
        told: Warnings of the same wrapper, which are not repeated; new ones are added.
    """
    kind = type(optimiser)
    if kind not in KNOWN and isinstance(optimiser, KNOWN) and ("class", kind.__name__) not in told:
        told.add(("class", kind.__name__))
        logs.warn(
            f"Optimizer `{kind.__name__}` subclassed from classes in poptorch.optim or torch.optim are unlikely to "
            "behave as intended. Poptorch does not run Python optimizer code directly; it is the rule of the base "
            "class, compiled, that runs."
        )
    for what, names in _unexpected(optimiser):
        new = sorted(name for name in names if (what, name) not in told)
        if new:
            told.update((what, name) for name in new)
            logs.warn(f"Ignoring unexpected {what} in {kind_name(optimiser)} optimizer: {new}")


def _unexpected(optimiser: torch.optim.Optimizer) -> Iterator[tuple[str, set[str]]]:
    """Attributes, and variables of groups, that the rule does not know, by where they are."""
    base = next((known for known in KNOWN if isinstance(optimiser, known)), None)
    if base is None:
        return
    attributes, groups = _expected(base)
    own = (*getattr(optimiser, "own_attributes", ()), "own_attributes", "ipu_state", "ipu_param", *optim_options())
    table = dict(optimiser.__dict__)
    if callable(table.get("step")):  # Schedulers of PyTorch put theirs there.
        del table["step"]
    yield "optimizer attribute", _public(table) - attributes - set(own)
    groups = groups | _OF_PYTORCH
    yield "default group variable", set(optimiser.defaults) - groups
    for number, group in enumerate(optimiser.param_groups):
        yield f"group {number} attribute", set(group) - groups


def optim_options() -> tuple[str, ...]:
    """Attributes that may be set on PyTorch's own optimisers for the device."""
    return ("loss_scaling", "max_grad_norm", "accum_type", "variable_attrs")


def _public(table: dict[str, Any]) -> set[str]:
    return {name for name in table if not name.startswith("_")}


@cache
def _expected(base: type) -> tuple[set[str], set[str]]:
    """Attributes, and variables of groups, that an optimiser of a class has when it is new."""
    made: torch.optim.Optimizer = base([torch.nn.Parameter(torch.zeros(1))])
    return _public(made.__dict__), set(made.defaults)
