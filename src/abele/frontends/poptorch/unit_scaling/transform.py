""":func:`unit_scale`: a plain module tree, with the scaled layers in the place of PyTorch's."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from abele.errors import UnsupportedOpError
from abele.frontends.poptorch.errors import ArgumentError, OptionValueError
from abele.frontends.poptorch.unit_scaling import layers
from abele.frontends.poptorch.unit_scaling import rules as known
from abele.frontends.poptorch.unit_scaling.intercepted import FunctionScaling, ScaledFunctions
from abele.frontends.poptorch.unit_scaling.multipliers import Multipliers
from abele.frontends.poptorch.unit_scaling.products import linear_product
from abele.frontends.poptorch.unit_scaling.residuals import Residuals, matching
from abele.frontends.poptorch.unit_scaling.rules import Rules, rules_of

_SCALED: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Linear: layers.UnitLinear,
    nn.Conv1d: layers.UnitConv1d,
    nn.Conv2d: layers.UnitConv2d,
    nn.Embedding: layers.UnitEmbedding,
    nn.LayerNorm: layers.UnitLayerNorm,
    nn.RMSNorm: layers.UnitRMSNorm,
}
"""Layers with weights, and the scaled ones."""

_BY_FUNCTION = (nn.GELU, nn.SiLU, nn.Tanh, nn.ReLU, nn.Softmax, nn.Dropout, nn.CrossEntropyLoss)
"""Modules that only call a function; the function is scaled when they do."""

_NEUTRAL = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Modules that need no factors."""


class UnitScaledModel(nn.Module):
    """Model with scaled layers, and with scaled functions of PyTorch's in its forward pass.

    Attributes:
        model: The model, with scaled layers.
        rules: Rules of the factors.
        multipliers: Sharpness of functions.
    """

    def __init__(self, model: nn.Module, rules: Rules, multipliers: Multipliers, residuals: Residuals) -> None:
        super().__init__()
        self.model, self.rules, self.multipliers, self._residuals = model, rules, multipliers, residuals

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Results of the model."""
        how = FunctionScaling(self.rules, self.multipliers)
        with self._residuals.running(), ScaledFunctions(how, self._residuals):
            return self.model(*args, **kwargs)


def unit_scale(
    module: nn.Module,
    *,
    rules: str | Rules = "library",
    constraint: str | None = None,
    residuals: Mapping[str, float | None] | Sequence[str] = (),
    readouts: Sequence[str] = (),
    keep: Sequence[str] = (),
    multipliers: Multipliers | None = None,
) -> UnitScaledModel:
    """A unit-scaled copy of a model, with new weights.

    Layers with weights become scaled ones, whose weights are drawn with variance 1 (biases 0, gains 1); parameters that
    layers share stay shared. PyTorch's functions that ``forward`` calls are scaled as it runs: activations, softmax,
    attention, dropout, cross entropy. Sums are left as they are, but for those of residual branches.

    Args:
        module: A model of plain PyTorch; it stays as it is.
        rules: ``library`` or ``demo``.
        constraint: Rule that makes the scales of results and gradients one; None as the rules have it.
        residuals: Names of modules whose result is added to what went past them, with τ or None for the rules' own;
            ``*`` in a name stands for anything.
        readouts: Names of last layers whose scores shall be small at first, of variance 1/in; where nothing is said
            they have variance 1.
        keep: Names of parameters of the model's own modules that stay as they are.
        multipliers: Sharpness of attention, activations, softmax and the loss; None for 1, as published.

    Raises:
        ArgumentError: ``module`` is no module.
        UnsupportedOpError: It has modules or parameters whose scale is not known, or none that could be scaled.
        Error: A name that no module has.
        OptionValueError: No such rules, constraint or share.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"unit_scale takes a torch.nn.Module, got {type(module).__name__}")
    if any(isinstance(part, layers.UnitScaled) for part in module.modules()):
        raise UnsupportedOpError("the model is unit-scaled already", remedy="scale the plain model")
    if multipliers is not None and not isinstance(multipliers, Multipliers):
        raise ArgumentError(f"multipliers are a unit_scaling.Multipliers, not {multipliers!r}")
    found = rules_of(rules)
    if constraint is not None:
        known.constrained(constraint, 1.0, 1.0)
    _check(module, keep)
    model = copy.deepcopy(module)
    last = {name for pattern in readouts for name in matching(model, pattern, "a readout")}
    parts = dict(model.named_modules(remove_duplicate=False))
    for name in last:
        if type(parts[name]) is not nn.Linear:
            raise UnsupportedOpError(f"the readout {name!r} is a {type(parts[name]).__name__}, not a Linear")
    for name, part in parts.items():
        if type(part) in _SCALED:
            _scale_layer(part, found, constraint, readout=name in last)
    branches = Residuals(found)
    branches.mark(model, residuals)
    return UnitScaledModel(model, found, multipliers or Multipliers(), branches)


def _check(module: nn.Module, keep: Sequence[str]) -> None:
    """Raise unless the scale of everything in a model is known.

    Raises:
        UnsupportedOpError: It is not.
    """
    kinds = (*_SCALED, *_BY_FUNCTION, *_NEUTRAL)
    unknown, own = [], []
    for name, part in module.named_modules():
        if type(part) in kinds:
            continue
        if type(part).__module__.startswith("torch."):
            unknown.append(f"{name or 'the model itself'} ({type(part).__name__})")
        own += [f"{name}.{p}".lstrip(".") for p, _ in part.named_parameters(recurse=False)]
    if unknown:
        raise UnsupportedOpError(
            f"cannot unit-scale {unknown[0]}",
            because="its factors are not known"
            + (f"; nor are those of {', '.join(unknown[1:5])}" if unknown[1:] else ""),
            remedy="one of " + ", ".join(kind.__name__ for kind in (*_SCALED, *_BY_FUNCTION)),
        )
    own = [name for name in own if name not in keep]
    if own:
        raise UnsupportedOpError(
            f"cannot unit-scale the parameter {own[0]!r}",
            because="it belongs to no layer whose scale is known"
            + (f", as do {', '.join(own[1:5])}" if own[1:] else ""),
            remedy=f"scale it by hand (unit_scaling.scaled) and say keep=[{own[0]!r}, …]",
        )
    if not any(type(part) in _SCALED for part in module.modules()):
        raise UnsupportedOpError(
            f"{type(module).__name__} has no layer that could be unit-scaled",
            remedy="one of " + ", ".join(kind.__name__ for kind in _SCALED),
        )


def _scale_layer(part: nn.Module, rules: Rules, constraint: str | None, *, readout: bool) -> None:
    """Let a layer be the scaled one, with its parameters."""
    layer: Any = part
    padding = getattr(layer, "padding_mode", "zeros")
    if padding != "zeros":
        raise UnsupportedOpError(f"a convolution that pads with {padding!r} cannot be unit-scaled")
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
        raise UnsupportedOpError("an embedding that changes or weighs rows cannot be unit-scaled")
    layer.__class__ = _SCALED[type(part)]
    layer.rules, layer.constraint = rules, constraint
    if isinstance(layer, layers.UnitLinear):
        layer.readout, layer.product = readout, linear_product
    layer.reset_parameters()


def parameter_groups(
    model: nn.Module, learning_rate: float, *, weight_decay: float | None = None
) -> list[dict[str, Any]]:
    """Parameters by learning rate, so that Adam moves what layers give as fast as it would unscaled.

    A scaled layer multiplies its weights' product by α, which plain weights have in their size. Adam moves each weight
    by about the learning rate, whatever its gradient's scale: so that α times the step is what it was, the step is
    1/α as large. Weight decay, which is relative, is α as strong.

    Args:
        model: With scaled layers.
        learning_rate: That of a plain model.
        weight_decay: That of a plain model; None to leave it out.

    Raises:
        OptionValueError: The learning rate is no number above 0.
        UnsupportedOpError: The model has no scaled layer.
    """
    if not learning_rate > 0:
        raise OptionValueError(f"a learning rate is a number above 0, not {learning_rate!r}")
    by_factor: dict[float, list[nn.Parameter]] = {}
    seen: set[int] = set()
    for part in model.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                by_factor.setdefault(_output_factor(part, name), []).append(parameter)
    if not any(isinstance(part, layers.UnitScaled) for part in model.modules()):
        raise UnsupportedOpError("the model has no unit-scaled layer", remedy="unit_scaling.unit_scale(model) first")
    decay = {} if weight_decay is None else {"weight_decay": weight_decay}
    return [
        {"params": group, "lr": learning_rate / factor} | {name: value * factor for name, value in decay.items()}
        for factor, group in by_factor.items()
    ]


def _output_factor(part: nn.Module, name: str) -> float:
    """Factor of a layer's product with a parameter."""
    if name != "weight" or not isinstance(part, (layers.UnitLinear, layers.UnitConv1d, layers.UnitConv2d)):
        return 1.0
    weight = part.weight
    fan_in, fan_out = weight[0].numel(), weight.numel() / weight.shape[1]
    if isinstance(part, layers.UnitLinear) and part.readout:
        return known.readout_factors(part.rules, fan_in, fan_out, 1).output
    if not isinstance(part, layers.UnitLinear):
        fan_out /= part.groups * math.prod(part.stride)
    return known.product_factors(part.rules, fan_in, fan_out, 1, part.constraint).output
