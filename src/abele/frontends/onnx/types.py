"""Element types of ONNX on the host and on the device, which has no 64 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from abele.errors import TypeMismatchError
from abele.frontends.onnx.errors import ModelError, ModelShapeError
from abele.numerics import ElementType, bf16, bool_, f8_143, f8_152, f16, f32, i8, i16, i32, u8, u16, u32

_ELEMENTS: dict[int, ElementType] = {
    TensorProto.FLOAT: f32,
    TensorProto.DOUBLE: f32,
    TensorProto.FLOAT16: f16,
    TensorProto.BFLOAT16: bf16,
    TensorProto.FLOAT8E4M3FNUZ: f8_143,
    TensorProto.FLOAT8E5M2FNUZ: f8_152,
    TensorProto.INT64: i32,
    TensorProto.INT32: i32,
    TensorProto.INT16: i16,
    TensorProto.INT8: i8,
    TensorProto.UINT64: u32,
    TensorProto.UINT32: u32,
    TensorProto.UINT16: u16,
    TensorProto.UINT8: u8,
    TensorProto.BOOL: bool_,
}


def element_type(code: int) -> ElementType:
    """The device type of an ONNX type, by its number: double becomes f32, 64-bit integers have 32.

    Raises:
        TypeMismatchError: The device has nothing like it.
    """
    found = _ELEMENTS.get(code)
    if found is None:
        raise TypeMismatchError(
            f"ONNX's type {type_name(code)} does not exist on the device", remedy="use float, float16, int32 or bool"
        )
    return found


def type_name(code: int) -> str:
    """Name of an ONNX type, as ``FLOAT``."""
    names = {number: name for name, number in TensorProto.DataType.items()}
    return str(names.get(code, f"with number {code}"))


def host_type(code: int) -> np.dtype[Any]:
    """NumPy's type of an ONNX type.

    Raises:
        ModelError: ONNX has no such type.
    """
    try:
        found: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, ValueError):
        raise ModelError(f"a tensor has a type {type_name(code)}, which ONNX does not have") from None
    return found


def type_code(dtype: Any) -> int:
    """Number of the ONNX type of a type of NumPy or of the device."""
    given = dtype.np if isinstance(dtype, ElementType) else np.dtype(dtype)
    return int(onnx.helper.np_dtype_to_tensor_dtype(given))


def device_type(dtype: Any) -> ElementType:
    """The device type of a type of NumPy."""
    return element_type(type_code(dtype))


MOST_ELEMENTS = 2**31
"""Elements of a tensor: positions have 32 bits."""
MOST_DIMENSIONS = 32
"""Dimensions of a tensor, of which NumPy before 2 has no more."""
MOST_MADE = 2**26
"""Elements of a table that the reader makes by its size alone: a file of some bytes could ask for any."""


def check_size(what: str, shape: Sequence[int], most: int = MOST_ELEMENTS) -> int:
    """Number of elements of a shape.

    Args:
        what: Owner of the shape, in words.
        shape: The shape.
        most: Elements that it may have.

    Raises:
        ModelError: An extent is negative.
        ModelShapeError: It has more elements.
    """
    if any(n < 0 for n in shape):
        raise ModelError(f"{what} would have the shape {list(shape)}")
    if len(shape) > MOST_DIMENSIONS:
        raise ModelError(f"{what} has {len(shape)} dimensions, a tensor may have {MOST_DIMENSIONS}")
    size = math.prod(int(n) for n in shape)
    if size > most:
        raise ModelShapeError(
            f"{what} of shape {list(shape)} has {size:,} elements, a tensor may have {most:,}",
            remedy="check the shapes that it is computed from",
        )
    return size
