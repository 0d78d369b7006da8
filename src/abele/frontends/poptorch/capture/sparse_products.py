"""Products with sparse weights, as models call them.

Outside of a recorded model they are PyTorch's own operators over a dense matrix that the values are put into, so that
autograd gives the same gradients, in any type. While a model is recorded they are one operator of the network each,
which names its pattern or plan by a text, by which they are found until the next model is recorded.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as functional

from abele.arrays import Int64
from abele.errors import TensorError, TypeMismatchError
from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.network.ops.sparse_slots import SlotPlan
from abele.sparsity import Pattern

PATTERNS: dict[str, Pattern] = {}
"""Patterns that the calls of the latest recorded model name, by their digests."""

PLANS: dict[str, SlotPlan] = {}
"""Plans that these calls name."""


def sparse_linear(
    x: torch.Tensor,
    values: torch.Tensor,
    pattern: Pattern,
    bias: torch.Tensor | None = None,
    *,
    transposed: bool = False,
) -> torch.Tensor:
    """``x · Sᵀ + bias``.

    Args:
        x: [..., in].
        values: Values of S [out, in] in the pattern's order, [blocks, block rows, block columns].
        pattern: Blocks that S holds.
        bias: [out].
        transposed: True for ``x · S``, with S [in, out].
    """
    _check_inputs(x, pattern.shape[0 if transposed else 1])
    values = values.to(x.dtype)
    if not isRunningOnIpu():
        weight = dense_weight(values, pattern)
        return functional.linear(x, weight.T if transposed else weight, None if bias is None else bias.to(x.dtype))
    PATTERNS[pattern.digest] = pattern
    made: torch.Tensor = torch.ops.abele.sparse_linear(x, values, pattern.digest, transposed)
    return made if bias is None else made + bias.to(x.dtype)


def dynamic_sparse_linear(
    x: torch.Tensor, words: torch.Tensor, slots: torch.Tensor, plan: SlotPlan, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """``x · Sᵀ + bias`` for S in slots, of a pattern that the device is told; for models that are recorded."""
    key = repr(plan)
    PLANS[key] = plan
    made: torch.Tensor = torch.ops.abele.dynamic_sparse_linear(x, words, slots, key)
    return made if bias is None else made + bias.to(x.dtype)


def sampled_product(a: torch.Tensor, b: torch.Tensor, pattern: Pattern) -> torch.Tensor:
    """Values of a · bᵀ at the places of a pattern [blocks, *block], for a [m, k] and b [n, k]; in recorded models."""
    PATTERNS[pattern.digest] = pattern
    made: torch.Tensor = torch.ops.abele.sampled_product(a, b, pattern.digest)
    return made


def dense_weight(values: torch.Tensor, pattern: Pattern) -> torch.Tensor:
    """The dense matrix of a pattern's values, zeros elsewhere; differentiable."""
    flat = values.new_zeros(pattern.shape[0] * pattern.shape[1])
    # The array is kept and not the tensor: one that is made while PyTorch records has no values.
    return flat.index_put((torch.from_numpy(places_of(pattern)),), values.reshape(-1)).reshape(pattern.shape)


@lru_cache(64)
def places_of(pattern: Pattern) -> Int64:
    """Place in the flat dense matrix of each of a pattern's values [values]."""
    every = np.arange(pattern.shape[0] * pattern.shape[1]).reshape(pattern.shape)
    return np.asarray(pattern.values_of(every).reshape(-1), np.int64)


# --- what PyTorch records ---------------------------------------------------------------------------------------------


@torch.library.custom_op("abele::sparse_linear", mutates_args=())
def _sparse_linear(x: torch.Tensor, values: torch.Tensor, pattern: str, transposed: bool) -> torch.Tensor:
    weight = dense_weight(values, PATTERNS[pattern])
    return functional.linear(x, weight.T if transposed else weight)


@_sparse_linear.register_fake
def _(x: torch.Tensor, values: torch.Tensor, pattern: str, transposed: bool) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], PATTERNS[pattern].shape[1 if transposed else 0]))


@torch.library.custom_op("abele::dynamic_sparse_linear", mutates_args=())
def _dynamic_sparse_linear(x: torch.Tensor, words: torch.Tensor, slots: torch.Tensor, plan: str) -> torch.Tensor:
    found = PLANS[plan]
    pattern = found.pattern(words.numpy())
    values = slots.reshape(-1)[torch.from_numpy(found.slots(pattern))]
    return functional.linear(x, dense_weight(values, pattern))


@_dynamic_sparse_linear.register_fake
def _(x: torch.Tensor, words: torch.Tensor, slots: torch.Tensor, plan: str) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], PLANS[plan].shape[0]))


@torch.library.custom_op("abele::sampled_product", mutates_args=())
def _sampled_product(a: torch.Tensor, b: torch.Tensor, pattern: str) -> torch.Tensor:
    found = PATTERNS[pattern]
    values = (a @ b.T).reshape(-1)[torch.from_numpy(places_of(found))]
    return values.reshape((found.num_blocks, *found.block))


@_sampled_product.register_fake
def _(a: torch.Tensor, b: torch.Tensor, pattern: str) -> torch.Tensor:
    return a.new_empty((PATTERNS[pattern].num_blocks, *PATTERNS[pattern].block))


def _check_inputs(x: torch.Tensor, inputs: int) -> None:
    """Raise unless a layer can take ``x`` [..., inputs].

    Raises:
        TypeMismatchError: It is no tensor of floating point; whole numbers would make whole ones of the values.
        TensorError: It has another width.
    """
    if not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point:
        what = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeMismatchError(f"a sparse layer takes a tensor of floating point, got {what}", remedy="x.float()")
    if not x.ndim or x.shape[-1] != inputs:
        raise TensorError(f"a sparse layer takes [..., {inputs:,}], got {list(x.shape)}")
