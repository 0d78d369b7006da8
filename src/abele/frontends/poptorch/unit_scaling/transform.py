""":func:`unit_scale`: a plain module tree, with the scaled layers in the place of PyTorch's."""

from __future__ import annotations

import copy
import fnmatch
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.overrides import TorchFunctionMode

from abele.errors import UnsupportedOpError, nearest
from abele.frontends.poptorch.errors import ArgumentError, Error, OptionValueError
from abele.frontends.poptorch.unit_scaling import functional, layers
from abele.frontends.poptorch.unit_scaling import rules as known
from abele.frontends.poptorch.unit_scaling.multipliers import Multipliers
from abele.frontends.poptorch.unit_scaling.products import is_unscaled, linear_product, scale_backward
from abele.frontends.poptorch.unit_scaling.rules import Rules, residual_factors, rules_of

# Residual branches of a model by the names of their modules.
#
# ``x + self.attention(self.norm(x))`` says nothing of which operand is a branch. Where the model's owner names
# ``attention`` as one, its result is marked, and the sum that it is added in becomes a weighted one. Its gradient is
# scaled where it enters the module, so that what lies inside sees gradients of variance 1.


def matching(module: nn.Module, pattern: str, what: str) -> list[str]:
    """Names of the modules that a pattern fits; ``*`` stands for anything.

    Raises:
        Error: It fits none.
    """
    names = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        close = nearest(pattern, names)
        raise Error(
            f"no module fits {pattern!r}, which is named as {what}",
            remedy=f"did you mean {close!r}?" if close else f"modules are {', '.join(names[:8])}",
        )
    return found


class Residuals:
    """Results of branches, while a forward pass runs.

    Args:
        rules: Rules of the factors.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._open: dict[int, tuple[torch.Tensor, str, float]] = {}

    def mark(self, module: nn.Module, branches: Mapping[str, float | None] | Sequence[str]) -> None:
        """Let modules of these names be branches, each with its τ or the rules' own.

        Raises:
            Error: A name that no module has.
        """
        taus = branches if isinstance(branches, Mapping) else dict.fromkeys(branches)
        for pattern, tau in taus.items():
            share = functional.default_tau(tau, self.rules)
            residual_factors(self.rules, share)
            for name in matching(module, pattern, "a residual branch"):
                branch = module.get_submodule(name)
                branch.register_forward_pre_hook(_Entering(self, share))
                branch.register_forward_hook(_Leaving(self, name, share))

    def leave(self, made: torch.Tensor, name: str, tau: float) -> None:
        """Mark a branch's result."""
        self._open[id(made)] = made, name, tau

    def added(self, left: Any, right: Any) -> torch.Tensor | None:
        """The weighted sum, if one of two operands is a branch's result; else None."""
        for branch, past in ((right, left), (left, right)):
            if id(branch) in self._open and isinstance(past, torch.Tensor):
                _, _, tau = self._open.pop(id(branch))
                by_past, _ = residual_factors(self.rules, tau)
                return functional.residual_add(branch, scale_backward(past, by_past), tau, rules=self.rules)
        return None

    @contextmanager
    def running(self) -> Iterator[None]:
        """A forward pass.

        Raises:
            Error: A branch's result was added to nothing.
        """
        self._open.clear()
        try:
            yield
            lost = sorted({name for _, name, _ in self._open.values()})
        finally:
            self._open.clear()
        if lost:
            raise Error(
                f"the result of {lost[0]!r} is named as a residual branch, and is added to nothing",
                because="its sum could not be weighted" + (f" ({len(lost)} branches)" if len(lost) > 1 else ""),
                remedy="name the module whose result is added to the other operand, or call unit_scaling.residual",
            )


class _Entering:
    """Scales the gradient of a branch's input."""

    def __init__(self, residuals: Residuals, tau: float) -> None:
        self.factor = residual_factors(residuals.rules, tau)[1]

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        first, *rest = args
        return (scale_backward(first, self.factor), *rest)


class _Leaving:
    """Marks what leaves a branch."""

    def __init__(self, residuals: Residuals, name: str, tau: float) -> None:
        self.residuals, self.name, self.tau = residuals, name, tau

    def __call__(self, module: nn.Module, args: tuple[Any, ...], made: Any) -> None:
        if not isinstance(made, torch.Tensor):
            raise Error(f"the residual branch {self.name!r} gives {type(made).__name__}, not one tensor")
        self.residuals.leave(made, self.name, self.tau)


# PyTorch's functions called in a ``forward``, as the scaled ones.
#
# A model calls much by function: ``F.gelu(x)``, ``F.scaled_dot_product_attention(...)``. While the forward pass of a
# model that :func:`~.transform.unit_scale` made runs, a mode of PyTorch's sees these calls and makes others of them.
# Products with weights (``F.linear``) are among them; what layers call is scaled already and passes
# (:func:`~.scaling.unscaled`).

Replacement = Callable[..., Any]


@dataclass(frozen=True)
class FunctionScaling:
    """Scaling of functions.

    Attributes:
        rules: Rules of their factors.
        multipliers: Their sharpness.
    """

    rules: Rules
    multipliers: Multipliers


def _softmax(
    value: torch.Tensor, dim: int | None = None, *_: Any, how: FunctionScaling, **options: Any
) -> torch.Tensor:
    if options.get("dtype") is not None:
        value = value.to(options["dtype"])
    mult = how.multipliers.softmax
    return functional.softmax(value, -1 if dim is None else dim, mult=mult, rules=how.rules)


def _attention(*args: Any, how: FunctionScaling, scale: float | None = None, **options: Any) -> torch.Tensor:
    if options.pop("enable_gqa", False):
        raise UnsupportedOpError("attention with groups of queries cannot be unit-scaled", remedy="repeat the keys")
    width = (args[0] if args else options["query"]).shape[-1]
    # Scores are products times μ over the width: a scale of the model's own says what μ is.
    mult = how.multipliers.of_attention(width) if scale is None else scale * width
    return functional.scaled_dot_product_attention(*args, mult=mult, correlation=how.multipliers.correlation, **options)


def _cross_entropy(scores: torch.Tensor, target: torch.Tensor, *rest: Any, how: FunctionScaling, **options: Any) -> Any:
    given = {name: value for name, value in options.items() if value is not None}
    if rest or given.pop("weight", None) is not None or given.pop("label_smoothing", 0.0):
        raise UnsupportedOpError("a cross entropy with weights or smoothed labels cannot be unit-scaled")
    return functional.cross_entropy(scores, target, mult=how.multipliers.loss, **given)


def _dropout(
    value: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, how: FunctionScaling
) -> Any:
    return functional.dropout(value, p, training)


def _embedding(
    index: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    *more: Any,
    how: FunctionScaling,
    **named: Any,
) -> torch.Tensor:
    given = dict(zip(("max_norm", "norm_type", "scale_grad_by_freq", "sparse"), more, strict=False)) | named
    if any(given.get(name) for name in ("max_norm", "scale_grad_by_freq", "sparse")):
        raise UnsupportedOpError("an embedding that changes or weighs rows cannot be unit-scaled")
    return functional.embedding(index, weight, padding_idx, rules=how.rules)


def _elementwise(function: Replacement, *, sharp: bool = True) -> Replacement:
    """An activation function; ``sharp`` ones have a multiplier."""

    def replaced(
        value: torch.Tensor, *args: Any, how: FunctionScaling, inplace: bool = False, **options: Any
    ) -> torch.Tensor:
        options |= {"mult": how.multipliers.activation} if sharp else {}
        made: torch.Tensor = function(value, *(a for a in args if not isinstance(a, bool)), rules=how.rules, **options)
        return made

    return replaced


def _by_rules(function: Replacement) -> Replacement:
    """A function that takes no more than the rules."""

    def replaced(*args: Any, how: FunctionScaling, **options: Any) -> Any:
        return function(*args, rules=how.rules, **options)

    return replaced


REPLACED: Mapping[Any, Replacement] = {
    F.linear: _by_rules(functional.linear),
    F.conv1d: _by_rules(functional.conv1d),
    F.conv2d: _by_rules(functional.conv2d),
    F.embedding: _embedding,
    F.layer_norm: _by_rules(functional.layer_norm),
    F.rms_norm: _by_rules(functional.rms_norm),
    F.gelu: _elementwise(functional.gelu),
    F.silu: _elementwise(functional.silu),
    F.relu: _elementwise(functional.relu, sharp=False),
    torch.relu: _elementwise(functional.relu, sharp=False),
    torch.tanh: _elementwise(functional.tanh),
    torch.Tensor.tanh: _elementwise(functional.tanh),
    F.softmax: _softmax,
    torch.softmax: _softmax,
    torch.Tensor.softmax: _softmax,
    F.dropout: _dropout,
    F.scaled_dot_product_attention: _attention,
    F.cross_entropy: _cross_entropy,
}
"""Replacements of PyTorch's functions; each takes ``how`` beside its arguments."""

REFUSED: Mapping[Any, str] = {
    F.batch_norm: "its statistics tie samples together",
    F.leaky_relu: "its factors are not known",
    F.elu: "its factors are not known",
    F.mish: "its factors are not known",
    F.hardswish: "its factors are not known",
    F.conv3d: "its factors are not known",
    F.conv_transpose1d: "its factors are not known",
    F.conv_transpose2d: "its factors are not known",
    F.bilinear: "its factors are not known",
    F.multi_head_attention_forward: "it multiplies by parts of one weight",
    F.mse_loss: "its factors are not known",
    F.nll_loss: "the factors of softmax and loss belong together",
    F.log_softmax: "the factors of softmax and loss belong together",
}
"""Functions that would break variance 1 unseen, and why they are refused."""


class ScaledFunctions(TorchFunctionMode):
    """Calls of PyTorch's functions inside are calls of the scaled ones.

    Args:
        how: Rules and multipliers.
        residuals: Adds a branch's result to what went past it; see :class:`~.transform.Residuals`.
    """

    def __init__(self, how: FunctionScaling, residuals: Any) -> None:
        super().__init__()
        self.how, self.residuals = how, residuals

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The scaled function's result where there is one, else the function's own.

        Raises:
            UnsupportedOpError: A function that would break variance 1.
        """
        options = kwargs or {}
        if is_unscaled():
            return function(*args, **options)
        if function in REFUSED:
            raise UnsupportedOpError(
                f"{getattr(function, '__name__', function)} cannot be unit-scaled",
                because=REFUSED[function],
                remedy="call it inside unit_scaling.unscaled() if its scale is right, or write a scaled one",
            )
        if function in REPLACED:
            return REPLACED[function](*args, how=self.how, **options)
        if function in ADDITIONS and len(args) == 2 and not options:
            added = self.residuals.added(*args)
            if added is not None:
                return added
        return function(*args, **options)


ADDITIONS = frozenset(
    {torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__, torch.Tensor.__iadd__, torch.Tensor.add_}
)
"""Functions that may add a branch to the value past it."""


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
