"""``tf.random``: JAX's random numbers by TensorFlow's names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..dtypes import as_dtype
from ..randomness import draw_key, set_seed
from ..tensors import narrowed, tensor_of
from .table import NameTable, static_dims

RANDOM = NameTable()
RANDOM["set_seed"] = set_seed


def _uniform(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any) -> Any:
    kind = as_dtype(dtype)
    if kind.is_integer:
        return jax.random.randint(key, shape, minval, maxval, narrowed(kind))
    return jax.random.uniform(key, shape, narrowed(kind), minval, 1.0 if maxval is None else maxval)


@RANDOM("uniform")
def _uniform_of(
    shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", seed: Any = None, name: Any = None
) -> Any:
    return _uniform(draw_key(seed), static_dims(shape), minval, maxval, dtype)


@RANDOM("normal")
def _normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", seed: Any = None, name: Any = None
) -> Any:
    kind = narrowed(as_dtype(dtype))
    return (mean + stddev * jax.random.normal(draw_key(seed), static_dims(shape), kind)).astype(kind)


@RANDOM("truncated_normal")
def _truncated_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", seed: Any = None, name: Any = None
) -> Any:
    kind = narrowed(as_dtype(dtype))
    drawn = jax.random.truncated_normal(draw_key(seed), -2.0, 2.0, static_dims(shape), kind)
    return (mean + stddev * drawn).astype(kind)


@RANDOM("shuffle")
def _shuffle(value: Any, seed: Any = None, name: str | None = None) -> Any:
    return jax.random.permutation(draw_key(seed), tensor_of(value))


@RANDOM("categorical")
def _categorical(logits: Any, num_samples: int, dtype: Any = "int64", seed: Any = None, name: Any = None) -> Any:
    scores = tensor_of(logits)
    drawn = jax.random.categorical(draw_key(seed), scores[:, None], shape=(scores.shape[0], int(num_samples)))
    return drawn.astype(narrowed(as_dtype(dtype or "int64")))


@RANDOM("gamma")
def _gamma(
    shape: Any, alpha: Any, beta: Any = None, dtype: Any = "float32", seed: Any = None, name: str | None = None
) -> Any:
    scale = tensor_of(alpha)
    drawn = jax.random.gamma(draw_key(seed), scale, (*static_dims(shape), *scale.shape), narrowed(as_dtype(dtype)))
    return drawn if beta is None else drawn / tensor_of(beta)


@RANDOM("poisson")
def _poisson(shape: Any, lam: Any, dtype: Any = "float32", seed: Any = None, name: str | None = None) -> Any:
    rate = tensor_of(lam)
    drawn = jax.random.poisson(draw_key(seed), rate, (*static_dims(shape), *rate.shape))
    return drawn.astype(narrowed(as_dtype(dtype)))


def _key_of(seed: Any) -> Any:
    """A key of the two numbers that a stateless function takes."""
    first, second = tensor_of(seed)
    return jax.random.fold_in(jax.random.key(first), second)


@RANDOM("stateless_uniform")
def _stateless_uniform(
    shape: Any, seed: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", name: Any = None, **_: Any
) -> Any:
    return _uniform(_key_of(seed), static_dims(shape), minval, maxval, dtype)


@RANDOM("stateless_normal")
def _stateless_normal(
    shape: Any, seed: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", name: Any = None, **_: Any
) -> Any:
    return mean + stddev * jax.random.normal(_key_of(seed), static_dims(shape), narrowed(as_dtype(dtype)))


class RandomGenerator:
    """``tf.random.Generator``: random numbers with a seed of their own.

    Args:
        seed: The seed; any if it is None.
    """

    def __init__(self, seed: int | None = None) -> None:
        entropy = np.random.SeedSequence(seed).generate_state(1)[0]
        self._key, self._count = jax.random.key(int(entropy)), 0

    @classmethod
    def from_seed(cls, seed: int, alg: Any = None) -> RandomGenerator:
        """A generator with a seed."""
        return cls(int(seed))

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> RandomGenerator:
        """A generator with any seed."""
        return cls()

    def _next(self) -> Any:
        self._count += 1
        return jax.random.fold_in(self._key, self._count)

    def uniform(self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", name: Any = None) -> Any:
        """Numbers of equal probability from ``minval`` up to ``maxval``."""
        return _uniform(self._next(), static_dims(shape), minval, maxval, dtype)

    def normal(self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", name: Any = None) -> Any:
        """Numbers of a normal distribution."""
        return mean + stddev * jax.random.normal(self._next(), static_dims(shape), narrowed(as_dtype(dtype)))

    def make_seeds(self, count: int = 1) -> Any:
        """Seeds for stateless functions: [2, count]."""
        return jax.random.randint(self._next(), (2, count), 0, 2**31 - 1, jnp.int32)


RANDOM["Generator"] = RandomGenerator
_generator: list[RandomGenerator] = []


@RANDOM("get_global_generator")
def _get_global_generator() -> Any:
    if not _generator:
        _generator.append(RandomGenerator())
    return _generator[0]
