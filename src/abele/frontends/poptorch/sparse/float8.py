""":func:`fp8_sparse_linear`: the sparse layers of a model, in 8-bit floats.

Formats and scales are those of :mod:`~abele.frontends.poptorch.fp8`: with x8 and w8 in F143 and dy8 in F152, y = x8 ·
S8ᵀ, dx = dy8 · S8, and the gradient of the values is dy8ᵀ · x8 at the places of the pattern, each over its two scales.
Values stay as they are, in their own type, and so do biases.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from abele.errors import UnsupportedOpError
from abele.frontends.poptorch.capture.sparse_float8 import sampled_pow2scaled, sparse_linear_pow2scaled
from abele.frontends.poptorch.errors import ArgumentError
from abele.frontends.poptorch.fp8.casts import cast_again, pow2scale_cast_to_fp8
from abele.frontends.poptorch.fp8.convert import scaled_product
from abele.frontends.poptorch.fp8.recipe import Fp8Recipe
from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.frontends.poptorch.sparse.layers import BlockSparseLinear, SparseLinear
from abele.sparsity import Pattern

BLOCKS = (8, 16)
"""Edges of blocks that the matrix units take in 8-bit floats."""


class _SparseProduct(torch.autograd.Function):
    """[rows, in] by S [out, in] to [rows, out]."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, held: Tensor, recipe: Fp8Recipe, pattern: Pattern) -> Tensor:
        value_scale, held_scale = recipe.scale(value, "activation"), recipe.scale(held, "weight")
        value8, held8 = (
            pow2scale_cast_to_fp8(part, scale, recipe.forward_format, nan_on_overflow=recipe.nan_on_overflow)
            for part, scale in ((value, value_scale), (held, held_scale))
        )
        ctx.save_for_backward(value8, held8 if recipe.keep_weights else held, value_scale, held_scale)
        ctx.recipe, ctx.pattern, ctx.dtypes = recipe, pattern, (value.dtype, held.dtype)
        return _times(recipe, value_scale + held_scale, value8, held8, pattern, value.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        value8, held8, value_scale, held_scale = ctx.saved_tensors
        recipe: Fp8Recipe = ctx.recipe
        scale = recipe.scale(grad, "gradient")
        grad8 = pow2scale_cast_to_fp8(grad, scale, recipe.gradient_format, nan_on_overflow=recipe.nan_on_overflow)
        by_value = by_held = None
        if ctx.needs_input_grad[0]:
            if not recipe.keep_weights:
                held8 = cast_again(held8, held_scale, recipe.forward_format, recipe.nan_on_overflow, grad8)
            by_value = _times(
                recipe, scale + held_scale, grad8, held8, ctx.pattern, dtype=ctx.dtypes[0], transposed=True
            )
        if ctx.needs_input_grad[1]:

            def sampled(exponent: Tensor) -> Tensor:
                allow = recipe.allow_conversion
                return sampled_pow2scaled(grad8, value8, exponent, ctx.pattern, allow_conversion=allow)

            by_held = scaled_product((recipe, scale + value_scale, 1.0), sampled, ctx.dtypes[1])
        return by_value, by_held, None, None


def _times(
    recipe: Fp8Recipe,
    scales: Tensor,
    rows: Tensor,
    held: Tensor,
    pattern: Pattern,
    dtype: torch.dtype,
    *,
    transposed: bool = False,
) -> Tensor:
    def product(exponent: Tensor) -> Tensor:
        how = {"transposed": transposed, "allow_conversion": recipe.allow_conversion}
        return sparse_linear_pow2scaled(rows, held, exponent, pattern, **how)

    return scaled_product((recipe, scales, 1.0), product, dtype)


class Fp8SparseLinear(SparseLinear):
    """A sparse layer that multiplies 8-bit floats; :func:`fp8_sparse_linear` makes it of another one.

    Attributes:
        recipe: Formats and scales.
    """

    recipe: Fp8Recipe

    def forward(self, x: Tensor) -> Tensor:
        """Features [..., out] of features [..., in]."""
        self._is_recorded |= isRunningOnIpu()
        rows = x.reshape(-1, x.shape[-1])
        made: Tensor = _SparseProduct.apply(rows, self.values, self.recipe, self.pattern)  # type: ignore[no-untyped-call]
        made = made.reshape(*x.shape[:-1], self.out_features)
        return made if self.bias is None else made + self.bias.to(made.dtype)

    def extra_repr(self) -> str:
        """Sizes and scaling."""
        return f"{super().extra_repr()}, scaling={self.recipe.scaling!r}"


Module = TypeVar("Module", bound=nn.Module)


def fp8_sparse_linear(module: Module, recipe: Fp8Recipe | None = None, *, skip: Sequence[str] = ()) -> Module:
    """Let a model's sparse layers multiply 8-bit floats; it changes ``module`` and gives it back.

    Args:
        module: A model.
        recipe: Formats and scales; by default each tensor's scale follows its largest element.
        skip: Names of layers that stay as they are; ``*`` in a name stands for anything.

    Raises:
        ArgumentError: ``module`` is no module, ``recipe`` no recipe, ``skip`` no list, or it names no sparse layer.
        UnsupportedOpError: There is no sparse layer that is not skipped, or one with a dynamic pattern or blocks that
            the matrix units do not take in 8-bit floats.
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"fp8_sparse_linear takes a torch.nn.Module, got {type(module).__name__}")
    if recipe is not None and not isinstance(recipe, Fp8Recipe):
        raise ArgumentError(f"fp8_sparse_linear takes an Fp8Recipe, got {recipe!r}")
    if isinstance(skip, str):
        raise ArgumentError(f"the names to skip are a list, got {skip!r}", remedy=f"skip=[{skip!r}]")
    layers = {n: part for n, part in module.named_modules(remove_duplicate=False) if isinstance(part, SparseLinear)}
    for name in skip:
        if not fnmatch.filter(layers, name):
            raise ArgumentError(
                f"no sparse layer fits {name!r}, which is to be skipped", remedy=", ".join(list(layers)[:8]) or None
            )
    skipped = {name for pattern in skip for name in fnmatch.filter(layers, pattern)}
    chosen = {name: layer for name, layer in layers.items() if name not in skipped}
    if not chosen:
        raise UnsupportedOpError(
            f"{type(module).__name__} has no sparse layer that could multiply 8-bit floats",
            remedy="skip fewer" if layers else "poptorch.sparse.SparseLinear; fp8.fp8_linear converts dense layers",
        )
    # All are looked at before any is changed.
    for name, layer in chosen.items():
        _check(name, layer)
    for layer in chosen.values():
        converted: Any = layer
        converted.__class__, converted.recipe = Fp8SparseLinear, recipe or Fp8Recipe()
    return module


def _check(name: str, layer: SparseLinear) -> None:
    remedy = f"skip=[{name!r}]"
    if type(layer) not in (SparseLinear, BlockSparseLinear, Fp8SparseLinear):
        raise UnsupportedOpError(
            f"the layer {name!r} is a {type(layer).__name__}, which does not compute as SparseLinear does",
            remedy=remedy,
        )
    if layer.dynamic:
        raise UnsupportedOpError(
            f"the pattern of {name!r} is dynamic, and products of 8-bit floats with such ones have no gradients",
            remedy=f"dynamic=False · {remedy}",
        )
    block = layer.pattern.block
    if block[0] not in BLOCKS:
        raise UnsupportedOpError(
            f"the layer {name!r} has blocks of {block[0]} x {block[1]}",
            because="the matrix units take 8 values of a row at a time, and vector units take no 8-bit floats",
            remedy=f"blocks of 8 or 16 · {remedy}",
        )
