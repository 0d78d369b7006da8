"""Casts to and from 8-bit floats, and products of them, under PopXL's names.

A scale is the exponent of a power of two, in a tensor of one int32, since rules compute it from data: the cast
multiplies by ``2**log2_scale`` and rounds, the cast back multiplies too, so that it takes the scale with the other
sign.
Outside of a model on the device these functions compute the same values in PyTorch, to the bit: they are what the
device's are tested against.
"""

from __future__ import annotations

from typing import Any

import torch

from abele.frontends.poptorch.errors import ArgumentError
from abele.frontends.poptorch.fp8.formats import (
    QuarterFormat,
    checked_log2_scale,
    format_of_tensor,
    quarter_format,
)

Scale = int | torch.Tensor
"""An exponent: a whole number from -32 to 31, or a tensor of one int32."""

_WIDE = (torch.float32, torch.float16)


def pow2scale_cast_to_fp8(
    value: torch.Tensor, log2_scale: Scale, format: str | QuarterFormat = "F143", *, nan_on_overflow: bool = True
) -> torch.Tensor:
    """``value * 2**log2_scale``, rounded to nearest, as 8-bit floats.

    Args:
        value: float32 or float16.
        log2_scale: The scale's exponent.
        format: ``F143`` or ``F152``.
        nan_on_overflow: True if what is too large becomes NaN; false to make it the largest number. What is infinite or
            NaN becomes NaN either way.

    Raises:
        ArgumentError: A tensor of another type, or a scale that is no int32.
        OptionValueError: No such format or scale.
    """
    if not isinstance(value, torch.Tensor) or value.dtype not in _WIDE:
        kind = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
        raise ArgumentError(f"a cast to 8-bit floats takes float32 or float16, not {kind}")
    name = quarter_format(format).name
    made: torch.Tensor = torch.ops.abele.fp8_cast(value, as_scale(log2_scale, value), name, nan_on_overflow, None)
    return made


def cast_again(
    value: torch.Tensor, log2_scale: torch.Tensor, format: str, nan_on_overflow: bool, after: torch.Tensor
) -> torch.Tensor:
    """As :func:`pow2scale_cast_to_fp8`, computed anew once ``after`` is there: an earlier cast need not wait for it."""
    made: torch.Tensor = torch.ops.abele.fp8_cast(value, log2_scale, format, nan_on_overflow, after)
    return made


def pow2scale_cast_from_fp8(
    value: torch.Tensor, log2_scale: Scale = 0, dtype: torch.dtype = torch.float16
) -> torch.Tensor:
    """8-bit floats as wide ones, times ``2**log2_scale``: the negated exponent of the cast restores the rounded values.

    Raises:
        ArgumentError: A tensor of another type, or a result that is neither float16 nor float32.
    """
    format_of_tensor(value)
    if dtype not in _WIDE:
        raise ArgumentError(f"8-bit floats are cast to float16 or float32, not to {dtype}")
    made: torch.Tensor = torch.ops.abele.fp8_widen(value, as_scale(log2_scale, value), dtype)
    return made


def matmul_pow2scaled(
    left: torch.Tensor,
    right: torch.Tensor,
    log2_scale: Scale = 0,
    *,
    transposed: tuple[bool, bool] = (False, False),
    allow_conversion: bool = False,
) -> torch.Tensor:
    """The product of matrices of 8-bit floats times ``2**log2_scale``, in float16.

    Args:
        left: [n, k], in either format.
        right: [k, m], in either format.
        log2_scale: The exponent of the product's scale: minus both scales that the operands were cast with.
        transposed: True for an operand that is given transposed.
        allow_conversion: True to compute in float16 on chips without products of 8-bit floats, which refuse them
            otherwise.

    Raises:
        ArgumentError: Operands of other types or shapes.
    """
    for operand in (left, right):
        format_of_tensor(operand)
        if operand.dim() != 2:
            raise ArgumentError(f"matmul_pow2scaled takes matrices, not {list(operand.shape)}")
    inner = left.shape[0 if transposed[0] else 1], right.shape[1 if transposed[1] else 0]
    if inner[0] != inner[1]:
        raise ArgumentError(f"matmul_pow2scaled: {list(left.shape)} and {list(right.shape)} share no dimension")
    made: torch.Tensor = torch.ops.abele.fp8_matmul(
        left, right, as_scale(log2_scale, left), list(transposed), allow_conversion
    )
    return made


def as_scale(value: Scale, like: torch.Tensor) -> torch.Tensor:
    """A scale's exponent as a tensor of one int32.

    Raises:
        ArgumentError: A tensor of another type or size.
        OptionValueError: A number outside of the range.
    """
    if not isinstance(value, torch.Tensor):
        return torch.full((), checked_log2_scale(value), dtype=torch.int32, device=like.device)
    if value.dtype != torch.int32 or value.numel() != 1:
        raise ArgumentError(f"the exponent of a scale is one int32, not {value.dtype} of {list(value.shape)}")
    return value.reshape(())


# --- what PyTorch records ---------------------------------------------------------------------------------------------


def _power(log2_scale: torch.Tensor) -> torch.Tensor:
    return torch.ldexp(torch.ones((), dtype=torch.float32), log2_scale)


@torch.library.custom_op("abele::fp8_cast", mutates_args=())
def _cast(
    value: torch.Tensor, log2_scale: torch.Tensor, format: str, nan_on_overflow: bool, after: torch.Tensor | None
) -> torch.Tensor:
    chosen = quarter_format(format)
    # Multiplied in double precision: powers of two change nothing there, also beyond the range of float32.
    scaled = value.double() * _power(log2_scale).double()
    if not nan_on_overflow:
        finite = torch.isfinite(scaled)
        scaled = torch.where(finite, scaled.clamp(-chosen.largest, chosen.largest), scaled)
    return scaled.float().to(chosen.dtype)


@_cast.register_fake
def _(
    value: torch.Tensor, log2_scale: torch.Tensor, format: str, nan_on_overflow: bool, after: torch.Tensor | None
) -> torch.Tensor:
    return torch.empty(value.shape, dtype=quarter_format(format).dtype, device=value.device)


@torch.library.custom_op("abele::fp8_widen", mutates_args=())
def _widen(value: torch.Tensor, log2_scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (value.float() * _power(log2_scale)).to(dtype)


@_widen.register_fake
def _(value: torch.Tensor, log2_scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(value.shape, dtype=dtype, device=value.device)


@torch.library.custom_op("abele::fp8_matmul", mutates_args=())
def _matmul(
    left: torch.Tensor, right: torch.Tensor, log2_scale: torch.Tensor, transposed: list[bool], allow_conversion: bool
) -> torch.Tensor:
    wide = zip((left.float(), right.float()), transposed, strict=True)
    a, b = (operand.T if turned else operand for operand, turned in wide)
    return (a @ b * _power(log2_scale)).half()


@_matmul.register_fake
def _(
    left: torch.Tensor, right: torch.Tensor, log2_scale: torch.Tensor, transposed: list[bool], allow_conversion: bool
) -> torch.Tensor:
    rows, columns = left.shape[1 if transposed[0] else 0], right.shape[0 if transposed[1] else 1]
    return torch.empty((rows, columns), dtype=torch.float16, device=left.device)


def registered() -> Any:
    """The operators that a recorded model calls."""
    return torch.ops.abele.fp8_cast, torch.ops.abele.fp8_widen, torch.ops.abele.fp8_matmul
