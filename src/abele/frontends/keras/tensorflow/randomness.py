"""Sources of random numbers: a seed for all, a seed per operation, and a count of draws.

The distributions are TensorFlow's; the numbers are JAX's threefry and, for the order of data, NumPy's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

from abele.errors import AbeleError
from abele.frontends.keras.ipu.running import current
from abele.frontends.keras.private import (
    global_state,
    in_stateless_scope,
    in_symbolic_scope,
    is_in_jax_tracing_scope,
    seed_generator,
)


class FrozenRandomError(AbeleError, ValueError):
    """Random numbers that a compiled step would draw once and for all."""


class _Draws:
    """A key and how many keys were made of it."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.count = 0

    def next(self, seed: int | None) -> Any:
        key = self.key if seed is None else jax.random.fold_in(self.key, int(seed) & 0xFFFFFFFF)
        self.count += 1
        return jax.random.fold_in(key, self.count)


_seed: int | None = None
_all: _Draws | None = None
_traced: ContextVar[_Draws | None] = ContextVar("draws of a function that is being traced", default=None)


def set_seed(seed: int) -> None:
    """Make all random numbers from now on a function of ``seed``: also those of Keras' layers without a seed."""
    global _seed, _all
    _seed, _all = int(seed), None
    seed_generator.python_random = random.Random(_seed)
    global_state.set_global_attribute(seed_generator.GLOBAL_SEED_GENERATOR, None)


def global_seed() -> int | None:
    """The seed that was set."""
    return _seed


def draw_key(seed: int | None = None) -> Any:
    """A key of JAX that nothing had before.

    Args:
        seed: The operation's seed.

    Raises:
        FrozenRandomError: A step of Keras is being compiled, in which the key would be the same for ever.
    """
    global _all
    draws = _traced.get()
    if draws is not None:
        return draws.next(seed)
    if _is_compiled_by_keras():
        # All in the first line: Keras gives no more of an error in a layer.
        raise FrozenRandomError(
            "tf.random in a layer or loss that Keras compiles would give the same numbers in every step; make "
            "self.seed = keras.random.SeedGenerator() in the layer and call keras.random.normal(shape, seed=self.seed)"
        )
    with jax.ensure_compile_time_eval():
        if _all is None:
            entropy = np.random.SeedSequence(_seed).generate_state(1)[0]
            _all = _Draws(jax.random.key(int(entropy)))
        key = _all.next(seed)
        words = jax.random.key_data(key) if current() is not None else None
    # A program's inputs are arrays of numbers.
    return key if words is None else jax.random.wrap_key_data(words)


def _is_compiled_by_keras() -> bool:
    """True while a step is traced: neither while shapes are found, nor in a function that a strategy runs once."""
    return in_stateless_scope() and not in_symbolic_scope() and current() is None and is_in_jax_tracing_scope()


@contextmanager
def drawn_from(key: Any) -> Iterator[_Draws]:
    """Let random numbers depend on a key that a traced function takes; gives the number of draws as ``count``."""
    draws = _Draws(key)
    token = _traced.set(draws)
    try:
        yield draws
    finally:
        _traced.reset(token)


def host_generator(seed: int | None, number: int) -> np.random.Generator:
    """NumPy's generator for the ``number``-th use of something with a seed of its own."""
    if seed is None and _seed is None:
        return np.random.default_rng()
    words = [part & 0xFFFFFFFF for part in (_seed or 0, -1 if seed is None else int(seed), number)]
    return np.random.default_rng(words)
