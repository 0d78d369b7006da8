"""Eager tensors are JAX arrays, so that Keras and JAX take them as they are; strings have a class of their own.

TensorFlow's tensors have methods that JAX arrays lack: ``numpy()``, ``get_shape()``. :func:`extend_arrays` adds those.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from abele.errors import InvalidOptionError, TypeMismatchError

from .dtypes import DTYPES, DType, as_dtype
from .shapes import TensorShape

Array = npt.NDArray[Any]


class StringTensor:
    """A tensor of strings: bytes in a NumPy array of objects.

    Args:
        values: The strings: [...] of bytes or str.
    """

    def __init__(self, values: Any) -> None:
        array = np.asarray(values, dtype=object)
        self._values: Array = np.empty(array.shape, object)
        flat = self._values.reshape(-1)
        flat[:] = [cell if isinstance(cell, bytes) else str(cell).encode() for cell in array.reshape(-1)]
        self._values = flat.reshape(array.shape)

    @property
    def shape(self) -> TensorShape:
        """The dims."""
        return TensorShape(self._values.shape)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return self._values.ndim

    @property
    def dtype(self) -> DType:
        """``tf.string``."""
        return DTYPES["string"]

    def numpy(self) -> Any:
        """The strings: bytes for a scalar, else an array of bytes."""
        return self._values[()] if self._values.ndim == 0 else self._values

    def get_shape(self) -> TensorShape:
        """The dims."""
        return self.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self._values if dtype in (None, object) else self._values.astype(dtype)

    def __getitem__(self, key: Any) -> StringTensor:
        return StringTensor(self._values[key])

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Any:
        return (StringTensor(cell) for cell in self._values)

    def __eq__(self, other: object) -> Any:
        return jnp.asarray(np.asarray(self._values == StringTensor(other)._values, bool))

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    def __add__(self, other: Any) -> StringTensor:
        return StringTensor(self._values + StringTensor(other)._values)

    def __radd__(self, other: Any) -> StringTensor:
        return StringTensor(other) + self

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<tf.Tensor: shape={self.shape}, dtype=string, numpy={self.numpy()!r}>"


class _TensorKind(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, jax.Array | StringTensor)


class Tensor(metaclass=_TensorKind):
    """Class of JAX arrays, traced ones and tensors of strings in ``isinstance(x, tf.Tensor)``."""


def tensor_of(value: Any, dtype: Any = None) -> Any:
    """A tensor with the values of an array, a number, a string or a list of them.

    Raises:
        TypeMismatchError: The values are of no element type.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(value, StringTensor):
        return value
    if hasattr(value, "__jax_array__") or isinstance(value, jax.Array):
        array = jnp.asarray(value)
        return array if wanted is None or array.dtype == wanted.dtype else array.astype(narrowed(wanted))
    if isinstance(value, list | tuple) and any(isinstance(leaf, jax.Array) for leaf in _leaves(value)):
        return jnp.stack([tensor_of(part, dtype) for part in value])
    found = host_array(value, wanted)
    return StringTensor(found) if found.dtype == object else jnp.asarray(found, dtype=narrowed(as_dtype(found.dtype)))


def host_array(value: Any, dtype: DType | None = None) -> Array:
    """NumPy's array of a value in TensorFlow's types: Python's floats have 32 bits, its integers too if they fit.

    Raises:
        TypeMismatchError: The values are of no element type.
    """
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        array = _of_python(value)
    if array.dtype.kind in "SUO":
        return _strings(array, value)
    return array if dtype is None or array.dtype == dtype.dtype else _cast(array, dtype)


def _of_python(value: Any) -> Array:
    first = next(iter(_leaves(value)), None)
    if isinstance(first, str | bytes):  # NumPy's type for bytes would drop zeros at their end.
        return np.asarray(value, dtype=object)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidOptionError(
            f"a list of lists of different lengths is no tensor: {error}", remedy="pad them to one length"
        ) from error
    if isinstance(first, np.ndarray | np.generic):
        return array
    if array.dtype == np.float64:
        return array.astype(np.float32)
    if array.dtype == np.int64 and (array.size == 0 or np.abs(array).max() < 2**31):
        return array.astype(np.int32)
    return array.astype(np.complex64) if array.dtype == np.complex128 else array


def _leaves(value: Any) -> Any:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _strings(array: Array, value: Any) -> Array:
    cells = array.reshape(-1)
    if not all(isinstance(cell, str | bytes) for cell in cells):
        raise TypeMismatchError(
            f"{type(value).__name__} cannot be made a tensor", because=f"its elements are of {array.dtype}"
        )
    made: Array = np.empty(len(cells), object)
    made[:] = [bytes(cell) if isinstance(cell, bytes) else str(cell).encode() for cell in cells]
    return made.reshape(array.shape)


def _cast(array: Array, dtype: DType) -> Array:
    if dtype.is_integer and array.dtype.kind == "f" and array.size and not (array == np.trunc(array)).all():
        raise TypeMismatchError(f"values with fractions are no tensor of {dtype.name}", remedy="tf.cast")
    return array.astype(dtype.dtype)


_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}


def narrowed(dtype: DType) -> Any:
    """NumPy's type of tensors of a type: 32 bits where the machine has no 64, except while 64 are on."""
    if jax.config.jax_enable_x64:
        return dtype.dtype
    return np.dtype(_NARROW.get(dtype.name, dtype.dtype))


def numpy_of(tensor: Any) -> Any:
    """The values of a tensor, or of what can be made one: an array, or bytes for a scalar string."""
    if isinstance(tensor, StringTensor):
        return tensor.numpy()
    if isinstance(tensor, jax.Array):
        return np.asarray(tensor)
    if hasattr(tensor, "numpy"):
        return np.asarray(tensor.numpy())
    found = host_array(tensor)
    return found[()] if found.dtype == object and found.ndim == 0 else found


def is_string(tensor: Any) -> bool:
    """True for strings and tensors of them."""
    return isinstance(tensor, str | bytes | StringTensor) or getattr(getattr(tensor, "dtype", None), "kind", "") == "O"


def _numpy(self: Any) -> Any:
    """The values: a NumPy array, or a scalar of NumPy."""
    return np.asarray(self)[()]


def _get_shape(self: Any) -> TensorShape:
    """The dims."""
    return TensorShape(self.shape)


def _set_shape(self: Any, shape: Any) -> None:
    """Do nothing if the tensor has this shape, as far as it is known."""
    TensorShape(shape).assert_is_compatible_with(self.shape)


def _ref(self: Any) -> Any:
    """Something that hashes, and is equal for the same tensor alone."""
    return TensorReference(self)


class TensorReference:
    """A tensor as the key of a dict."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def deref(self) -> Any:
        """The tensor."""
        return self._tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorReference) and self._tensor is other._tensor

    def __hash__(self) -> int:
        return id(self._tensor)


_ADDED = {"numpy": _numpy, "get_shape": _get_shape, "set_shape": _set_shape, "ref": _ref}
_TRACED = ("get_shape", "set_shape", "ref")
"""Methods of traced tensors, which have no values."""


def extend_arrays() -> None:
    """Add to JAX arrays, and to Keras' symbolic ones, the methods of TensorFlow's tensors that they lack.

    Nothing that they have is changed.
    """
    import keras

    array = type(jnp.zeros(()))
    for name, function in _ADDED.items():
        for kind in (array, jax.core.Tracer, keras.KerasTensor, keras.Variable):
            if (kind is array or name in _TRACED) and not hasattr(kind, name):
                setattr(kind, name, function)
