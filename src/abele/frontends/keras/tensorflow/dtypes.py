"""TensorFlow's element types as objects, beside which NumPy's are equal: ``tf.float32 == np.float32``."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from abele.errors import TypeMismatchError, nearest


class DType:
    """An element type by TensorFlow's name.

    NumPy, JAX and Keras take one wherever they take a type of theirs.

    Args:
        name: TensorFlow's name of it.
        dtype: NumPy's type with the same values; ``object`` for strings.
    """

    def __init__(self, name: str, dtype: Any) -> None:
        self.name = name
        self.dtype = np.dtype(dtype)

    @property
    def as_numpy_dtype(self) -> Any:
        """NumPy's scalar type."""
        return self.dtype.type

    @property
    def is_floating(self) -> bool:
        """True for types of real numbers."""
        return self.name.startswith(("float", "bfloat"))

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers."""
        return self.name.startswith(("int", "uint"))

    @property
    def is_unsigned(self) -> bool:
        """True for unsigned integers."""
        return self.name.startswith("uint")

    @property
    def is_bool(self) -> bool:
        """True for truth values."""
        return self.name == "bool"

    @property
    def is_complex(self) -> bool:
        """True for complex numbers."""
        return self.name.startswith("complex")

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def base_dtype(self) -> DType:
        """The type itself: there are no references."""
        return self

    @property
    def real_dtype(self) -> DType:
        """The type of the real part."""
        return as_dtype(np.empty(0, self.dtype).real.dtype)

    @property
    def min(self) -> Any:
        """The lowest value."""
        return self._limits().min

    @property
    def max(self) -> Any:
        """The highest value."""
        return self._limits().max

    @property
    def limits(self) -> tuple[Any, Any]:
        """The lowest and the highest value."""
        return self.min, self.max

    def is_compatible_with(self, other: Any) -> bool:
        """True if tensors of both types may stand for each other."""
        return bool(self == other)

    def _limits(self) -> Any:
        if self.is_bool:
            raise TypeMismatchError("the type bool has no lowest and no highest value")
        return np.iinfo(self.dtype) if self.is_integer else ml_dtypes.finfo(self.dtype)  # type: ignore[no-untyped-call]

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        try:
            return self.name == as_dtype(other).name
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: '{self.name}'>"

    def __reduce__(self) -> Any:
        return as_dtype, (self.name,)


_NUMBERS = [
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
]
DTYPES = {name: DType(name, name) for name in _NUMBERS}
DTYPES["bfloat16"] = DType("bfloat16", ml_dtypes.bfloat16)
DTYPES["string"] = DType("string", object)
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "object": "string", "bytes": "string"}
_ALIASES |= {"str": "string"}
_PYTHON: dict[type, str] = {int: "int32", float: "float32", complex: "complex64", bool: "bool", str: "string"}


def as_dtype(dtype: Any) -> DType:
    """The element type that a name, NumPy's or Keras' type, or Python's type stands for.

    Raises:
        TypeMismatchError: It is no element type.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON:
        return DTYPES[_PYTHON[dtype]]
    name = dtype if isinstance(dtype, str) else _numpy_name(dtype)
    found = DTYPES.get(_ALIASES.get(name, name))
    if found is None:
        close = nearest(name, DTYPES)
        raise TypeMismatchError(
            f"{dtype!r} is no element type", remedy=f"tf.{close}" if close else f"one of {', '.join(DTYPES)}"
        )
    return found


def _numpy_name(dtype: Any) -> str:
    try:
        found = np.dtype(dtype)
    except TypeError:
        return str(dtype)
    return "string" if found.kind in "SUO" else found.name


def of_array(array: Any) -> DType:
    """The element type of an array."""
    return as_dtype(array.dtype)
