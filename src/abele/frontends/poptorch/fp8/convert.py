""":func:`fp8_linear`: the linear layers of a model, in 8-bit floats."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from abele.errors import UnsupportedOpError, nearest
from abele.frontends.poptorch.errors import ArgumentError, Error
from abele.frontends.poptorch.fp8.casts import (
    cast_again,
    matmul_pow2scaled,
    pow2scale_cast_from_fp8,
    pow2scale_cast_to_fp8,
)
from abele.frontends.poptorch.fp8.recipe import Fp8Recipe
from abele.frontends.poptorch.unit_scaling.layers import UnitLinear
from abele.frontends.poptorch.unit_scaling.products import scale_backward, scaled_sums
from abele.frontends.poptorch.unit_scaling.rules import Factors
from abele.numerics.types import SCALES

# Linear layers whose products are of 8-bit floats: activations and weights forward, gradients backward.
#
# With x8 = x·2^sx and w8 = w·2^sw rounded to F143, and dy8 = dy·2^sdy rounded to F152,
#
#     y = x8 · w8ᵀ · 2^-(sx + sw),    dx = dy8 · w8 · 2^-(sdy + sw),    dw = dy8ᵀ · x8 · 2^-(sx + sdy).
#
# Unit-scaled layers have factors besides: their powers of two are scales of these products, so that results in float16
# become no larger on their way than they are in the end; the rest of a factor, between √½ and √2, is multiplied
# afterwards.
#
# x8 and w8 are kept for the backward pass: half the bytes of float16, but each weight has a w8 beside it. A recipe
# without ``keep_weights`` casts weights twice instead. Biases, and what else a model computes, stay in its own types.

UNSCALED = Factors(1.0, 1.0, 1.0)
"""Factors of layers that are not unit-scaled."""


class _Product(torch.autograd.Function):
    """[rows, in] by [out, in] to [rows, out]."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, recipe: Fp8Recipe, factors: Factors) -> Tensor:
        value_scale, weight_scale = recipe.scale(value, "activation"), recipe.scale(weight, "weight")
        value8, weight8 = (
            pow2scale_cast_to_fp8(part, scale, recipe.forward_format, nan_on_overflow=recipe.nan_on_overflow)
            for part, scale in ((value, value_scale), (weight, weight_scale))
        )
        kept = weight8 if recipe.keep_weights else weight
        ctx.save_for_backward(value8, kept, value_scale, weight_scale)
        ctx.recipe, ctx.factors, ctx.dtypes = recipe, factors, (value.dtype, weight.dtype)
        scaled = recipe, value_scale + weight_scale, factors.output
        return _multiplied(scaled, value8, weight8, (False, True), value.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        value8, weight8, value_scale, weight_scale = ctx.saved_tensors
        recipe: Fp8Recipe = ctx.recipe
        factors: Factors = ctx.factors
        scale = recipe.scale(grad, "gradient")
        grad8 = pow2scale_cast_to_fp8(grad, scale, recipe.gradient_format, nan_on_overflow=recipe.nan_on_overflow)
        by_value = by_weight = None
        if ctx.needs_input_grad[0]:
            if not recipe.keep_weights:
                weight8 = cast_again(weight8, weight_scale, recipe.forward_format, recipe.nan_on_overflow, grad8)
            scaled = recipe, scale + weight_scale, factors.input_grad
            by_value = _multiplied(scaled, grad8, weight8, (False, False), ctx.dtypes[0])
        if ctx.needs_input_grad[1]:
            scaled = recipe, scale + value_scale, factors.weight_grad
            by_weight = _multiplied(scaled, grad8, value8, (True, False), ctx.dtypes[1])
        return by_value, by_weight, None, None


def _multiplied(
    scaled: tuple[Fp8Recipe, Tensor, float],
    left: Tensor,
    right: Tensor,
    transposed: tuple[bool, bool],
    dtype: torch.dtype,
) -> Tensor:
    """A product of matrices over both operands' scales, times a factor."""
    allow = scaled[0].allow_conversion
    return scaled_product(
        scaled, lambda e: matmul_pow2scaled(left, right, e, transposed=transposed, allow_conversion=allow), dtype
    )


def scaled_product(
    scaled: tuple[Fp8Recipe, Tensor, float], product: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> Tensor:
    """A product over both operands' scales, times a factor.

    A product takes exponents of 6 bits; two scales that follow data may add up to more, as those of a tensor of zeros
    and another do. What is left is multiplied afterwards.

    Args:
        scaled: The recipe, the sum of the scales' exponents, and the factor.
        product: Function of an exponent, which gives the product times that power of two.
        dtype: Type of the result.
    """
    recipe, scales, factor = scaled
    power = round(math.log2(factor))
    exponents, rest = power - scales if power else -scales, factor / 2.0**power
    if not recipe.may_exceed(power):
        made = product(exponents)
    else:
        fits = exponents.clamp(SCALES.start, SCALES.stop - 1)
        made = product(fits)
        # 2 to a power that data decides, exactly: the number 1 as an 8-bit float, scaled.
        one = pow2scale_cast_to_fp8(torch.ones((), device=scales.device), 0)
        made = made.float() * pow2scale_cast_from_fp8(one, exponents - fits, torch.float32)
    return (made if rest == 1 else made * rest).to(dtype)


class Fp8Product:
    """A product of features and weights in 8-bit floats.

    Args:
        recipe: Formats and scales.
    """

    def __init__(self, recipe: Fp8Recipe) -> None:
        self.recipe = recipe

    def __call__(self, value: Tensor, weight: Tensor, bias: Tensor | None, factors: Factors = UNSCALED) -> Tensor:
        """Features [..., out] of features [..., in], weights [out, in] and a bias [out], in the features' type."""
        rows = value.reshape(-1, value.shape[-1])
        product: Tensor = _Product.apply(rows, weight, self.recipe, factors)  # type: ignore[no-untyped-call]
        made = product.reshape(*value.shape[:-1], weight.shape[0])
        if bias is None:
            return made
        if factors.weight_grad == 1:
            return made + bias.to(made.dtype)
        return scaled_sums(lambda v, rest: v + scale_backward(bias, rest).to(v.dtype), made, factors.weight_grad)


class Fp8Linear(nn.Linear):
    """A fully connected layer that multiplies 8-bit floats; :func:`fp8_linear` makes it of a plain one.

    Attributes:
        product: Function that multiplies, with its recipe.
    """

    product: Fp8Product

    def forward(self, input: Tensor) -> Tensor:
        """Features [..., out] of features [..., in]."""
        return self.product(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes and scaling."""
        return f"{super().extra_repr()}, scaling={self.product.recipe.scaling!r}"


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
