"""``tf.keras.backend``: the functions of Keras 2 on tensors, by those of ``tf``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from abele.frontends.keras.lookalike import Lookalike

from ..names.arrays import ARRAYS
from ..names.math import MATH
from ..names.nn import NN
from ..names.random import RANDOM
from ..names.table import NameTable
from ..tensors import numpy_of, tensor_of
from ..variables import Variable

BACKEND = NameTable()
_SAME = {
    "math": "abs exp log sqrt square sin cos tanh round sign pow sigmoid maximum minimum equal not_equal less "
    "less_equal greater greater_equal softplus softsign cumsum cumprod in_top_k l2_normalize",
    "arrays": "cast reshape tile expand_dims squeeze stack zeros ones zeros_like ones_like eye gather one_hot shape "
    "stop_gradient identity constant",
    "nn": "elu softmax relu bias_add",
}
for _names, _table in ((_SAME["math"], MATH), (_SAME["arrays"], ARRAYS), (_SAME["nn"], NN)):
    BACKEND |= {name: _table[name] for name in _names.split()}


def _reduction(name: str) -> Callable[..., Any]:
    def call(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        tensor = tensor_of(x)
        real = name in ("reduce_mean", "reduce_std", "reduce_variance") and not jnp.issubdtype(
            tensor.dtype, jnp.inexact
        )
        return MATH[name](tensor.astype(keras.backend.floatx()) if real else tensor, axis, keepdims)

    return call


for _name, _function in {
    "mean": "reduce_mean",
    "sum": "reduce_sum",
    "prod": "reduce_prod",
    "max": "reduce_max",
    "min": "reduce_min",
    "std": "reduce_std",
    "var": "reduce_variance",
    "any": "reduce_any",
    "all": "reduce_all",
    "logsumexp": "reduce_logsumexp",
}.items():
    BACKEND(_name)(_reduction(_function))


@BACKEND("argmax")
def _argmax(x: Any, axis: int = -1) -> Any:
    return MATH["argmax"](x, axis)


@BACKEND("argmin")
def _argmin(x: Any, axis: int = -1) -> Any:
    return MATH["argmin"](x, axis)


@BACKEND("clip")
def _clip(x: Any, min_value: Any, max_value: Any) -> Any:
    return MATH["clip_by_value"](x, min_value, max_value)


@BACKEND("concatenate")
def _concatenate(tensors: Any, axis: int = -1) -> Any:
    return ARRAYS["concat"](tensors, axis)


@BACKEND("transpose")
def _transpose(x: Any) -> Any:
    return ARRAYS["transpose"](x)


@BACKEND("permute_dimensions")
def _permute(x: Any, pattern: Any) -> Any:
    return ARRAYS["transpose"](x, pattern)


@BACKEND("flatten")
def _flatten(x: Any) -> Any:
    return tensor_of(x).reshape(-1)


@BACKEND("batch_flatten")
def _batch_flatten(x: Any) -> Any:
    tensor = tensor_of(x)
    return tensor.reshape(tensor.shape[0], -1)


@BACKEND("repeat")
def _repeat(x: Any, n: int) -> Any:
    return jnp.repeat(tensor_of(x)[:, None], n, 1)


@BACKEND("repeat_elements")
def _repeat_elements(x: Any, rep: int, axis: int) -> Any:
    return jnp.repeat(tensor_of(x), rep, axis)


@BACKEND("reverse")
def _reverse(x: Any, axes: Any) -> Any:
    return ARRAYS["reverse"](x, axes)


@BACKEND("dot")
def _dot(x: Any, y: Any) -> Any:
    return jnp.dot(tensor_of(x), tensor_of(y))


@BACKEND("batch_dot")
def _batch_dot(x: Any, y: Any, axes: Any = None) -> Any:
    first, second = tensor_of(x), tensor_of(y)
    along = (first.ndim - 1, max(second.ndim - 2, 1)) if axes is None else axes
    left, right = (along, along) if isinstance(along, int) else along
    made = jax.vmap(lambda a, b: jnp.tensordot(a, b, ((left - 1,), (right - 1,))))(first, second)
    return made[:, None] if made.ndim == 1 else made


@BACKEND("hard_sigmoid")
def _hard_sigmoid(x: Any) -> Any:
    return jnp.clip(0.2 * tensor_of(x) + 0.5, 0.0, 1.0)


@BACKEND("dropout")
def _dropout(x: Any, level: float, noise_shape: Any = None, seed: Any = None) -> Any:
    return NN["dropout"](x, level, noise_shape, seed)


@BACKEND("switch")
def _switch(condition: Any, then_expression: Any, else_expression: Any) -> Any:
    first, second = (part() if callable(part) else part for part in (then_expression, else_expression))
    chosen = tensor_of(condition)
    missing = max(jnp.ndim(first) - chosen.ndim, 0)
    return jnp.where(chosen.reshape(*chosen.shape, *[1] * missing), first, second)


@BACKEND("categorical_crossentropy")
def _categorical_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
    return keras.ops.categorical_crossentropy(tensor_of(target), tensor_of(output), from_logits, axis)


@BACKEND("sparse_categorical_crossentropy")
def _sparse_crossentropy(target: Any, output: Any, from_logits: bool = False, axis: int = -1) -> Any:
    return keras.ops.sparse_categorical_crossentropy(tensor_of(target), tensor_of(output), from_logits, axis)


@BACKEND("binary_crossentropy")
def _binary_crossentropy(target: Any, output: Any, from_logits: bool = False) -> Any:
    return keras.ops.binary_crossentropy(tensor_of(target), tensor_of(output), from_logits)


def _random(name: str, first: str, second: str) -> Callable[..., Any]:
    def call(shape: Any, *args: Any, dtype: Any = None, seed: Any = None, **kwargs: Any) -> Any:
        kwargs |= dict(zip((first, second), args, strict=False))
        return RANDOM[name](shape, dtype=dtype or keras.backend.floatx(), seed=seed, **kwargs)

    return call


BACKEND |= {
    "random_normal": _random("normal", "mean", "stddev"),
    "random_uniform": _random("uniform", "minval", "maxval"),
    "truncated_normal": _random("truncated_normal", "mean", "stddev"),
}


def _variable(value: Any, dtype: Any = None, name: str | None = None, constraint: Any = None) -> Any:
    return Variable(value, dtype=dtype or keras.backend.floatx(), name=name)


def _set_value(x: Any, value: Any) -> None:
    if not isinstance(x, keras.Variable):
        raise TypeError(f"set_value of a {type(x).__name__}: a variable is needed, such as optimizer.learning_rate")
    x.assign(np.asarray(value))


def _set_values(tuples: Any) -> None:
    for variable, value in tuples:
        _set_value(variable, value)


def _update(x: Any, new_x: Any) -> Any:
    x.assign(tensor_of(new_x))
    return x


BACKEND |= {
    "variable": _variable,
    "get_value": numpy_of,
    "eval": numpy_of,
    "set_value": _set_value,
    "batch_get_value": lambda tensors: [numpy_of(tensor) for tensor in tensors],
    "batch_set_value": _set_values,
    "update": _update,
    "update_add": lambda x, increment: _update(x, tensor_of(x) + increment),
    "update_sub": lambda x, decrement: _update(x, tensor_of(x) - decrement),
    "int_shape": lambda x: tuple(x.shape),
    "ndim": lambda x: len(x.shape),
    "dtype": lambda x: keras.backend.standardize_dtype(x.dtype),
    "cast_to_floatx": lambda x: np.asarray(x, keras.backend.floatx()),
    "count_params": lambda x: int(np.prod(x.shape)),
    "learning_phase": lambda: 0,
    "set_learning_phase": lambda value: None,
    "in_train_phase": lambda x, alt, training=None: (
        (x if training else alt)() if callable(x) else x if training else alt
    ),
    "print_tensor": lambda x, message="", summarize=3: print(message, np.asarray(x)) or x,
    "is_keras_tensor": keras.backend.is_keras_tensor,
    "name_scope": keras.name_scope,
}
_REFUSED = {
    "get_session": "programs of TensorFlow 2 have no sessions",
    "set_session": "programs of TensorFlow 2 have no sessions",
    "function": "a keras.Model of the same inputs and outputs",
    "gradients": "tf.GradientTape",
    "placeholder": "keras.Input",
    "rnn": "keras.layers.RNN",
    "conv2d": "tf.nn.conv2d",
    "pool2d": "tf.nn.max_pool2d",
    "ctc_batch_cost": "keras.losses.CTC",
    "ctc_decode": "keras.ops.ctc_decode",
}


def backend(name: str) -> Lookalike:
    """The module under a name."""
    return Lookalike(name, BACKEND, keras.backend, _REFUSED)
