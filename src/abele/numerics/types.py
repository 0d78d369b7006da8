"""Element types: one element of a tensor, on the tile and on the host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from abele.errors import TypeMismatchError, nearest


@dataclass(frozen=True)
class ElementType:
    """The type of one tensor element.

    Attributes:
        name: Short name, as in ``f32``.
        bits: Width in memory.
        kind: ``float``, ``int``, ``uint`` or ``bool``.
        np: The NumPy dtype that holds the same bits on the host.
        poplar_name: Poplar's name for it, as it appears in vertex names.
        scale: Of 8-bit floats: an element stands for what its bits say times ``2**scale``.
    """

    name: str
    bits: int
    kind: str
    np: np.dtype[Any] = field(compare=False)
    poplar_name: str
    scale: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of one element in tile memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """True if the type is a floating-point one."""
        return self.kind == "float"

    @property
    def is_quarter(self) -> bool:
        """True if it is an 8-bit float, which the machine only converts and multiplies matrices of."""
        return self.is_float and self.bits == 8

    @property
    def is_narrow(self) -> bool:
        """True if it is a float of fewer than 32 bits, which results are rounded to."""
        return self.is_float and self.bits < 32

    def toString(self) -> str:
        """Poplar's name for :attr:`poplar_name`."""
        return self.poplar_name

    def __repr__(self) -> str:
        return self.name


f32 = ElementType("f32", 32, "float", np.dtype(np.float32), "float")
f16 = ElementType("f16", 16, "float", np.dtype(np.float16), "half")
bf16 = ElementType("bf16", 16, "float", np.dtype(ml_dtypes.bfloat16), "bfloat16")
f8_143 = ElementType("f8_143", 8, "float", np.dtype(ml_dtypes.float8_e4m3fnuz), "quarter")
f8_152 = ElementType("f8_152", 8, "float", np.dtype(ml_dtypes.float8_e5m2fnuz), "quarter")
i8 = ElementType("i8", 8, "int", np.dtype(np.int8), "signed char")
i16 = ElementType("i16", 16, "int", np.dtype(np.int16), "short")
i32 = ElementType("i32", 32, "int", np.dtype(np.int32), "int")
i64 = ElementType("i64", 64, "int", np.dtype(np.int64), "long long")
u8 = ElementType("u8", 8, "uint", np.dtype(np.uint8), "unsigned char")
u16 = ElementType("u16", 16, "uint", np.dtype(np.uint16), "unsigned short")
u32 = ElementType("u32", 32, "uint", np.dtype(np.uint32), "unsigned int")
u64 = ElementType("u64", 64, "uint", np.dtype(np.uint64), "unsigned long long")
bool_ = ElementType("bool", 8, "bool", np.dtype(np.bool_), "bool")

ALL: tuple[ElementType, ...] = (f32, f16, bf16, f8_143, f8_152, i8, i16, i32, i64, u8, u16, u32, u64, bool_)
_BY_NAME = {t.name: t for t in ALL} | {t.poplar_name: t for t in ALL} | {t.poplar_name.upper(): t for t in ALL}
_BY_NAME |= {"bool_": bool_, "char": i8, "CHAR": i8, "FLOAT": f32, "HALF": f16, "INT": i32, "UNSIGNED_INT": u32}
_BY_NAME |= {t.poplar_name.upper().replace(" ", "_"): t for t in ALL}
_BY_NAME |= {"LONGLONG": i64, "UNSIGNED_LONGLONG": u64, "unsigned": u32, "UNSIGNED": u32}
_HOST_ONLY = {"double": "f32", "long": "i64", "unsigned long": "u64"}
"""Poplar's types that no tile has, and their replacements."""

_BY_NAME |= {"quarter": f8_143, "QUARTER": f8_143, "F143": f8_143, "F152": f8_152}
_BY_DTYPE = {t.np: t for t in ALL}
_SCALED = re.compile(r"(f8_143|f8_152)\*2\^(-?\d+)")
SCALES = range(-32, 32)
"""Exponents of two by which an 8-bit float may be scaled: numbers of 6 bits. Source: G."""


def quarter(format: str | ElementType = "F143", scale: int = 0) -> ElementType:
    """The 8-bit float that Poplar describes by ``QuarterMetadata(format, scale)``.

    Args:
        format: ``F143`` (1 sign, 4 exponent, 3 fraction bits) or ``F152``.
        scale: An element stands for what its bits say times ``2**scale``.

    Raises:
        TypeMismatchError: There is no such format or scale.
    """
    base = as_element_type(format)
    if not base.is_quarter:
        raise TypeMismatchError(f"{format!r} is no format of 8-bit floats", remedy="F143 or F152")
    if scale not in SCALES:
        raise TypeMismatchError(f"8-bit floats cannot be scaled by 2^{scale}", remedy="a power from -32 to 31")
    base = _BY_DTYPE[base.np]
    return replace(base, name=f"{base.name}*2^{scale}", scale=scale) if scale else base


def as_element_type(value: Any) -> ElementType:
    """Element type that ``value`` names.

    Args:
        value: An :class:`ElementType`, one of our names or Poplar's, a NumPy dtype or scalar type, or Python's
            ``float``, ``int`` or ``bool``.

    Raises:
        TypeMismatchError: The machine has no such type (64-bit floating point among them).
    """
    if isinstance(value, ElementType):
        return value
    if value is float:
        return f32
    if value is int:
        return i32
    if value is bool:
        return bool_
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    scaled = _SCALED.fullmatch(value) if isinstance(value, str) else None
    if scaled:
        return quarter(scaled[1], int(scaled[2]))
    instead = _HOST_ONLY.get(value.lower().replace("_", " ")) if isinstance(value, str) else None
    if instead is not None:
        raise TypeMismatchError(
            f"{value!r} is no element type of the machine",
            because="the machine has no 64-bit floating point" if instead == "f32" else "only the host has it",
            remedy=f"use {instead}",
        )
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError):
        dtype = None
    if dtype is not None and dtype in _BY_DTYPE:
        return _BY_DTYPE[dtype]
    wide = dtype == np.dtype(np.float64) if dtype is not None else False
    hint = "f32" if wide else (nearest(value, _BY_NAME) if isinstance(value, str) else None)
    raise TypeMismatchError(
        f"{value!r} is no element type of the machine",
        because="the machine has no 64-bit floating point" if wide else None,
        remedy=f"use {hint}" if hint else "one of " + ", ".join(t.name for t in ALL),
    )


def to_device(array: npt.ArrayLike, type_: ElementType) -> npt.NDArray[Any]:
    """``array`` as contiguous device elements of ``type_``; 64-bit host values are narrowed.

    To 8-bit floats it is rounded to nearest, ties to even; what is too large becomes NaN.
    """
    given = np.asarray(array)
    if type_.is_quarter and given.dtype != type_.np:
        given = np.ldexp(given.astype(np.float32), -type_.scale)
    return np.asarray(given.astype(type_.np, copy=False), order="C")


@dataclass(frozen=True, slots=True)
class Misfit:
    """An element that a type cannot hold.

    Attributes:
        value: The element as text.
        why: Reason for which it does not fit.
        limits: Range of the type, where the element is beyond it.
    """

    value: str
    why: str
    limits: str = ""

    def __str__(self) -> str:
        return f"{self.value}, which is {self.why}"


def misfit(array: npt.ArrayLike, type_: ElementType) -> Misfit | None:
    """First element of ``array`` that no element of ``type_`` can hold; None where all can.

    Integers and bools hold whole numbers in their range. Floats hold all numbers, rounded, but those that are finite
    and would become infinite or NaN.
    """
    given = np.asarray(array)
    if given.dtype == type_.np or given.dtype == np.bool_ or not given.size:
        return None
    flat = given.reshape(-1)
    if given.dtype.kind == "O":  # integers beyond 64 bits, or anything
        try:
            flat = flat.astype(np.float64)
        except (TypeError, ValueError):
            return Misfit(repr(flat[0]), "no number")
    elif given.dtype.kind not in "iuf" and given.dtype not in _WIDENED:
        return Misfit(repr(flat[0].item()), "no number")
    if type_.is_float:
        with np.errstate(all="ignore"):
            stored = to_host(to_device(flat, type_), type_)
        return _first(flat, np.isfinite(flat.astype(np.float64)) & ~np.isfinite(stored), "too large")
    low, high = (0, 1) if type_.kind == "bool" else (int(np.iinfo(type_.np).min), int(np.iinfo(type_.np).max))
    limits = f"from {low:,} to {high:,}"
    if given.dtype.kind in "iu":
        inside = low <= int(flat.min()) and int(flat.max()) <= high
        wide = flat[:0] if inside else flat.astype(object)
        return _first(flat, np.asarray((wide < low) | (wide > high), np.bool_), f"not {limits}", limits)
    wide = flat.astype(np.float64)
    broken = _first(flat, ~np.isfinite(wide) | (np.trunc(wide) != wide), "no integer")
    return broken or _first(flat, (wide < float(low)) | (wide >= float(high + 1)), f"not {limits}", limits)


def _first(flat: npt.NDArray[Any], wrong: npt.NDArray[np.bool_], why: str, limits: str = "") -> Misfit | None:
    if not wrong.any():
        return None
    value = flat[int(wrong.argmax())]
    return Misfit(f"{value:,}" if flat.dtype.kind in "iu" else f"{value}", why, limits)


def to_host(array: npt.NDArray[Any], type_: ElementType | None = None) -> npt.NDArray[Any]:
    """``array`` in a type that every NumPy routine knows: bf16 and 8-bit floats widen to f32, the rest stays.

    Args:
        array: Elements as the device has them.
        type_: Their type, where it has a scale.
    """
    if array.dtype not in _WIDENED:
        return array
    wide = array.astype(np.float32)
    return np.ldexp(wide, type_.scale) if type_ is not None and type_.scale else wide


_WIDENED = (bf16.np, f8_143.np, f8_152.np)
