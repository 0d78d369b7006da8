"""Linear layers whose products are of 8-bit floats: activations and weights forward, gradients backward.

With x8 = x·2^sx and w8 = w·2^sw rounded to F143, and dy8 = dy·2^sdy rounded to F152,

    y = x8 · w8ᵀ · 2^-(sx + sw),    dx = dy8 · w8 · 2^-(sdy + sw),    dw = dy8ᵀ · x8 · 2^-(sx + sdy).

x8 and w8 are what is kept for the backward pass: half the bytes of float16, but there is a w8 beside each weight. A
recipe without ``keep_weights`` casts weights a second time instead. Biases, and what else a model computes, stay in its
own types.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from abele.frontends.poptorch.fp8.casts import (
    cast_again,
    matmul_pow2scaled,
    pow2scale_cast_from_fp8,
    pow2scale_cast_to_fp8,
)
from abele.frontends.poptorch.fp8.recipe import Fp8Recipe
from abele.numerics.types import SCALES


class _Product(torch.autograd.Function):
    """[rows, in] by [out, in] to [rows, out]."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, weight: Tensor, recipe: Fp8Recipe) -> Tensor:
        value_scale, weight_scale = recipe.scale(value, "activation"), recipe.scale(weight, "weight")
        value8, weight8 = (
            pow2scale_cast_to_fp8(part, scale, recipe.forward_format, nan_on_overflow=recipe.nan_on_overflow)
            for part, scale in ((value, value_scale), (weight, weight_scale))
        )
        kept = weight8 if recipe.keep_weights else weight
        ctx.save_for_backward(value8, kept, value_scale, weight_scale)
        ctx.recipe, ctx.dtypes = recipe, (value.dtype, weight.dtype)
        return _multiplied(recipe, value8, weight8, value_scale + weight_scale, (False, True), value.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        value8, weight8, value_scale, weight_scale = ctx.saved_tensors
        recipe: Fp8Recipe = ctx.recipe
        scale = recipe.scale(grad, "gradient")
        grad8 = pow2scale_cast_to_fp8(grad, scale, recipe.gradient_format, nan_on_overflow=recipe.nan_on_overflow)
        by_value = by_weight = None
        if ctx.needs_input_grad[0]:
            if not recipe.keep_weights:
                weight8 = cast_again(weight8, weight_scale, recipe.forward_format, recipe.nan_on_overflow, grad8)
            by_value = _multiplied(recipe, grad8, weight8, scale + weight_scale, (False, False), ctx.dtypes[0])
        if ctx.needs_input_grad[1]:
            by_weight = _multiplied(recipe, grad8, value8, scale + value_scale, (True, False), ctx.dtypes[1])
        return by_value, by_weight, None


def _multiplied(
    recipe: Fp8Recipe, left: Tensor, right: Tensor, scales: Tensor, transposed: tuple[bool, bool], dtype: torch.dtype
) -> Tensor:
    """A product over both operands' scales, whose exponents ``scales`` is the sum of.

    A product takes exponents of 6 bits; two scales that follow data may add up to more, as those of a tensor of zeros
    and another do. What is left is multiplied afterwards.
    """
    allow = recipe.allow_conversion
    if not recipe.may_exceed:
        return matmul_pow2scaled(left, right, -scales, transposed=transposed, allow_conversion=allow).to(dtype)
    fits = (-scales).clamp(SCALES.start, SCALES.stop - 1)
    made = matmul_pow2scaled(left, right, fits, transposed=transposed, allow_conversion=allow)
    # 2 to a power that data decides, exactly: the number 1 as an 8-bit float, scaled.
    one = pow2scale_cast_to_fp8(torch.ones((), device=left.device), 0)
    return (made.float() * pow2scale_cast_from_fp8(one, -scales - fits, torch.float32)).to(dtype)


class Fp8Product:
    """A product of features and weights in 8-bit floats.

    Args:
        recipe: Formats and scales.
    """

    def __init__(self, recipe: Fp8Recipe) -> None:
        self.recipe = recipe

    def __call__(self, value: Tensor, weight: Tensor) -> Tensor:
        """Features [..., out] of features [..., in] and weights [out, in], in the type of the features."""
        rows = value.reshape(-1, value.shape[-1])
        made: Tensor = _Product.apply(rows, weight, self.recipe)  # type: ignore[no-untyped-call]
        return made.reshape(*value.shape[:-1], weight.shape[0])


class Fp8Linear(nn.Linear):
    """A fully connected layer that multiplies 8-bit floats; :func:`fp8_linear` makes it of a plain one.

    Attributes:
        product: What multiplies, with its recipe.
    """

    product: Fp8Product

    def forward(self, input: Tensor) -> Tensor:
        """Features [..., out] of features [..., in]."""
        made = self.product(input, self.weight)
        return made if self.bias is None else made + self.bias.to(made.dtype)

    def extra_repr(self) -> str:
        """Sizes and scaling."""
        return f"{super().extra_repr()}, scaling={self.product.recipe.scaling!r}"
