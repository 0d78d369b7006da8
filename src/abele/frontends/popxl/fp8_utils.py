"""``popxl.fp8_utils``: casts of the host to 8-bit floats and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends.popxl.dtypes import as_dtype, float8_143, float32
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.numerics.narrow import round_to_nearest


def host_pow2scale_cast_to_fp8(
    src: Any, dtype: Any = float8_143, log2_scale: int = 0, nan_on_overflow: bool = True
) -> Array:
    """Numbers times 2^log2_scale rounded to 8-bit floats.

    Args:
        src: Numbers.
        dtype: ``float8_143`` or ``float8_152``.
        log2_scale: From -32 to 31.
        nan_on_overflow: Make NaN of what is too large, rather than the largest number.

    Returns:
        An array with one field of codes.

    Raises:
        GraphArgumentError: The type has more bits, or the scale is out of range.
    """
    kind = as_dtype(dtype)
    _check_scale(log2_scale)
    if not kind.is_float8:
        raise GraphArgumentError(f"{kind.name} is no 8-bit float", remedy="popxl.float8_143 or popxl.float8_152")
    numbers = src.detach().cpu().numpy() if hasattr(src, "detach") else np.asarray(src)
    scaled = np.ldexp(numbers.astype(np.float64), log2_scale)
    # Rounding begins with f32: what is beyond it is too large for 8 bits as well.
    most = float(np.finfo(np.float32).max)
    held = np.where(np.isfinite(scaled), np.clip(scaled, -most, most), scaled)
    return kind.host_array(round_to_nearest(held, kind.element, saturate=not nan_on_overflow))


def host_pow2scale_cast_from_fp8(src: Array, dtype: Any = float32, log2_scale: int = 0) -> Array:
    """The numbers of 8-bit floats times 2^log2_scale, in another type.

    Raises:
        GraphTypeError: The array is of no 8-bit floats.
    """
    _check_scale(log2_scale)
    kind = as_dtype(src)
    if not kind.is_float8:
        raise GraphTypeError(f"an array of {kind.name} has no 8-bit floats")
    return np.ldexp(kind.device_array(src).astype(np.float32), log2_scale).astype(as_dtype(dtype).as_numpy())


def _check_scale(log2_scale: int) -> None:
    if not -32 <= log2_scale < 32:
        raise GraphArgumentError(f"log2_scale is {log2_scale}, which is not in [-32, 32)")


__all__ = ["host_pow2scale_cast_from_fp8", "host_pow2scale_cast_to_fp8"]
