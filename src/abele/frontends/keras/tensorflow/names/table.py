"""Tables of TensorFlow's functions by name: each takes tensors, numbers, arrays, variables and symbolic tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import keras
import numpy as np

from abele.frontends.keras.private import auto_name

from ..dtypes import DType
from ..shapes import TensorShape
from ..structure import flatten, pack
from ..tensors import StringTensor, tensor_of

Function = Callable[..., Any]


class NameTable(dict[str, Any]):
    """Functions and other things by TensorFlow's name.

    ``@TABLE("concat", "compat.concat")`` adds a function under names.
    """

    def __call__(self, *names: str) -> Callable[[Function], Function]:
        """Add a function under names."""

        def add(function: Function) -> Function:
            made = symbolic(function, names[0])
            self.update(dict.fromkeys(names, made))
            return made

        return add

    def unary(self, **functions: Function) -> None:
        """Add functions of one tensor."""
        for name, function in functions.items():
            self(name.rstrip("_"))(_unary(function))

    def binary(self, **functions: Function) -> None:
        """Add functions of two tensors of one type."""
        for name, function in functions.items():
            self(name.rstrip("_"))(_binary(function))


def _unary(function: Function) -> Function:
    def call(x: Any, name: str | None = None) -> Any:
        return function(tensor_of(x))

    return call


def _binary(function: Function) -> Function:
    def call(x: Any, y: Any, name: str | None = None) -> Any:
        return function(*alike(x, y))

    return call


def alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands of one type: numbers and lists take the type of the tensor beside them."""
    if _is_typed(x) == _is_typed(y):
        return tensor_of(x), tensor_of(y)
    if _is_typed(x):
        first = tensor_of(x)
        return first, _like(y, first)
    second = tensor_of(y)
    return _like(x, second), second


def _is_typed(x: Any) -> bool:
    return hasattr(x, "dtype")


def _like(value: Any, tensor: Any) -> Any:
    if tensor.dtype == object:
        return StringTensor(value)
    if isinstance(value, float) and not jnp.issubdtype(tensor.dtype, jnp.inexact):
        return tensor_of(value)
    return jnp.asarray(value, tensor.dtype)


class TensorFlowOperation(keras.Operation):  # type: ignore[misc]
    """A function of TensorFlow in a functional model of Keras.

    Args:
        function: The function.
        name: Its name.
        arguments: A pair of its positional arguments and those by name; symbolic tensors in them are operands.
    """

    def __init__(self, function: Function, name: str, arguments: Any) -> None:
        super().__init__(name=auto_name(name))
        self._function, self._arguments = function, arguments

    def call(self, *operands: Any) -> Any:
        """The result with tensors in the place of the symbolic ones."""
        given = iter(operands)
        leaves = [next(given) if _is_symbolic(leaf) else leaf for leaf in flatten(self._arguments)]
        args, kwargs = pack(self._arguments, leaves)
        return self._function(*args, **kwargs)


def _is_symbolic(leaf: Any) -> bool:
    return isinstance(leaf, keras.KerasTensor)


def symbolic(function: Function, name: str) -> Function:
    """A function that is a part of a model where an argument is a symbolic tensor of Keras."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        operands = [leaf for leaf in flatten((args, kwargs)) if _is_symbolic(leaf)]
        if operands:
            return TensorFlowOperation(function, name, (args, kwargs))(*operands)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


class ShapeVector(np.ndarray[Any, Any]):
    """The dims of a tensor as numbers that are known: what ``tf.shape`` gives."""

    def numpy(self) -> Any:
        """The dims as a NumPy array."""
        return np.asarray(self)


def shape_vector(x: Any, dtype: Any = "int32") -> Any:
    """The dims of a tensor; of a symbolic one, None where a dim is not known."""
    if isinstance(x, keras.KerasTensor):
        return TensorShape(x.shape)
    shape = x.shape if hasattr(x, "shape") else tensor_of(x).shape
    if not all(isinstance(dim, int) for dim in shape):  # Dims that JAX knows by a name alone, while Keras finds shapes.
        return tuple(shape)
    return np.asarray(tuple(shape), np.dtype(dtype.name if isinstance(dtype, DType) else dtype)).view(ShapeVector)


def static_dims(shape: Any) -> tuple[int, ...]:
    """Dims as numbers, -1 where one is not known."""
    if isinstance(shape, TensorShape):
        return tuple(-1 if dim is None else dim for dim in shape)
    if isinstance(shape, jax.Array | np.ndarray):
        return tuple(np.asarray(shape).reshape(-1).tolist())
    parts = shape if isinstance(shape, list | tuple) else [shape]
    return tuple(-1 if dim is None else dim if is_dynamic(dim) else int(dim) for dim in parts)


def is_dynamic(dim: Any) -> bool:
    """True for a dim that JAX knows by a name alone."""
    return bool(jax.export.is_symbolic_dim(dim))


def axes(axis: Any) -> Any:
    """Dims that are reduced: None for all, a number, or a tuple of them."""
    if axis is None or isinstance(axis, int):
        return axis
    found = np.asarray(axis).tolist()
    return tuple(found) if isinstance(found, list) else found
