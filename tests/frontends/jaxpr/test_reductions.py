"""Reductions and running operations, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from frontends.jaxpr.jaxpr_kit import check, mostly_slow
from frontends.jaxpr.test_sorting import NAMES, mixed


@pytest.mark.parametrize("name", mostly_slow(NAMES, "float16", "int32", "bool"))
def test_reductions_of_every_type_are_those_of_jax(name):
    dtype = jnp.dtype(name)
    x = np.clip(np.nan_to_num(mixed((3, 4, 5), dtype).astype("f4"), posinf=3, neginf=-3), -3, 3).astype(dtype)

    def fn(x):
        made = [lax.reduce_max(x, (0, 2)), lax.reduce_min(x, (1,)), lax.reduce_max(x, ())]
        if x.dtype != bool:
            made += [lax.reduce_sum(x, (1,)), lax.reduce_prod(x, (0,)), lax.reduce_sum(x, (0, 1, 2))]
        if x.dtype.kind in "iub":
            made += [lax.reduce_and(x, (0,)), lax.reduce_or(x, (0, 1)), lax.reduce_xor(x, (2,))]
        return made

    check(fn, x, rtol=1e-2 if np.dtype(dtype).itemsize == 2 and np.dtype(dtype).kind != "i" else 2e-6)


def test_extrema_with_nan_are_nan():
    x = mixed((4, 30), np.float32)
    check(
        lambda x: [
            jnp.max(x, 1),
            jnp.min(x, 1),
            jnp.argmax(x, 1),
            jnp.argmin(x, 1),
            lax.cummax(x, 1),
            lax.cummin(x, 1),
        ],
        x,
    )


def test_sums_of_integers_wrap():
    x = np.full((9,), 2**31 - 5, np.int32)
    check(lambda x: [jnp.sum(x), jnp.prod(x), jnp.cumsum(x), lax.reduce_sum(x.astype(jnp.int8), (0,))], x)


RUNNING = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("reverse", [False, True])
def test_running_operations_and_their_gradients(name, reverse):
    x = np.random.default_rng(2).normal(size=(4, 6, 3)).astype("f4")
    fn = getattr(lax, name)
    check(lambda x: fn(x, axis=1, reverse=reverse), x)
    check(
        jax.grad(lambda x: (fn(x, axis=1, reverse=reverse) * jnp.arange(18.0).reshape(6, 3)).sum()),
        x,
        rtol=1e-5,
        atol=1e-5,
    )
    if name != "cumlogsumexp":
        check(lambda x: fn(x, axis=0, reverse=reverse), np.arange(-6, 6, dtype=np.int32).reshape(3, 4))


@pytest.mark.parametrize("name", mostly_slow(NAMES[:-1], "bfloat16", "int8"))
def test_running_operations_of_every_type(name):
    dtype = jnp.dtype(name)
    x = np.clip(np.nan_to_num(mixed((3, 9), dtype).astype("f4"), posinf=2, neginf=-2), -2, 2).astype(dtype)
    check(
        lambda x: [lax.cumsum(x, 1), lax.cumprod(x, 0), lax.cummax(x, 1), lax.cummin(x, 0, reverse=True)], x, rtol=1e-2
    )


def test_reductions_with_functions_of_users():
    x = np.random.default_rng(0).integers(-5, 6, (4, 7, 3)).astype(np.int32)

    def best(left, right):
        (a, i), (b, j) = left, right
        first = (a > b) | ((a == b) & (i < j))
        return jnp.where(first, a, b), jnp.where(first, i, j)

    def fn(x):
        places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
        low = jnp.int32(-(2**31))
        return [
            lax.reduce((x, places), (low, jnp.int32(99)), best, (1,)),
            lax.reduce(x, jnp.int32(0), lambda a, b: a + b, (0, 2)),
            lax.reduce(x, jnp.int32(5), lax.max, (0,)),
            lax.reduce(x, jnp.int32(0), lax.bitwise_xor, (0, 1, 2)),
            lax.reduce(x, jnp.int32(1), lambda a, b: (a * b) % 97, (2,)),
            lax.reduce(x, jnp.int32(2), lambda a, b: a + b, ()),
            lax.reduce(x.astype(bool), False, lax.bitwise_xor, (1,)),
            lax.reduce(x.astype(jnp.float32), 0.0, lambda a, b: jnp.maximum(jnp.abs(a), jnp.abs(b)), (1, 2)),
        ]

    check(fn, x)
    # Matrices are multiplied from left to right.
    m = np.random.default_rng(1).normal(size=(4, 5)).astype("f4")

    def affine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    check(lambda m: lax.reduce((m, m * 2), (1.0, 0.0), affine, (1,)), m, rtol=1e-5)


def test_arrays_without_elements():
    empty = np.zeros((0, 3), np.float32)

    def fn(x):
        some = jnp.ones((2, 3))
        return [
            x.sum(0),
            x.prod(0),
            jnp.max(x, axis=0, initial=-2.0),
            x.sum(1),
            jnp.any(x > 0, axis=0),
            jnp.all(x > 0),
            jnp.sort(x, axis=0),
            jnp.cumsum(x, axis=0),
            jnp.concatenate([x, some, x]),
            jnp.pad(x, ((1, 2), (0, 0))),
            x @ jnp.ones((3, 2)),
            x.T @ x,
            x[jnp.zeros((0,), int)],
            some[jnp.zeros((0,), int)],
            some.at[jnp.zeros((0,), int)].add(jnp.zeros((0, 3))),
            jnp.where(x > 0, x, 1.0),
            jnp.nonzero(x, size=2),
            lax.reduce(x, 3.0, lambda a, b: a * b + 1, (0,)),
            jnp.argsort(x, axis=0),
            jnp.reshape(x, (3, 0)),
            jnp.broadcast_to(x[:, :1], (0, 7)),
        ]

    check(fn, empty)


def test_numbers_without_dimensions():
    def fn(x):
        return [
            jnp.sum(x),
            jnp.max(x),
            jnp.cumsum(x),
            jnp.sort(x[None])[0],
            jnp.argmax(x[None]),
            x.at[()].set(2.0),
            x.at[...].add(1.0),
            jnp.reshape(x, (1, 1)),
            lax.reduce(x, 0.0, lax.add, ()),
        ]

    check(fn, np.float32(3.5))


USERS = {
    "mean_var": lambda x: [jnp.mean(x, 0), jnp.var(x, 1, ddof=1), jnp.std(x)],
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x, axis=1),
    "norms": lambda x: [jnp.linalg.norm(x, axis=1), jnp.linalg.norm(x, ord=1, axis=0)],
    "nan": lambda x: [jnp.nansum(x), jnp.nanmean(x.at[0].set(jnp.nan), axis=0), jnp.nanmax(x)],
    "where": lambda x: [jnp.sum(x, where=x > 0), jnp.max(x, axis=0, where=x > 0, initial=0.0)],
    "average": lambda x: jnp.average(x, axis=1, weights=jnp.arange(1.0, 9.0)),
    "ptp": lambda x: jnp.ptp(x, axis=1),
    "count": lambda x: [jnp.count_nonzero(x > 0, axis=0), jnp.sum(x > 0)],
    "trapezoid": lambda x: jnp.trapezoid(x, dx=0.5, axis=1),
    "diff": lambda x: jnp.diff(x, n=2, axis=1),
    "cumulative": lambda x: [jnp.cumsum(x), jnp.cumprod(x, axis=1), jnp.nancumsum(x, axis=0)],
    "corrcoef": lambda x: [jnp.cov(x), jnp.corrcoef(x)],
    "cumulative_sum": lambda x: jnp.cumulative_sum(x, axis=1, include_initial=True),
    "softmax": lambda x: [jax.nn.softmax(x), jax.nn.log_softmax(x, axis=0), jax.nn.standardize(x)],
}


@pytest.mark.parametrize("name", mostly_slow(USERS, "mean_var", "where"))
def test_functions_of_jax_numpy_that_reduce(name):
    x = np.random.default_rng(3).normal(size=(3, 8)).astype("f4")
    check(USERS[name], x, rtol=1e-5, atol=1e-5)


def test_what_depends_on_the_platform_is_what_any_has():
    check(lambda x: jax.lax.platform_dependent(x, tpu=jnp.sin, default=jnp.exp), np.float32(0.5))
