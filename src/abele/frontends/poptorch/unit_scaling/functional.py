"""PyTorch's functions, scaled: inputs, weights and gradients of variance 1 make results and gradients of variance 1.

Each takes ``rules``, whose factors it has (``library`` or ``demo``), and, where forward and backward scales may have to
agree, ``constraint``, a name of :data:`~.rules.CONSTRAINTS`. They work in plain PyTorch and in models that poptorch
compiles. Functions that divide rows by their own deviation (layer norms) need no factor but for their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from abele.frontends.poptorch.errors import OptionValueError
from abele.frontends.poptorch.unit_scaling import activations
from abele.frontends.poptorch.unit_scaling import rules as known
from abele.frontends.poptorch.unit_scaling.products import (
    Product,
    before_sums,
    linear_product,
    scale_backward,
    scale_forward,
    scaled,
    scaled_product,
    scaled_sums,
    unscaled,
)
from abele.frontends.poptorch.unit_scaling.rules import Factors, Rules, constrained, rules_of


def linear(
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    rules: str | Rules = "library",
    constraint: str | None = None,
    product: Product = linear_product,
) -> Tensor:
    """Features [..., out] of ``value`` [..., in], by weights [out, in] of variance 1.

    Args:
        value: Features.
        weight: Weights.
        bias: Added to the scaled product, [out].
        rules: Rules of the factors.
        constraint: Rule that makes the scales of result and gradient one; None as the rules have it.
        product: Function that multiplies.

    Raises:
        OptionValueError: No such rules or constraint.
    """
    found = rules_of(rules)
    fan_out, fan_in = weight.shape
    factors = known.product_factors(found, fan_in, fan_out, _positions(value), constraint)
    with unscaled():
        return product(value, weight, bias, factors)


def linear_readout(
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    rules: str | Rules = "library",
    product: Product = linear_product,
) -> Tensor:
    """As :func:`linear`, for the last layer: its scores are small at first, of variance 1/in."""
    fan_out, fan_in = weight.shape
    factors = known.readout_factors(rules_of(rules), fan_in, fan_out, _positions(value))
    with unscaled():
        return product(value, weight, bias, factors)


def _positions(value: Tensor) -> int:
    return max(1, value.numel() // value.shape[-1])


def conv1d(
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    rules: str | Rules = "library",
    constraint: str | None = None,
) -> Tensor:
    """Channels [batch, out, length] by kernels [out, in / groups, size] of variance 1; padding counts as data."""
    geometry = stride, padding, dilation, groups
    return _convolution(F.conv1d, value, weight, bias=bias, geometry=geometry, rules=rules, constraint=constraint)


def conv2d(
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    rules: str | Rules = "library",
    constraint: str | None = None,
) -> Tensor:
    """Channels [batch, out, height, width] by kernels [out, in / groups, height, width] of variance 1."""
    geometry = stride, padding, dilation, groups
    return _convolution(F.conv2d, value, weight, bias=bias, geometry=geometry, rules=rules, constraint=constraint)


def _convolution(
    function: Callable[..., Tensor],
    value: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None,
    geometry: tuple[int | Sequence[int], int | str | Sequence[int], int | Sequence[int], int],
    rules: str | Rules,
    constraint: str | None,
) -> Tensor:
    found, (stride, padding, dilation, groups) = rules_of(rules), geometry
    dims = weight.dim() - 2
    steps = math.prod(stride) if isinstance(stride, Sequence) else stride**dims
    kernel = math.prod(weight.shape[2:])
    fan_in, fan_out = weight.shape[1] * kernel, weight.shape[0] * kernel / (steps * groups)
    with unscaled():
        # The factors of gradients depend on how many positions come out, which a product of no channels tells.
        field = _field(value, weight, stride, padding, dilation)
        factors = known.product_factors(found, fan_in, fan_out, value.shape[0] * field, constraint)
        convolve = partial(function, stride=stride, padding=padding, dilation=dilation, groups=groups)
        return scaled_product(convolve, value, weight, bias, factors)


def _field(
    value: Tensor,
    weight: Tensor,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
) -> int:
    """Positions of a convolution's result."""
    made = 1
    for dim, (size, kernel) in enumerate(zip(value.shape[2:], weight.shape[2:], strict=True)):
        step, apart, sides = (x if isinstance(x, (int, str)) else x[dim] for x in (stride, dilation, padding))
        reach = int(apart) * (kernel - 1)
        around = (reach if sides == "same" else 0) if isinstance(sides, str) else 2 * sides
        made *= (size + around - reach - 1) // int(step) + 1
    return max(made, 1)


def embedding(
    index: Tensor, weight: Tensor, padding_idx: int | None = None, *, rules: str | Rules = "library"
) -> Tensor:
    """Rows [..., width] of a table [rows, width] of variance 1, each looked up as often as the others in the mean."""
    factor = known.embedding_factor(rules_of(rules), weight.shape[0], max(1, index.numel()))
    with unscaled():
        before = before_sums(factor)
        made = F.embedding(index, scale_backward(weight, factor / before), padding_idx)
        return scale_backward(made, before)


def layer_norm(
    value: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    rules: str | Rules = "library",
) -> Tensor:
    """Rows of mean 0 and variance 1, times weights that begin at 1."""
    shape = list(normalized_shape)

    def normed(rows: Tensor, factor: float) -> Tensor:
        return F.layer_norm(rows, shape, _times(weight, factor), _times(bias, factor), eps)

    with unscaled():
        return scaled_sums(normed, value, _rows(value, shape) ** -rules_of(rules).sum_power)


def rms_norm(
    value: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    rules: str | Rules = "library",
) -> Tensor:
    """Rows of mean square 1, times weights that begin at 1."""
    shape = list(normalized_shape)

    def normed(rows: Tensor, factor: float) -> Tensor:
        return F.rms_norm(rows, shape, _times(weight, factor), eps)

    with unscaled():
        return scaled_sums(normed, value, _rows(value, shape) ** -rules_of(rules).sum_power)


def _rows(value: Tensor, shape: Sequence[int]) -> float:
    return float(max(1, value.numel() // max(1, math.prod(shape))))


def _times(parameter: Tensor | None, factor: float) -> Tensor | None:
    """A parameter whose gradient is multiplied."""
    return None if parameter is None else scale_backward(parameter, factor)


# --- without weights --------------------------------------------------------------------------------------------------


def _activation(
    function: Callable[[Tensor], Tensor], name: str, value: Tensor, mult: float, constraint: str | None, rules: Rules
) -> Tensor:
    output, grad = constrained(constraint or rules.constraint, *activations.activation_factors(rules, name, mult))
    with unscaled():
        # The gradient of f(μx)/μ is f'(μx): what μ makes of it on both ways cancels.
        inner = scaled(value, mult, grad)
        return scale_forward(function(inner), output / mult)


def gelu(
    value: Tensor,
    approximate: str = "none",
    *,
    mult: float = 1.0,
    rules: str | Rules = "library",
    constraint: str | None = None,
) -> Tensor:
    """GELU of μ times the value, over μ, scaled.

    Args:
        value: Normal with variance 1.
        approximate: ``none`` or ``tanh``.
        mult: μ: how sharp it is.
        rules: Rules of the factors.
        constraint: Rule that makes the scales of result and gradient one.
    """
    return _activation(lambda x: F.gelu(x, approximate=approximate), "gelu", value, mult, constraint, rules_of(rules))


def silu(value: Tensor, *, mult: float = 1.0, rules: str | Rules = "library", constraint: str | None = None) -> Tensor:
    """SiLU of μ times the value, over μ, scaled; see :func:`gelu`."""
    return _activation(F.silu, "silu", value, mult, constraint, rules_of(rules))


def tanh(value: Tensor, *, mult: float = 1.0, rules: str | Rules = "library", constraint: str | None = None) -> Tensor:
    """Hyperbolic tangent of μ times the value, over μ, scaled by its standard deviation on normal values."""
    return _activation(torch.tanh, "tanh", value, mult, constraint, rules_of(rules))


def relu(value: Tensor, *, rules: str | Rules = "library", constraint: str | None = None) -> Tensor:
    """max(0, x), scaled by its standard deviation on normal values."""
    return _activation(F.relu, "relu", value, 1.0, constraint, rules_of(rules))


def silu_glu(value: Tensor, gate: Tensor, *, mult: float = 1.0) -> Tensor:
    """Gated SiLU: the value times its gate times sigmoid(μ · gate), scaled by one factor, as are both gradients."""
    factor = activations.gated_silu_factor(mult)
    with unscaled():
        return scaled(value * gate * torch.sigmoid(gate * mult), factor, factor)


def softmax(
    value: Tensor,
    dim: int,
    *,
    mult: float = 1.0,
    rules: str | Rules = "library",
    constraint: str | None = None,
) -> Tensor:
    """Softmax of μ times the value along ``dim``, scaled to variance 1 about its mean."""
    found = rules_of(rules)
    output, grad = constrained(constraint or found.constraint, *activations.softmax_factors(value.shape[dim], mult))
    with unscaled():
        return scale_forward(torch.softmax(scale_backward(value, grad) * mult, dim), output)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    mult: float = 1.0,
    correlation: float = 0.0,
) -> Tensor:
    """Attention [..., positions, width] whose scores are products times μ over the width of a key.

    Args:
        query: [..., positions, width].
        key: [..., seen, width].
        value: [..., seen, width of values].
        attn_mask: Added to scores, or false where nothing is seen.
        dropout_p: Odds with which a weight is dropped.
        is_causal: True if a position sees itself and those before it.
        mult: μ: how sharp it is.
        correlation: Of values at different positions, from 0 to 1; see :func:`~.activations.attention_factor`.
    """
    width = query.shape[-1]
    factor = activations.attention_factor(
        width, key.shape[-2], causal=is_causal, mult=mult, dropout=dropout_p, correlation=correlation
    )
    with unscaled():
        q, k, v = (scale_backward(part, factor) for part in (query, key, value))
        made = F.scaled_dot_product_attention(
            q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=mult / width
        )
        return scale_forward(made, factor)


def cross_entropy(
    scores: Tensor,
    target: Tensor,
    reduction: str = "mean",
    ignore_index: int = -100,
    *,
    mult: float = 1.0,
) -> Tensor:
    """Cross entropy of μ times scores [rows, classes] and classes [rows]; the gradient of scores has variance 1.

    The loss is what it is: its own scale changes nothing. Rows that ``ignore_index`` leaves out count as rows.

    Raises:
        OptionValueError: A reduction other than ``mean`` and ``sum``, or other shapes.
    """
    if reduction not in ("mean", "sum"):
        raise OptionValueError(f"a unit-scaled cross entropy is a 'mean' or a 'sum', not {reduction!r}")
    if scores.dim() != 2 or target.dim() != 1:
        raise OptionValueError(
            f"unit-scaled cross entropy: scores {list(scores.shape)} and classes {list(target.shape)}",
            remedy="scores [rows, classes] and numbers of classes [rows]: flatten(0, 1) what has more dimensions",
        )
    rows, classes = scores.shape
    factor = known.cross_entropy_factor(rows if reduction == "mean" else 1, classes)
    with unscaled():
        grown = scaled(scale_backward(scores, factor), activations.checked_multiplier(mult), 1.0)
        return F.cross_entropy(grown, target, reduction=reduction, ignore_index=ignore_index)


def dropout(value: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """The value with elements dropped, by odds ``p``, and the others grown so that the variance stays 1.

    Raises:
        OptionValueError: Odds outside of [0, 1).
    """
    if not 0 <= p < 1:
        raise OptionValueError(f"unit-scaled dropout keeps something: odds from 0 to below 1, not {p}")
    if not training or not p:
        return value
    with unscaled():
        return F.dropout(value, p, training) * math.sqrt(1 - p)


def matmul(left: Tensor, right: Tensor, *, rules: str | Rules = "library", constraint: str | None = None) -> Tensor:
    """The product [..., n, m] of [..., n, k] and [..., k, m], both of variance 1, and both with gradients."""
    if left.dim() < 2 or right.dim() < 2:
        raise OptionValueError(
            f"unit-scaled matmul takes matrices, not {list(left.shape)} by {list(right.shape)}",
            remedy="unsqueeze() the vector",
        )
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    scales = constrained(constraint or rules_of(rules).constraint, inner**-0.5, columns**-0.5, rows**-0.5)
    with unscaled():
        return scaled_product(lambda a, b, _: a @ b, left, right, None, Factors(*scales))


def add(left: Tensor, right: Tensor) -> Tensor:
    """Sum of two independent values over √2; a broadcast operand has its gradient divided by √copies."""
    shape: torch.Size = torch.broadcast_shapes(left.shape, right.shape)  # type: ignore[no-untyped-call]
    copies = [math.prod(shape) / max(1, part.numel()) for part in (left, right)]
    with unscaled():
        one, other = (scale_backward(p, n**-0.5) if n > 1 else p for p, n in zip((left, right), copies, strict=True))
        return (one + other) * 2**-0.5


# --- residuals --------------------------------------------------------------------------------------------------------


def residual_split(value: Tensor, tau: float | None = None, *, rules: str | Rules = "library") -> tuple[Tensor, Tensor]:
    """Input of a branch, and the value that goes past it; :func:`residual_add` brings them together again.

    Both are the value. Their gradients are scaled here, where the branch begins, so that the branch itself sees
    gradients of variance 1.
    """
    past, branch = known.residual_factors(rules_of(rules), default_tau(tau, rules))
    return scale_backward(value, branch), scale_backward(value, past)


def residual_add(branch: Tensor, past: Tensor, tau: float | None = None, *, rules: str | Rules = "library") -> Tensor:
    """The weighted sum of a branch and what goes past it, of variance 1 again."""
    by_past, by_branch = known.residual_factors(rules_of(rules), default_tau(tau, rules))
    with unscaled():
        return scale_forward(branch, by_branch) + scale_forward(past, by_past)


def residual(
    value: Tensor, branch: Callable[[Tensor], Tensor], tau: float | None = None, *, rules: str | Rules = "library"
) -> Tensor:
    """``value`` and ``branch(value)``, added by weights whose squares add up to 1.

    Args:
        value: Of variance 1.
        branch: A function of variance 1.
        tau: The branch's share: relative to the value's in ``library`` rules (1 by default), or its part of the
            variance in ``demo`` rules (1/2 by default).
        rules: Rules of the factors.
    """
    inner, past = residual_split(value, tau, rules=rules)
    return residual_add(branch(inner), past, tau, rules=rules)


def default_tau(tau: float | None, rules: str | Rules) -> float:
    """A branch's share, or where None the one at which it weighs as much as the value past it."""
    return (0.5 if rules_of(rules).name == "demo" else 1.0) if tau is None else tau
