"""Reading optimisers: PyTorch's and PopTorch's as the update rules of the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from abele.frontends.poptorch.errors import ArgumentError, Error
from abele.frontends.poptorch.optim import Optimizer, check_amsgrad
from abele.parallel import Adam, Group, Optimiser, Sgd, Value


def read_optimiser(optimiser: torch.optim.Optimizer, values: Mapping[int, Value]) -> list[Group]:
    """The update rules of an optimiser, with the network's values of its parameters.

    Args:
        optimiser: One of PyTorch's or PopTorch's SGD, Adam or AdamW.
        values: Trained value of each parameter tensor, by ``id``; parameters that the model lacks are passed over.

    Raises:
        Error: Another kind of optimiser.
    """
    variable = _variable_attributes(optimiser)
    return [
        Group(read(group, variable), tuple(values[id(p)] for p in group["params"] if id(p) in values))
        for read in [_reader(optimiser)]
        for group in optimiser.param_groups
    ]


def check_parameters(optimiser: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    """Raise unless every parameter of an optimiser is one of the model's.

    Raises:
        ArgumentError: What is given is no optimiser.
        Error: It holds another model's parameters, or some that the model no longer has.
    """
    if not isinstance(optimiser, torch.optim.Optimizer):
        raise ArgumentError(f"the optimizer is {optimiser!r}, not a torch.optim.Optimizer")
    own = {id(p) for p in model.parameters()}
    held = [p for group in optimiser.param_groups for p in group["params"]]
    foreign = [p for p in held if id(p) not in own]
    if foreign:
        with torch._C.DisableTorchFunctionSubclass():
            shape = list(foreign[0].shape)
        raise Error(
            f"the optimizer holds {len(foreign)} of {len(held)} parameters that the model does not have; the first is "
            f"of shape {shape}",
            because="they belong to another model, or to a layer that was replaced",
            remedy="make the optimizer from the parameters of this model, after its last change",
        )


def parameter_groups(optimiser: torch.optim.Optimizer) -> list[set[int]]:
    """Which parameters each group of an optimiser holds, by ``id``."""
    return [{id(p) for p in group["params"]} for group in optimiser.param_groups]


def read_rules(optimiser: torch.optim.Optimizer) -> list[Optimiser]:
    """The update rule of every parameter group."""
    variable, read = _variable_attributes(optimiser), _reader(optimiser)
    return [read(group, variable) for group in optimiser.param_groups]


def _variable_attributes(optimiser: torch.optim.Optimizer) -> frozenset[str]:
    """Names of the numbers that live on the device: the learning rate, and what a PopTorch optimiser was given."""
    if not isinstance(optimiser, Optimizer):
        return frozenset({"lr"})
    names = {name for name in optimiser.variable_attrs._variable if name != "betas"}
    if "betas" in optimiser.variable_attrs._variable:
        names |= {"beta1", "beta2"}
    return frozenset(names)


Reader = Callable[[Mapping[str, Any], frozenset[str]], Optimiser]


def _reader(optimiser: torch.optim.Optimizer) -> Reader:
    if isinstance(optimiser, torch.optim.SGD):
        return _read_sgd
    if isinstance(optimiser, (torch.optim.AdamW, torch.optim.Adam)):
        check_amsgrad(any(g["amsgrad"] for g in optimiser.param_groups))
        decoupled, corrected = isinstance(optimiser, torch.optim.AdamW), getattr(optimiser, "bias_correction", True)
        return lambda group, variable: _read_adam(group, variable, decoupled=decoupled, corrected=corrected)
    raise Error(
        f"Unsupported optimizer type {type(optimiser).__name__}", remedy="use SGD, Adam or AdamW of torch or poptorch"
    )


def _read_sgd(group: Mapping[str, Any], variable: frozenset[str]) -> Optimiser:
    return Sgd(
        lr=float(group["lr"]),
        momentum=float(group["momentum"]),
        dampening=float(group["dampening"]),
        weight_decay=float(group["weight_decay"]),
        nesterov=bool(group["nesterov"]),
        maximize=bool(group["maximize"]),
        variable=variable,
    )


def _read_adam(group: Mapping[str, Any], variable: frozenset[str], *, decoupled: bool, corrected: bool) -> Optimiser:
    return Adam(
        lr=float(group["lr"]),
        beta1=float(group["betas"][0]),
        beta2=float(group["betas"][1]),
        eps=float(group["eps"]),
        weight_decay=float(group["weight_decay"]),
        decoupled=decoupled or bool(group.get("decoupled_weight_decay", False)),
        bias_correction=corrected,
        maximize=bool(group["maximize"]),
        variable=variable,
    )
