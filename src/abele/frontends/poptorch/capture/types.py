"""PyTorch's element types on the device: 64-bit ones are narrowed."""

from __future__ import annotations

import torch

from abele.errors import TypeMismatchError
from abele.numerics import ElementType, bf16, bool_, f8_143, f8_152, f16, f32, i8, i16, i32, u8

_TYPES = {
    torch.float32: f32,
    torch.float64: f32,
    torch.float16: f16,
    torch.bfloat16: bf16,
    torch.float8_e4m3fnuz: f8_143,
    torch.float8_e5m2fnuz: f8_152,
    torch.int64: i32,
    torch.int32: i32,
    torch.int16: i16,
    torch.int8: i8,
    torch.uint8: u8,
    torch.bool: bool_,
}
_NARROWED = {torch.float64: torch.float32, torch.int64: torch.int32}


def element_type(dtype: torch.dtype) -> ElementType:
    """The device type of a PyTorch type: float64 becomes f32, int64 i32.

    Raises:
        TypeMismatchError: The device has nothing like it.
    """
    if dtype not in _TYPES:
        raise TypeMismatchError(f"{dtype} does not exist on the device", remedy="use float32, float16, int32 or bool")
    return _TYPES[dtype]


def host_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which tensors of ``dtype`` come back from the device."""
    return _NARROWED.get(dtype, dtype)
