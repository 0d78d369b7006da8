"""Sparse arrays: products, sums and conversions, by the definitions that JAX has of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

from frontends.jaxpr.jaxpr_kit import captured, check, mostly_slow

RNG = np.random.default_rng(0)
DENSE = ((RNG.random((6, 5)) < 0.4) * RNG.normal(size=(6, 5))).astype(np.float32)
BCOO = sparse.BCOO.fromdense(DENSE)
X = RNG.normal(size=(5, 3)).astype(np.float32)
TWO = sparse.BCOO.fromdense(np.stack([DENSE, 2 * DENSE]), n_batch=1)
PAIR = np.stack([X, X + 1])

OPERATIONS = {
    "product": (lambda m, x: m @ x, BCOO, X),
    "product with a vector": (lambda m, x: m @ x[:, 0], BCOO, X),
    "product from the right": (lambda m, x: x.T @ m.T, BCOO, X),
    "product of each of a batch": (lambda m, x: jax.vmap(lambda m, x: m @ x)(m, x), TWO, PAIR),
    "product of two sparse ones": (lambda m, x: (m @ m.T).todense(), BCOO, X),
    "sum": (lambda m, x: m.sum(0).todense() + (m + m).todense(), BCOO, X),
    "product with a dense one": (lambda m, x: (m * x[:, 0]).todense(), BCOO, X),
    "order of indices": (lambda m, x: m.T.sort_indices().data, BCOO, X),
    "from a dense one": (lambda m, x: sparse.BCOO.fromdense(m, nse=12).sum_duplicates(nse=12).data, DENSE, X),
    "sparsify": (sparse.sparsify(lambda m, x: jnp.sum(m @ x * 2.0, 0)), BCOO, X),
    "rows": (lambda m, x: m @ x + m.todense() @ x, sparse.BCSR.fromdense(DENSE), X),
    "coordinates": (lambda m, x: m @ x + m.todense() @ x, sparse.COO.fromdense(DENSE), X),
    "compressed rows": (lambda m, x: m @ x + m.todense() @ x, sparse.CSR.fromdense(DENSE), X),
    "nothing": (lambda m, x: m @ x, sparse.BCOO((np.zeros(0, "f4"), np.zeros((0, 2), "i4")), shape=(6, 5)), X),
}


@pytest.mark.parametrize("name", mostly_slow(OPERATIONS, "product", "product of each of a batch", "sum", "rows"))
def test_sparse__operations__are_jaxs(name):
    fn, matrix, x = OPERATIONS[name]
    check(fn, matrix, x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "allowed"), [("f4", 1e-5), ("f2", 4e-3)])
def test_sparse__product_and_gradients__add_rows_up(dtype, allowed):
    def loss(numbers, x):
        return ((sparse.BCOO((numbers, BCOO.indices), shape=BCOO.shape) @ x) ** 2).sum()

    given = BCOO.data.astype(dtype), X.astype(dtype)
    check(jax.grad(loss, argnums=(0, 1)), *given, rtol=allowed, atol=allowed)
    assert "add_rows" in {op.kind for op in captured(loss, *given)[0].network.ops}


def test_sparse__on_the_device__multiplies():
    check(lambda m, x: m @ x, BCOO, X, rtol=1e-5, atol=1e-5, native=True)
