"""Poplar's element types by its names, and conversions between host and device."""

# ruff: noqa: N801 - the names are Poplar's

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import TypeMismatchError
from abele.numerics import (
    ElementType,
    as_element_type,
    bool_,
    f16,
    f32,
    i8,
    i16,
    i32,
    i64,
    to_device,
    u8,
    u16,
    u32,
    u64,
)

Type = ElementType
FLOAT = f32
HALF = f16
INT = i32
UNSIGNED_INT = u32
BOOL = bool_
CHAR = SIGNED_CHAR = i8
UNSIGNED_CHAR = u8
SHORT = i16
UNSIGNED_SHORT = u16
LONGLONG = i64
UNSIGNED_LONGLONG = u64


class AbsentTypeError(TypeMismatchError, AttributeError):
    """A type that only the host has; also an AttributeError, so that ``hasattr`` works."""

    def __init__(self, name: str) -> None:
        instead = {"DOUBLE": "FLOAT", "LONG": "INT or LONGLONG"}.get(name, "UNSIGNED_INT or UNSIGNED_LONGLONG")
        super().__init__(f"{name} is no element type of the machine: only the host has it", remedy=f"use {instead}")


@dataclass(frozen=True, slots=True)
class equivalent_device_type:
    """The element type that stands on the device for a type of the host: ``equivalent_device_type(float).value``.

    Attributes:
        host: A Python type, NumPy type or name.
    """

    host: Any

    @property
    def value(self) -> ElementType:
        """The element type.

        Raises:
            TypeMismatchError: The device has none; 64-bit floating point among them.
        """
        return as_element_type(self.host)


def copyFloatToDeviceHalf(target: Any, source: npt.ArrayLike, destination: npt.NDArray[Any] | None = None) -> Any:
    """Half-precision numbers of the device from f32: into ``destination``, or as a new array."""
    return _into(destination, to_device(source, f16))


def copyDeviceHalfToFloat(target: Any, source: npt.ArrayLike, destination: npt.NDArray[Any] | None = None) -> Any:
    """f32 from half-precision numbers of the device (as f16, or as their bits in u16).

    Raises:
        TypeMismatchError: Elements of another type.
    """
    array = np.asarray(source)
    halves = array.view(f16.np) if array.dtype in (np.uint16, np.uint8) else array
    if halves.dtype != f16.np:
        raise TypeMismatchError(f"{array.dtype} holds no half-precision numbers", remedy="float16, or uint16 of bits")
    return _into(destination, halves.astype(np.float32))


def convertToDeviceType(type: Any, source: npt.ArrayLike, destination: npt.NDArray[Any] | None = None) -> Any:
    """Numbers of the host as elements of a device type.

    Raises:
        TypeMismatchError: ``type`` is no element type of the machine.
    """
    return _into(destination, to_device(source, as_element_type(type)))


def convertFromDeviceType(type: Any, source: npt.NDArray[Any], hostType: Any = np.float32) -> npt.NDArray[Any]:
    """Elements of a device type (their bytes, or an array of it) as numbers of a host type.

    Raises:
        TypeMismatchError: ``type`` is no element type of the machine.
        ValueError: Bytes that are no whole number of elements.
    """
    element = as_element_type(type)
    array = source if source.dtype == element.np else source.view(np.uint8).view(element.np)
    return array.astype(hostType)


def _into(destination: npt.NDArray[Any] | None, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if destination is None:
        return values
    raw = destination.reshape(-1).view(values.dtype) if destination.dtype != values.dtype else destination.reshape(-1)
    raw[: values.size] = values.reshape(-1)
    return destination
