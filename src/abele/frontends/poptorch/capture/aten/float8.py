"""Casts to and from 8-bit floats and products of them (``poptorch.fp8``)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from abele.frontends.poptorch.capture.registry import OperatorCall, aten, element_type
from abele.frontends.poptorch.capture.sparse_products import PATTERNS
from abele.network import Value
from abele.network.ops import build, float8, sparse_float8


@aten("abele.fp8_cast")
def fp8_cast(
    call: OperatorCall, value: Value, log2_scale: Value, format: str, nan_on_overflow: bool, after: Value | None
) -> Value:
    """8-bit floats of a value times a power of two; one that comes after something is made anew then."""
    # Passes do not look through what is kept, so they cannot take an earlier cast of the same value.
    value = value if after is None else build.keep(call.net, value)
    return float8.pow2scale_cast_to_fp8(call.net, value, log2_scale, format, saturate=not nan_on_overflow)


@aten("abele.fp8_widen")
def fp8_widen(call: OperatorCall, value: Value, log2_scale: Value, dtype: torch.dtype) -> Value:
    """8-bit floats times a power of two, as wide ones."""
    return float8.pow2scale_cast_from_fp8(call.net, value, log2_scale, element_type(dtype))


@aten("abele.fp8_matmul")
def fp8_matmul(
    call: OperatorCall,
    left: Value,
    right: Value,
    log2_scale: Value,
    transposed: Sequence[bool],
    allow_conversion: bool,
) -> Value:
    """The product of two matrices of 8-bit floats, either of which may be given transposed."""
    a, b = (
        build.permute(call.net, operand, (1, 0)) if turned else operand
        for operand, turned in zip((left, right), transposed, strict=True)
    )
    return float8.matmul_pow2scaled(call.net, a, b, log2_scale, converts=allow_conversion)


@aten("abele.fp8_sparse_linear")
def fp8_sparse_linear(
    call: OperatorCall,
    x: Value,
    values: Value,
    log2_scale: Value,
    pattern: str,
    transposed: bool,
    allow_conversion: bool,
) -> Value:
    """x · Sᵀ, or x · S, of 8-bit floats."""
    rows, how = build.transpose(call.net, x), {"transposed": transposed, "converts": allow_conversion}
    made = sparse_float8.sparse_matmul_pow2scaled(call.net, values, rows, log2_scale, PATTERNS[pattern], **how)
    return build.transpose(call.net, made)


@aten("abele.fp8_sampled")
def fp8_sampled(
    call: OperatorCall, a: Value, b: Value, log2_scale: Value, pattern: str, allow_conversion: bool
) -> Value:
    """aᵀ · b of 8-bit floats at the places of a pattern."""
    left, right = build.transpose(call.net, a), build.transpose(call.net, b)
    return sparse_float8.sampled_matmul_pow2scaled(
        call.net, left, right, log2_scale, PATTERNS[pattern], converts=allow_conversion
    )
