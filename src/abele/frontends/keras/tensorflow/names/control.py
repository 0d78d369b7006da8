"""Names of TensorFlow that call functions: ``tf.function``, conditions, loops, Python's functions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from abele.frontends.keras.ipu.running import current

from ..autograph import with_device_loops
from ..dtypes import as_dtype
from ..structure import flatten, map_structure, pack
from ..tape import GradientTape, custom_gradient
from ..tensors import numpy_of, tensor_of
from .table import NameTable

CONTROL = NameTable()
CONTROL |= {"GradientTape": GradientTape, "custom_gradient": custom_gradient}


class FunctionOfTensors:
    """Result of ``tf.function``: calls the Python function, which a strategy compiles when it runs it.

    Attributes:
        python_function: The function.
        jit_compile: True if the program asked for one compiled program.
        input_signature: Specs of its arguments, if any were given.
    """

    def __init__(self, function: Callable[..., Any], input_signature: Any = None, jit_compile: Any = None) -> None:
        self.python_function = function
        self.input_signature = input_signature
        self.jit_compile = bool(jit_compile)
        functools.update_wrapper(self, function)

    @property
    def device_function(self) -> Callable[..., Any]:
        """The function as programs of the device have it: its loops over tensors are loops there."""
        return with_device_loops(self.python_function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Result of the function."""
        function = self.python_function if current() is None else self.device_function
        return function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        bound = self.python_function.__get__(instance, owner)
        return FunctionOfTensors(bound, self.input_signature, self.jit_compile)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> FunctionOfTensors:
        """The function: it has one form for all arguments."""
        return self


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Any = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    experimental_compile: bool | None = None,
    **_: Any,
) -> Any:
    """``tf.function``: a function of tensors, with or without arguments of the decorator."""
    compiled = jit_compile if jit_compile is not None else experimental_compile

    def wrap(wrapped: Callable[..., Any]) -> FunctionOfTensors:
        return FunctionOfTensors(wrapped, input_signature, compiled)

    return wrap if func is None else wrap(func)


CONTROL["function"] = function


def _is_known(tensor: Any) -> bool:
    return not isinstance(tensor, jax.core.Tracer)


def cond(pred: Any, true_fn: Callable[[], Any] | None = None, false_fn: Any = None, name: str | None = None) -> Any:
    """Result of one of two functions."""
    chosen = tensor_of(pred)
    assert true_fn is not None
    if _is_known(chosen):
        return true_fn() if bool(chosen) else false_fn()
    return jax.lax.cond(chosen, lambda: _tensors(true_fn()), lambda: _tensors(false_fn()))


def _tensors(structure: Any) -> Any:
    return map_structure(tensor_of, structure)


def while_loop(
    cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, maximum_iterations: Any = None, **_: Any
) -> Any:
    """Call ``body`` with what it gave before, as long as ``cond`` of that is true."""
    state = _tensors(tuple(loop_vars))
    most = None if maximum_iterations is None else int(maximum_iterations)
    if all(map(_is_known, flatten(state))):
        done = 0
        while (most is None or done < most) and bool(cond(*state)):
            found = body(*state)
            state, done = tuple(found) if isinstance(found, list | tuple) else (found,), done + 1
        return type(loop_vars)(state) if isinstance(loop_vars, list) else state

    def more(carried: Any) -> Any:
        return jnp.logical_and(cond(*carried[1]), most is None or carried[0] < most)

    def step(carried: Any) -> Any:
        found = body(*carried[1])
        return carried[0] + 1, _tensors(tuple(found) if isinstance(found, list | tuple) else (found,))

    return jax.lax.while_loop(more, step, (0, state))[1]


def map_fn(fn: Callable[..., Any], elems: Any, dtype: Any = None, fn_output_signature: Any = None, **_: Any) -> Any:
    """Results of a function of each row, stacked."""
    rows = _tensors(elems)
    count = flatten(rows)[0].shape[0]
    made = [_tensors(fn(map_structure(lambda leaf, at=at: leaf[at], rows))) for at in range(count)]
    return map_structure(lambda *leaves: jnp.stack(leaves), *made)


def vectorized_map(fn: Callable[..., Any], elems: Any, **_: Any) -> Any:
    """Results of a function of each row, all at once."""
    return jax.vmap(fn)(_tensors(elems))


def _fold(fn: Callable[..., Any], elems: Any, initializer: Any, reverse: bool) -> Any:
    rows = list(tensor_of(elems))
    rows = rows[::-1] if reverse else rows
    state = rows.pop(0) if initializer is None else initializer
    return functools.reduce(fn, rows, state)


def scan(fn: Callable[..., Any], elems: Any, initializer: Any = None, reverse: bool = False, **_: Any) -> Any:
    """Results of a function of the last result and each row, stacked."""
    rows = _tensors(elems)
    count = flatten(rows)[0].shape[0]
    order = range(count)[::-1] if reverse else range(count)
    parts = [map_structure(lambda leaf, at=at: leaf[at], rows) for at in order]
    state = parts.pop(0) if initializer is None else _tensors(initializer)
    made = [state] if initializer is None else []
    for part in parts:
        state = fn(state, part)
        made.append(state)
    return map_structure(lambda *leaves: jnp.stack(leaves), *(made[::-1] if reverse else made))


def _of_types(results: Any, types: Any) -> Any:
    if types is None:
        return None
    if not isinstance(types, list | tuple):
        return tensor_of(results, getattr(types, "dtype", types) if hasattr(types, "shape") else types)
    found = results if isinstance(results, list | tuple) else [results]
    return [tensor_of(leaf, as_dtype(kind)) for leaf, kind in zip(found, types, strict=True)]


def py_function(func: Callable[..., Any], inp: Any, Tout: Any, name: str | None = None) -> Any:
    """Results of a Python function of tensors, as tensors of types."""
    return _of_types(func(*[tensor_of(part) for part in inp]), Tout)


def numpy_function(func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: Any = None) -> Any:
    """Results of a Python function of NumPy arrays, as tensors of types."""
    return _of_types(func(*[numpy_of(tensor_of(part)) for part in inp]), Tout)


class TensorArray:
    """Tensors by their number: what loops write and stack.

    Args:
        dtype: Their type.
        size: Number of tensors.
    """

    def __init__(self, dtype: Any, size: Any = 0, dynamic_size: bool = False, **_: Any) -> None:
        self.dtype = as_dtype(dtype)
        self._parts: list[Any] = [None] * int(size)

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Put a tensor at a number."""
        at = int(index)
        self._parts.extend([None] * (at + 1 - len(self._parts)))
        self._parts[at] = tensor_of(value)
        return self

    def read(self, index: Any, name: str | None = None) -> Any:
        """The tensor of a number."""
        return self._parts[int(index)]

    def stack(self, name: str | None = None) -> Any:
        """All tensors as one: [tensors, ...]."""
        return jnp.stack(self._parts)

    def concat(self, name: str | None = None) -> Any:
        """All tensors one after the other."""
        return jnp.concatenate(self._parts)

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Put the rows of a tensor at their numbers."""
        self._parts = list(tensor_of(value))
        return self

    def size(self, name: str | None = None) -> Any:
        """Number of tensors."""
        return np.int32(len(self._parts))


@contextlib.contextmanager
def _nothing(*args: Any, **kwargs: Any) -> Iterator[Any]:
    yield args[0] if args else None


def _same(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    return function if function is not None else lambda wrapped: wrapped


CONTROL |= {
    "cond": cond,
    "while_loop": while_loop,
    "map_fn": map_fn,
    "vectorized_map": vectorized_map,
    "scan": scan,
    "foldl": lambda fn, elems, initializer=None, **_: _fold(fn, elems, initializer, False),
    "foldr": lambda fn, elems, initializer=None, **_: _fold(fn, elems, initializer, True),
    "py_function": py_function,
    "numpy_function": numpy_function,
    "TensorArray": TensorArray,
    "name_scope": _nothing,
    "device": _nothing,
    "init_scope": _nothing,
    "control_dependencies": _nothing,
    "recompute_grad": lambda f: jax.checkpoint(f),
    "group": lambda *inputs, name=None: None,
    "no_op": lambda name=None: None,
    "executing_eagerly": lambda: True,
    "inside_function": lambda: False,
    "do_not_convert": _same,
}


@CONTROL("switch_case")
def _switch_case(branch_index: Any, branch_fns: Any, default: Any = None, name: str | None = None) -> Any:
    chosen = int(branch_index)
    branches = dict(branch_fns) if isinstance(branch_fns, dict) else dict(enumerate(branch_fns))
    return branches.get(chosen, default or branches[max(branches)])()


@CONTROL("case")
def _case(pred_fn_pairs: Any, default: Any = None, **_: Any) -> Any:
    pairs = pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs
    return next((branch for pred, branch in pairs if bool(pred)), default)()


@CONTROL("tuple")
def _tuple(tensors: Any, **_: Any) -> Any:
    return list(pack(tensors, [tensor_of(leaf) for leaf in flatten(tensors)]))
