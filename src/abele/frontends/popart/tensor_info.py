"""``popart.TensorInfo``: type and shape of a tensor of a model."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto


class DataType(IntEnum):
    """Types of tensors: PopART's names, ONNX's numbers."""

    UNDEFINED = TensorProto.UNDEFINED
    UINT8 = TensorProto.UINT8
    INT8 = TensorProto.INT8
    UINT16 = TensorProto.UINT16
    INT16 = TensorProto.INT16
    INT32 = TensorProto.INT32
    INT64 = TensorProto.INT64
    UINT32 = TensorProto.UINT32
    UINT64 = TensorProto.UINT64
    BOOL = TensorProto.BOOL
    FLOAT = TensorProto.FLOAT
    FLOAT16 = TensorProto.FLOAT16
    BFLOAT16 = TensorProto.BFLOAT16
    DOUBLE = TensorProto.DOUBLE
    FLOAT8_143 = TensorProto.FLOAT8E4M3FNUZ
    FLOAT8_152 = TensorProto.FLOAT8E5M2FNUZ
    COMPLEX64 = TensorProto.COMPLEX64
    COMPLEX128 = TensorProto.COMPLEX128
    STRING = TensorProto.STRING


_NAMES = {kind.name: int(kind) for kind in DataType if kind}
"""PopART's names of types, and ONNX's numbers of them."""
_OF_NUMBER = {number: name for name, number in _NAMES.items()}


def code_of(dtype: Any) -> int:
    """ONNX's number of a type: PopART's name of it, NumPy's type, or the number.

    Raises:
        TypeError: It is none.
    """
    if isinstance(dtype, str) and dtype.upper() in _NAMES:
        return int(_NAMES[dtype.upper()])
    if isinstance(dtype, (int, np.integer)) and int(dtype) in _OF_NUMBER:
        return int(dtype)
    try:
        return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    except (TypeError, KeyError, ValueError):
        raise TypeError(f"there is no type {dtype!r} of tensors; {', '.join(_NAMES)} exist") from None


def name_of(code: int) -> str:
    """PopART's name of a type, by ONNX's number."""
    return _OF_NUMBER[code]


def lower_name(code: int) -> str:
    """NumPy's spelling of a type by ONNX's number, such as ``float32``, as PopART has it in lower case."""
    name = name_of(code)
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())


class TensorInfo:
    """Type and shape of a tensor: ``TensorInfo("FLOAT", [1, 2])``, ``TensorInfo(np.float16, (3,))`` or of an array.

    Raises:
        TypeError: No such type.
    """

    def __init__(self, data_type: Any, shape: Sequence[int | str] | None = None) -> None:
        if shape is None and hasattr(data_type, "dtype") and hasattr(data_type, "shape"):
            data_type, shape = data_type.dtype, data_type.shape
        self._code = code_of(data_type)
        self._shape = [n if isinstance(n, str) else int(n) for n in (() if shape is None else shape)]

    @property
    def code(self) -> int:
        """ONNX's number of the type."""
        return self._code

    def shape(self) -> list[Any]:
        """Extents; a name for one that is open."""
        return list(self._shape)

    def data_type(self) -> str:
        """PopART's name of the type."""
        return name_of(self._code)

    def data_type_lcase(self) -> str:
        """Name of the type as NumPy has it."""
        return lower_name(self._code)

    def dataType(self) -> str:
        """PopART's name of the type."""
        return self.data_type()

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type."""
        made: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(self._code))
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorInfo) and (self._code, self._shape) == (other._code, other._shape)

    def __hash__(self) -> int:
        return hash((self._code, tuple(self._shape)))

    def __repr__(self) -> str:
        return f"TensorInfo({self.data_type()!r}, {self._shape})"
