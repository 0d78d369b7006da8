"""Orders, best elements and indices of extrema, against JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from frontends.jaxpr.jaxpr_kit import captured, check, mostly_slow

DTYPES = [np.float32, np.float16, jnp.bfloat16, np.int32, np.int16, np.int8, np.uint32, np.uint8, np.bool_]
NAMES = [np.dtype(t).name for t in DTYPES]


def mixed(shape, dtype, seed=0):
    """Elements of which many are equal; of floats NaN, infinities and both zeros among them."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(0 if np.dtype(dtype).kind in "ub" else -4, 2 if dtype == np.bool_ else 5, shape)
    made = whole.astype(dtype)
    if np.dtype(dtype).kind not in "iub":
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], np.float32)
        chosen = rng.integers(0, 15, shape)
        made = np.where(chosen < 5, special[np.minimum(chosen, 4)], whole).astype(dtype)
    elif np.dtype(dtype).itemsize == 4:
        made[..., 0] = np.iinfo(dtype).max
        made[..., -1] = np.iinfo(dtype).min
    return made


@pytest.mark.parametrize("name", mostly_slow(NAMES, "float32", "bfloat16", "uint8"))
def test_orders_of_every_type_are_those_of_jax(name):
    dtype = jnp.dtype(name)
    x = mixed((3, 17), dtype)

    def fn(x):
        best, places = lax.top_k(x, 5)
        return [
            jnp.sort(x, axis=0),
            jnp.sort(x),
            jnp.argsort(x),
            best,
            places,
            jnp.argmax(x, axis=1),
            jnp.argmin(x, axis=0),
            lax.argmax(x, 1, np.uint8),
        ]

    check(fn, x)


@pytest.mark.parametrize("dimension", [0, 1, 2])
@pytest.mark.parametrize("keys", [1, 2, 3])
@pytest.mark.parametrize("stable", [True, False])
def test_sorts_with_several_keys_take_the_others_along(dimension, keys, stable):
    shape = (4, 5, 6)
    operands = [mixed(shape, t, seed) for seed, t in enumerate([np.int32, np.float32, np.bool_])]
    payload = [np.arange(120, dtype=np.int32).reshape(shape), np.arange(120, dtype=np.float32).reshape(shape)]

    def fn(*operands):
        made = lax.sort(operands, dimension=dimension, num_keys=keys, is_stable=stable)
        return made if stable or keys == 3 else made[:keys]

    check(fn, *operands, *payload)


def test_top_k_along_any_axis_and_gradients():
    x = mixed((4, 7, 3), np.float32)
    check(lambda x: lax.top_k(x, 3, axis=1), x)
    y = np.random.default_rng(1).normal(size=(5, 9)).astype("f4")
    check(jax.grad(lambda x: (lax.top_k(x, 3)[0] ** 2).sum()), y)
    check(jax.grad(lambda x: (jnp.sort(x, axis=0) * jnp.arange(5.0)[:, None]).sum()), y)
    check(lambda x: lax.approx_max_k(x, 2), y)
    check(lambda x: lax.approx_min_k(x, 2, reduction_dimension=0), y)
    check(lambda x: lax.sort((x, x[:, ::-1]), num_keys=1), y)
    check(jax.grad(lambda x, y: (lax.sort((x, y), num_keys=1)[1] * jnp.arange(9.0)).sum(), (0, 1)), y, y[:, ::-1] * 2)


USERS = {
    "argsort_descending": lambda x: jnp.argsort(x, axis=1, descending=True),
    "lexsort": lambda x: jnp.lexsort((x[0], jnp.round(x[1]))),
    "median": lambda x: jnp.median(x, axis=1),
    "nanmedian": lambda x: jnp.nanmedian(x.at[0, 0].set(jnp.nan), axis=1),
    "percentile": lambda x: jnp.percentile(x, jnp.array([10.0, 55.0, 90.0]), axis=0),
    "quantile_methods": lambda x: [
        jnp.quantile(x, 0.3, method=m) for m in ("linear", "lower", "higher", "nearest", "midpoint")
    ],
    "unique": lambda x: jnp.unique(jnp.round(x), size=6, fill_value=9.0, return_counts=True, return_inverse=True),
    "unique_rows": lambda x: jnp.unique(jnp.round(x / 4), axis=0, size=3),
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x[0]), x, side="right"),
    "searchsorted_sort": lambda x: jnp.searchsorted(jnp.sort(x[0]), x, method="sort"),
    "searchsorted_all": lambda x: jnp.searchsorted(jnp.sort(x[0]), x, method="compare_all", side="right"),
    "digitize": lambda x: jnp.digitize(x, jnp.array([-1.0, 0.0, 1.0]), method="compare_all"),
    "partition": lambda x: jnp.sort(jnp.partition(x, 3, axis=1)[:, :3]),
    "argpartition": lambda x: jnp.sort(jnp.argpartition(x, 3, axis=1)[:, :3]),
    "sort_complex_order": lambda x: jnp.sort(x.astype(jnp.float16), axis=None),
    "nanargmax": lambda x: jnp.nanargmax(x.at[0, 0].set(jnp.nan), axis=1),
    "union1d": lambda x: jnp.union1d(jnp.round(x[0]), jnp.round(x[1]), size=8),
    "isin": lambda x: jnp.isin(jnp.round(x), jnp.array([0.0, 1.0])),
    "setdiff1d": lambda x: jnp.setdiff1d(jnp.round(x[0]), jnp.round(x[1]), size=4, fill_value=7.0),
    "intersect1d": lambda x: jnp.intersect1d(jnp.round(x[0]), jnp.round(x[1]), size=5, fill_value=7.0),
    "rank": lambda x: jax.scipy.stats.rankdata(jnp.round(x[0])),
    "mode": lambda x: jax.scipy.stats.mode(jnp.round(x), axis=1).mode,
}


@pytest.mark.parametrize("name", mostly_slow(USERS, "lexsort", "searchsorted"))
def test_functions_of_jax_numpy_that_order(name):
    x = np.random.default_rng(3).normal(size=(3, 8)).astype("f4") * 2
    check(USERS[name], x)


@pytest.mark.parametrize("method", mostly_slow(["scan", "scan_unrolled", "sort", "compare_all"], "scan"))
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted__by_any_method__is_the_librarys_search(method, side):
    inf, nan = np.inf, np.nan
    row = np.array([-inf, -0.0, 0.0, 1, 2, 2, 3, inf, nan, nan], "f4")
    values = np.array([[2, nan, inf, -inf], [0.0, -0.0, 7, 1.5]], "f4")

    def fn(row, values):
        return jnp.searchsorted(row, values, side=side, method=method)

    check(fn, row, values)
    assert "search" in {op.kind for op in captured(fn, row, values)[0].network.ops}


def test_searchsorted__of_a_users_own__is_read_as_it_is():
    @jax.jit
    def searchsorted(row, values):
        return jnp.zeros(values.shape, jnp.int32) + row.size

    check(searchsorted, np.arange(3.0, dtype="f4"), np.arange(4.0, dtype="f4"))
