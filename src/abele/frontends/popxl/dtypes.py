"""Element types of popxl tensors."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.errors import UnsupportedOpError, nearest
from abele.frontends.popxl.errors import GraphArgumentError, UnknownTypeError
from abele.numerics import ElementType, bool_, f8_143, f8_152, f16, f32, i8, i16, i32, u8, u16, u32


class dtype:  # noqa: N801
    """An element type.

    Attributes:
        name: Its name.
    """

    def __init__(self, name: str, host: Any, element: ElementType | None) -> None:
        self.name = name
        self._host: np.dtype[Any] = np.dtype(host)
        self._element = element

    @property
    def is_int(self) -> builtins.bool:
        """True for integers."""
        return self._host.kind in "iu"

    @property
    def is_floating_point(self) -> builtins.bool:
        """True for floats."""
        return self._host.kind == "f" or self.is_float8

    @property
    def is_float8(self) -> builtins.bool:
        """True for floats of 8 bits, whose arrays have one field of their codes."""
        return self._element is not None and self._element.is_quarter

    @property
    def is_signed(self) -> builtins.bool:
        """True if there are negative numbers."""
        return self._host.kind in "ifc" or self.is_float8

    @property
    def is_complex(self) -> builtins.bool:
        """True for complex numbers."""
        return self._host.kind == "c"

    @property
    def itemsize(self) -> int:
        """Bytes of an element on the host."""
        return self._host.itemsize

    def as_numpy(self) -> np.dtype[Any]:
        """NumPy's type."""
        return self._host

    def as_torch(self) -> Any:
        """PyTorch's type."""
        import torch

        return getattr(torch, _TORCH.get(self.name, self._host.name))

    def device_array(self, data: Array) -> Array:
        """An array of the host in the type of the device; the array itself where it has that type."""
        if self.is_float8:
            return np.ascontiguousarray(data).view(np.uint8).view(self.element.np).reshape(np.shape(data))
        return data.astype(self.element.np, copy=False)

    def host_array(self, data: Array) -> Array:
        """An array of the device in the type of the host."""
        if self.is_float8:
            codes = np.ascontiguousarray(np.asarray(data).astype(self.element.np, copy=False))
            return codes.view(np.uint8).view(self._host).reshape(np.shape(data))
        return np.array(data, dtype=self._host)

    @staticmethod
    def as_dtype(given: Any) -> dtype:
        """The type that NumPy, PyTorch, Python or a name means, or that an array has."""
        return as_dtype(given)

    @staticmethod
    def from_name(name: str) -> dtype:
        """The type of a name."""
        return from_name(name)

    @property
    def element(self) -> ElementType:
        """Type on the device, where integers have 32 bits at most.

        Raises:
            UnsupportedOpError: The machine has none.
        """
        if self._element is None:
            raise UnsupportedOpError(f"tensors of {self.name} have no lowering", remedy="use float32")
        return self._element

    def __repr__(self) -> str:
        return f"popxl.dtype.{self.name}"


bool = dtype("bool", np.bool_, bool_)
int8, int16, int32 = dtype("int8", np.int8, i8), dtype("int16", np.int16, i16), dtype("int32", np.int32, i32)
uint8, uint16, uint32 = dtype("uint8", np.uint8, u8), dtype("uint16", np.uint16, u16), dtype("uint32", np.uint32, u32)
int64, uint64 = dtype("int64", np.int64, i32), dtype("uint64", np.uint64, u32)
float16, float32 = dtype("float16", np.float16, f16), dtype("float32", np.float32, f32)
float8_143, float8_152 = dtype("float8_143", [("f143", "u1")], f8_143), dtype("float8_152", [("f152", "u1")], f8_152)
float64 = dtype("float64", np.float64, None)
complex64, complex128 = dtype("complex64", np.complex64, None), dtype("complex128", np.complex128, None)
half, float, double = float16, float32, float64

np_dtype_float8_143, np_dtype_float8_152 = float8_143.as_numpy(), float8_152.as_numpy()
"""NumPy's types of arrays of 8-bit floats: one field of their codes."""

_ALL = (
    bool,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float8_143,
    float8_152,
    float16,
    float32,
    float64,
    complex64,
    complex128,
)
_TORCH = {"float8_143": "float8_e4m3fnuz", "float8_152": "float8_e5m2fnuz"}
_BY_NAME = {t.name: t for t in _ALL} | {"half": float16, "float": float32, "double": float64}
_OF_ELEMENT = {t.element: t for t in _ALL if t._element is not None and t not in (int64, uint64)}
_BY_NAME |= {_TORCH[t.name]: t for t in (float8_143, float8_152)}
_OF_FIELDS = {t._host.names: t for t in (float8_143, float8_152)}
_PYTHON = {"bool": bool, "int": int64, "float": float32}


def from_name(name: str) -> dtype:
    """The type of a name.

    Raises:
        GraphArgumentError: There is none.
    """
    if name not in _BY_NAME:
        raise GraphArgumentError(f"There is not a `popxl.dtype` with the name `{name}`", remedy=nearest(name, _BY_NAME))
    return _BY_NAME[name]


def of_element(element: ElementType) -> dtype:
    """The type of elements of the device."""
    return _OF_ELEMENT[element]


def as_dtype(given: Any) -> dtype:
    """The type that NumPy, PyTorch, Python or a name means, or that an array has.

    Raises:
        UnknownTypeError: It means none.
    """
    if isinstance(given, dtype):
        return given
    if isinstance(given, type) and given.__name__ in _PYTHON and given.__module__ == "builtins":
        return _PYTHON[given.__name__]
    fields = getattr(getattr(given, "dtype", given), "names", None)
    if fields in _OF_FIELDS:
        return _OF_FIELDS[fields]
    name = given if isinstance(given, str) else str(getattr(given, "dtype", given)).removeprefix("torch.")
    if name in _BY_NAME:
        return _BY_NAME[name]
    try:
        return _BY_NAME[np.dtype(given).name if given is not None else "None"]
    except (TypeError, KeyError):
        raise UnknownTypeError(
            f"There is not a `popxl.dtype` that is compatible with value `{given!r}`",
            remedy=f"one of {', '.join(t.name for t in _ALL)}",
        ) from None


def narrowed(kind: dtype) -> dtype:
    """The type of 32 bits for one of 64."""
    return {int64: int32, uint64: uint32, float64: float32}.get(kind, kind)
