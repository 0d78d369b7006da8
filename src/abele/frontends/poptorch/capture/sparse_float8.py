"""Products of 8-bit floats with sparse weights, as models call them.

Outside of a recorded model they compute the same values over a dense matrix. While a model is recorded they are one
operator of the network each, which names its pattern as in
:mod:`~abele.frontends.poptorch.capture.sparse_products`. Operands are of PyTorch's types of 8-bit floats, results
float16.
"""

from __future__ import annotations

import torch

from abele.frontends.poptorch.capture.sparse_products import PATTERNS, dense_weight, places_of
from abele.sparsity import Pattern


def sparse_linear_pow2scaled(
    x: torch.Tensor,
    values: torch.Tensor,
    log2_scale: torch.Tensor,
    pattern: Pattern,
    *,
    transposed: bool = False,
    allow_conversion: bool = False,
) -> torch.Tensor:
    """``x · Sᵀ · 2^log2_scale``, or the same with S, for x [rows, in] and values [blocks, *block] of 8 bits."""
    PATTERNS[pattern.digest] = pattern
    made: torch.Tensor = torch.ops.abele.fp8_sparse_linear(
        x, values, log2_scale, pattern.digest, transposed, allow_conversion
    )
    return made


def sampled_pow2scaled(
    a: torch.Tensor, b: torch.Tensor, log2_scale: torch.Tensor, pattern: Pattern, *, allow_conversion: bool = False
) -> torch.Tensor:
    """``aᵀ · b · 2^log2_scale`` at the places of a pattern, for a [rows, out] and b [rows, in] of 8 bits."""
    PATTERNS[pattern.digest] = pattern
    made: torch.Tensor = torch.ops.abele.fp8_sampled(a, b, log2_scale, pattern.digest, allow_conversion)
    return made


# --- what PyTorch records ---------------------------------------------------------------------------------------------


def _power(log2_scale: torch.Tensor) -> torch.Tensor:
    return torch.ldexp(torch.ones((), dtype=torch.float32), log2_scale)


@torch.library.custom_op("abele::fp8_sparse_linear", mutates_args=())
def _linear(
    x: torch.Tensor,
    values: torch.Tensor,
    log2_scale: torch.Tensor,
    pattern: str,
    transposed: bool,
    allow_conversion: bool,
) -> torch.Tensor:
    weight = dense_weight(values.float(), PATTERNS[pattern])
    return (x.float() @ (weight if transposed else weight.T) * _power(log2_scale)).half()


@_linear.register_fake
def _(
    x: torch.Tensor,
    values: torch.Tensor,
    log2_scale: torch.Tensor,
    pattern: str,
    transposed: bool,
    allow_conversion: bool,
) -> torch.Tensor:
    features = PATTERNS[pattern].shape[1 if transposed else 0]
    return torch.empty((x.shape[0], features), dtype=torch.float16, device=x.device)


@torch.library.custom_op("abele::fp8_sampled", mutates_args=())
def _sampled(
    a: torch.Tensor, b: torch.Tensor, log2_scale: torch.Tensor, pattern: str, allow_conversion: bool
) -> torch.Tensor:
    found = PATTERNS[pattern]
    whole = (a.float().T @ b.float() * _power(log2_scale)).half()
    return whole.reshape(-1)[torch.from_numpy(places_of(found))].reshape((found.num_blocks, *found.block))


@_sampled.register_fake
def _(a: torch.Tensor, b: torch.Tensor, log2_scale: torch.Tensor, pattern: str, allow_conversion: bool) -> torch.Tensor:
    found = PATTERNS[pattern]
    return torch.empty((found.num_blocks, *found.block), dtype=torch.float16, device=a.device)
