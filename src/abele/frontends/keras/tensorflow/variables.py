"""``tf.Variable``: a variable of Keras by TensorFlow's arguments."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np

from .dtypes import as_dtype
from .shapes import TensorShape
from .tensors import Tensor, narrowed, tensor_of


class _VariableKind(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, keras.Variable)


class Variable(keras.Variable, metaclass=_VariableKind):  # type: ignore[misc]
    """A tensor that is assigned; ``isinstance(x, tf.Variable)`` is True of the weights of Keras' models, too.

    Args:
        initial_value: Its first value, or a function that gives it.
        trainable: True if optimisers change it; by default if it is of real numbers.
        dtype: Its type; by default that of the value.
        name: Its name.
        shape: Its dims; by default those of the value.
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        dtype: Any = None,
        shape: Any = None,
        **_: Any,
    ) -> None:
        value = tensor_of(initial_value() if callable(initial_value) else initial_value, dtype)
        kind = value.dtype if dtype is None else narrowed(as_dtype(dtype))
        super().__init__(
            value,
            dtype=str(kind),
            trainable=trainable is not False,
            autocast=False,
            name=(name or "Variable").replace("/", "_"),
        )

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Give it another value.

        Returns:
            The variable.
        """
        super().assign(tensor_of(value).astype(self.dtype))
        return self

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add to it.

        Returns:
            The variable.
        """
        return self.assign(self.value + tensor_of(delta).astype(self.dtype))

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract from it.

        Returns:
            The variable.
        """
        return self.assign(self.value - tensor_of(delta).astype(self.dtype))

    def numpy(self) -> Any:
        """Its value as a NumPy array, or a scalar of NumPy."""
        return np.asarray(self.value)[()]

    def read_value(self) -> Any:
        """Its value as a tensor."""
        return self.value

    def initialized_value(self) -> Any:
        """Its value as a tensor."""
        return self.value

    def get_shape(self) -> TensorShape:
        """Its dims."""
        return TensorShape(self.shape)

    def __hash__(self) -> int:
        return id(self)


class VariableModule:
    """``tf.Module``: an object whose attributes may be variables and other modules.

    Args:
        name: Its name.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name or type(self).__name__.lower()

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def variables(self) -> tuple[Any, ...]:
        """All variables of it and of the modules in it."""
        return tuple(_variables_of(self, set()))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Variables that optimisers change."""
        return tuple(variable for variable in self.variables if variable.trainable)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The modules in it."""
        return tuple(part for part in _parts(vars(self)) if isinstance(part, VariableModule | keras.Layer))

    @classmethod
    def with_name_scope(cls, method: Any) -> Any:
        """The method itself."""
        return method


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for key in sorted(value, key=str) for part in _parts(value[key])]
    return [part for item in value for part in _parts(item)] if isinstance(value, list | tuple) else [value]


def _variables_of(module: Any, seen: set[int]) -> list[Any]:
    found = []
    for part in _parts(vars(module)):
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, keras.Variable):
            found.append(part)
        elif isinstance(part, keras.Layer):
            found.extend(variable for variable in part.variables if id(variable) not in seen)
            seen.update(map(id, part.variables))
        elif isinstance(part, VariableModule):
            found.extend(_variables_of(part, seen))
    return found


def is_tensor(x: Any) -> bool:
    """True for tensors and variables."""
    return isinstance(x, Tensor | keras.Variable | keras.KerasTensor | jax.core.Tracer)
