"""Element types of popxl tensors."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from abele.errors import UnsupportedOpError
from abele.frontends.popxl.errors import GraphTypeError
from abele.numerics import ElementType, bool_, f16, f32, i8, i16, i32, u8, u16, u32


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
        return self._host.kind == "f"

    @property
    def is_signed(self) -> builtins.bool:
        """True if there are negative numbers."""
        return self._host.kind in "ifc"

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

        return getattr(torch, self._host.name)

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
float64 = dtype("float64", np.float64, None)
complex64, complex128 = dtype("complex64", np.complex64, None), dtype("complex128", np.complex128, None)
half, float, double = float16, float32, float64

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
    float16,
    float32,
    float64,
    complex64,
    complex128,
)
_BY_NAME = {t.name: t for t in _ALL} | {"half": float16, "float": float32, "double": float64}
_OF_ELEMENT = {t.element: t for t in _ALL if t._element is not None and t not in (int64, uint64)}
_PYTHON = {"bool": bool, "int": int64, "float": float32}


def from_name(name: str) -> dtype:
    """The type of a name.

    Raises:
        GraphArgumentError: There is none.
    """
    if name not in _BY_NAME:
        from abele.frontends.popxl.errors import GraphArgumentError

        raise GraphArgumentError(f"There is not a `popxl.dtype` with the name `{name}`")
    return _BY_NAME[name]


def of_element(element: ElementType) -> dtype:
    """The type of elements of the device."""
    return _OF_ELEMENT[element]


def as_dtype(given: Any) -> dtype:
    """The type that NumPy, PyTorch, Python or a name means, or that an array has.

    Raises:
        GraphTypeError: It means none.
    """
    if isinstance(given, dtype):
        return given
    if isinstance(given, type) and given.__name__ in _PYTHON and given.__module__ == "builtins":
        return _PYTHON[given.__name__]
    name = given if isinstance(given, str) else str(getattr(given, "dtype", given)).removeprefix("torch.")
    if name in _BY_NAME:
        return _BY_NAME[name]
    try:
        return _BY_NAME[np.dtype(given).name]
    except (TypeError, KeyError):
        raise GraphTypeError(f"There is not a `popxl.dtype` for {given!r}") from None


def narrowed(kind: dtype) -> dtype:
    """The type of 32 bits for one of 64."""
    return {int64: int32, uint64: uint32, float64: float32}.get(kind, kind)
