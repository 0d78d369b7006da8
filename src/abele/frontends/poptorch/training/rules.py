"""Reading optimisers: PyTorch's and PopTorch's as the update rules of the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch

from abele.frontends.poptorch.capture import CapturedModel
from abele.frontends.poptorch.errors import ArgumentError, Error
from abele.frontends.poptorch.training.optim import LAMB, LARS, VariableAttributes, check_amsgrad
from abele.network import (
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    Group,
    Lamb,
    Lars,
    NAdam,
    Optimiser,
    RAdam,
    RmsProp,
    Sgd,
    Value,
)
from abele.network.optimisers import MomentRule
from abele.numerics import f16


def groups_of(captured: CapturedModel, optimizer: torch.optim.Optimizer | None) -> tuple[Group, ...] | None:
    """Rules of an optimiser with the values that they update; None without one."""
    if optimizer is None:
        return None
    weights = {value: captured.weights[value.name] for value in captured.net.parameters}
    trained = {id(tensor): value for value, tensor in weights.items() if tensor.requires_grad}
    return tuple(read_optimiser(optimizer, trained))


def read_optimiser(optimiser: torch.optim.Optimizer, values: Mapping[int, Value]) -> list[Group]:
    """The update rules of an optimiser, with the network's values of its parameters.

    Args:
        optimiser: One of PyTorch's or PopTorch's.
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
        ArgumentError: The argument is no optimiser.
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
    """Parameters of each group of an optimiser, by ``id``."""
    return [{id(p) for p in group["params"]} for group in optimiser.param_groups]


def read_rules(optimiser: torch.optim.Optimizer) -> list[Optimiser]:
    """The update rule of every parameter group."""
    variable, read = _variable_attributes(optimiser), _reader(optimiser)
    return [read(group, variable) for group in optimiser.param_groups]


_NAMES = {"betas": ("beta1", "beta2")}
"""Numbers of the rules that an attribute of PyTorch's is."""

_FIXED = frozenset({"nesterov", "maximize", "centered", "layerwise"})
"""Attributes that choose between rules, and are compiled in always."""


def _variable_attributes(optimiser: torch.optim.Optimizer) -> frozenset[str]:
    """Names of the numbers that live on the device.

    Those of a PopTorch optimiser are what it was given; of PyTorch's own the learning rate, and the momentum where a
    scheduler has put its limits into the groups.
    """
    chosen = getattr(optimiser, "variable_attrs", None)
    if isinstance(chosen, VariableAttributes):
        attributes = set(chosen._variable_attributes)
    else:
        cycles = any({"max_momentum", "base_momentum"} & group.keys() for group in optimiser.param_groups)
        attributes = {"lr"} | ({"momentum", "betas"} & optimiser.defaults.keys() if cycles else set())
    return frozenset(number for name in attributes - _FIXED for number in _NAMES.get(name, (name,)))


Reader = Callable[[Mapping[str, Any], frozenset[str]], Optimiser]


def _reader(optimiser: torch.optim.Optimizer) -> Reader:
    """Reader of the groups of an optimiser.

    Raises:
        Error: Its rule is not known.
    """
    check_amsgrad(any(group.get("amsgrad") for group in optimiser.param_groups))
    kind = next((name for base, name in _KINDS.items() if isinstance(optimiser, base)), None)
    if kind is None:
        known = ", ".join(dict.fromkeys(base.__name__ for base in _KINDS))
        raise Error(
            f"Unsupported optimizer type {type(optimiser).__name__}",
            because="updates are compiled, and the rule of this class is not one of those that are",
            remedy=f"one of {known}, of torch.optim or poptorch.optim",
        )
    extra = _of_optimizer(optimiser, kind)
    return lambda group, variable: kind(variable=_known(kind, variable), **{**_numbers(kind, group), **extra})


_KINDS: dict[type[torch.optim.Optimizer], type[Optimiser]] = {
    LAMB: Lamb,
    LARS: Lars,
    torch.optim.SGD: Sgd,
    torch.optim.NAdam: NAdam,
    torch.optim.RAdam: RAdam,
    torch.optim.Adamax: Adamax,
    torch.optim.AdamW: Adam,
    torch.optim.Adam: Adam,
    torch.optim.RMSprop: RmsProp,
    torch.optim.Adagrad: Adagrad,
    torch.optim.Adadelta: Adadelta,
}
"""The rule of each class, derived ones first."""


def _fields(kind: type[Optimiser]) -> set[str]:
    return {f.name for f in fields(kind)}


def _known(kind: type[Optimiser], variable: frozenset[str]) -> frozenset[str]:
    """Variable numbers that a rule has."""
    return variable & _fields(kind)


def _numbers(kind: type[Optimiser], group: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of a rule that a group sets."""
    found: dict[str, Any] = {}
    for key, value in group.items():
        for number, part in zip(_NAMES.get(key, (key,)), value if key in _NAMES else (value,), strict=True):
            if number in _fields(kind):
                found[number] = bool(value) if key in _FIXED else float(part)
    if "decoupled_weight_decay" in group:
        found["decoupled"] = bool(group["decoupled_weight_decay"])
    return found


_TYPES = {
    "accum_type": "accumulation",
    "velocity_accum_type": "velocity_type",
    "first_order_momentum_accum_type": "first_type",
    "second_order_momentum_accum_type": "second_type",
}


def _of_optimizer(optimiser: torch.optim.Optimizer, kind: type[Optimiser]) -> dict[str, Any]:
    """Settings of an optimiser for all of its groups."""
    found: dict[str, Any] = {}
    for name, field in _TYPES.items():
        if getattr(optimiser, name, None) == torch.float16 and field in _fields(kind):
            found[field] = f16
    for name in ("loss_scaling", "max_grad_norm", "velocity_scaling"):
        if getattr(optimiser, name, None) is not None and name in _fields(kind):
            found[name] = float(getattr(optimiser, name))
    if kind is Adam and isinstance(optimiser, torch.optim.AdamW):
        found["decoupled"] = True
    if issubclass(kind, MomentRule):
        # PopART has it as scaledOptimizerState: means in float16 lose small gradients without it.
        found["scaled_state"] = f16 in (found.get("first_type"), found.get("second_type"))
        found["bias_correction"] = bool(getattr(optimiser, "bias_correction", True))
    if kind is RmsProp:
        found["eps_inside"] = bool(getattr(optimiser, "use_tf_variant", False))
    if kind is RmsProp and found.get("first_type") is f16:
        found["velocity_type"] = f16
    if kind is Sgd and getattr(optimiser, "use_combined_accum", False):
        # One tensor has one type, by either name.
        half = f16 in (found.get("velocity_type"), found.get("accumulation"))
        found |= {"combined": True} | ({"velocity_type": f16, "accumulation": f16} if half else {})
    elif kind is Sgd:
        found.pop("velocity_scaling", None)
    return found
