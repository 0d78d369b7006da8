"""PyTorch's functions called in a ``forward``, as the scaled ones.

A model calls much by function: ``F.gelu(x)``, ``F.scaled_dot_product_attention(...)``. While the forward pass of a
model that :func:`~.transform.unit_scale` made runs, a mode of PyTorch's sees these calls and makes others of them.
Products with weights (``F.linear``) are among them; what layers call is scaled already and passes
(:func:`~.scaling.unscaled`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch.overrides import TorchFunctionMode

from abele.errors import UnsupportedOpError
from abele.frontends.poptorch.unit_scaling import functional
from abele.frontends.poptorch.unit_scaling.multipliers import Multipliers
from abele.frontends.poptorch.unit_scaling.rules import Rules
from abele.frontends.poptorch.unit_scaling.scaling import is_unscaled

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
