"""Compiled functions in the middle of JAX's own traces: ``jax.jit``, ``grad`` or ``vmap`` over one of ours.

XLA calls the host, which runs our program; of a mapped batch one example after the other. Gradients are a program of
their own, made of ``jax.vjp`` of the function, so one gradient costs a forward pass more than ``jit(grad(fn))``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from abele.frontends.jaxpr import is_key

Compile = Callable[[Callable[..., Any], Sequence[Any]], Callable[..., Any]]
"""Compiles a function of flat arrays for the types of some."""


def call_from_jax(fn: Callable[..., Any], leaves: Sequence[Any], compile: Compile) -> Any:
    """Results of a function that JAX is tracing the caller of.

    Args:
        fn: Function of the leaves.
        leaves: Arrays, tracers and numbers.
        compile: Compiles a function for types of arguments.
    """
    results = jax.eval_shape(fn, *leaves)
    types, tree = jax.tree.flatten(results)
    words = [_words(leaf) for leaf in leaves]
    keys = [leaf.dtype if _has_key(leaf) else None for leaf in leaves]

    def flat(*given: Any) -> list[Any]:
        return [_words(leaf) for leaf in jax.tree.leaves(fn(*map(_key, given, keys)))]

    made = _on_host(flat, words, compile)
    found = [_key(leaf, t.dtype if is_key(t.dtype) else None) for leaf, t in zip(made, types, strict=True)]
    return tree.unflatten(found)


def _on_host(flat: Callable[..., list[Any]], leaves: Sequence[Any], compile: Compile) -> list[Any]:
    types = jax.eval_shape(flat, *leaves)
    program = compile(flat, leaves)
    floats = [n for n, leaf in enumerate(leaves) if _is_float(leaf)]

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def function(*given: Any) -> Any:
        return _host_call(program, types, given)

    def forward(*given: Any) -> Any:
        return function(*given), given

    def backward(given: Sequence[Any], flowing: Sequence[Any]) -> Any:
        def pulled(*values: Any) -> list[Any]:
            every, gradients = values[: len(given)], iter(values[len(given) :])

            def of_floats(*some: Any) -> list[Any]:
                mixed = dict(zip(floats, some, strict=True))
                return flat(*(mixed.get(n, v) for n, v in enumerate(every)))

            _, pull = jax.vjp(of_floats, *(every[n] for n in floats))
            zero = jax.dtypes.float0
            return list(pull([next(gradients) if _is_float(t) else np.zeros(t.shape, zero) for t in types]))

        values = [*given, *(g for g, t in zip(flowing, types, strict=True) if _is_float(t))]
        wanted = [jax.ShapeDtypeStruct(np.shape(given[n]), jax.dtypes.result_type(given[n])) for n in floats]
        made = dict(zip(floats, _host_call(compile(pulled, values), wanted, values), strict=True))
        return tuple(made.get(n) for n in range(len(given)))

    function.defvjp(forward, backward)
    return list(function(*leaves))


def _host_call(program: Callable[..., Any], types: Sequence[Any], given: Sequence[Any]) -> Any:
    def called(*arrays: Any) -> Any:
        return [np.asarray(a) for a in program(*(np.asarray(a) for a in arrays))]

    return jax.pure_callback(called, list(types), *given, vmap_method="sequential")


def _has_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and is_key(leaf.dtype)


def _words(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _has_key(leaf) else leaf


def _key(leaf: Any, dtype: Any) -> Any:
    return leaf if dtype is None else jax.random.wrap_key_data(leaf, impl=dtype._impl.name)


def _is_float(leaf: Any) -> bool:
    return bool(jax.dtypes.issubdtype(jax.dtypes.result_type(leaf), np.floating))
