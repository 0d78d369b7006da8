"""jnp.linalg and jax.scipy.linalg against JAX, with gradients."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as sla
import numpy as np
import pytest
from jax import lax

from abele.errors import UnsupportedOpError
from frontends.jaxpr.jaxpr_kit import captured, check, mostly_slow

RNG = np.random.default_rng(0)
SQUARE = RNG.normal(size=(2, 4, 4)).astype("f4") + 4 * np.eye(4, dtype="f4")
POSITIVE = SQUARE @ SQUARE.transpose(0, 2, 1)
TALL, WIDE = (RNG.normal(size=shape).astype("f4") for shape in ((2, 5, 3), (2, 3, 5)))
SIDES = RNG.normal(size=(2, 4, 3)).astype("f4")


def recomposed(factors):
    """U·diag σ·Vᵀ, which has no signs to choose."""
    u, s, v = factors
    return (u[..., : s.shape[-1]] * s[..., None, :]) @ v[..., : s.shape[-1], :]


def of_symmetric(function):
    """A function of a symmetric matrix by its eigenvalues."""

    def fn(a):
        w, v = jnp.linalg.eigh(a)
        return (v * function(w)[..., None, :]) @ v.swapaxes(-1, -2)

    return fn


DIFFERENTIABLE = {
    "cholesky": (jnp.linalg.cholesky, POSITIVE),
    "inv": (jnp.linalg.inv, SQUARE),
    "solve": (jnp.linalg.solve, SQUARE, SIDES),
    "det": (jnp.linalg.det, SQUARE),
    "slogdet": (lambda a: jnp.linalg.slogdet(a)[1], SQUARE),
    "qr": (jnp.linalg.qr, TALL),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), TALL),
    "svd": (lambda a: recomposed(jnp.linalg.svd(a, full_matrices=False)), TALL),
    "eigenvalues": (jnp.linalg.eigvalsh, POSITIVE),
    "eigh": (of_symmetric(lambda w: jnp.exp(-w)), POSITIVE),
    "solve_triangular": (lambda a, b: sla.solve_triangular(a[0], b[0], lower=True), SQUARE, SIDES),
    "lu": (lambda a: sla.lu(a[0])[1:], SQUARE),
    "cho_solve": (lambda a, b: sla.cho_solve(sla.cho_factor(a[0]), b[0]), POSITIVE, SIDES),
    "pinv": (jnp.linalg.pinv, TALL),
}
PLAIN = {
    "complete qr": (lambda a: jnp.linalg.qr(a, mode="complete"), TALL),
    "wide qr": (jnp.linalg.qr, WIDE),
    "raw qr": (lambda a: jnp.linalg.qr(a, mode="raw"), TALL),
    "full svd": (lambda a: recomposed(jnp.linalg.svd(a)), TALL),
    "wide svd": (lambda a: recomposed(jnp.linalg.svd(a, full_matrices=False)), WIDE),
    "upper eigh": (lambda a: lax.linalg.eigh(a, lower=False, symmetrize_input=False)[1], SQUARE),
    "transposed solve": (lambda a, b: sla.solve_triangular(a[0], b[0], trans=1), SQUARE, SIDES),
    "unit solve": (lambda a, b: sla.solve_triangular(a[0], b[0], unit_diagonal=True), SQUARE, SIDES),
    "right solve": (
        lambda a, b: lax.linalg.triangular_solve(a, b.swapaxes(-1, -2), left_side=False, lower=True),
        SQUARE,
        SIDES,
    ),
    "right transposed solve": (
        lambda a, b: lax.linalg.triangular_solve(a, b.swapaxes(-1, -2), left_side=False, transpose_a=True),
        SQUARE,
        SIDES,
    ),
    "lu_factor": (lambda a: sla.lu_factor(a[0]), SQUARE),
    "tall lu": (lax.linalg.lu, TALL),
    "wide lu": (lax.linalg.lu, WIDE),
    "pivots": (lambda a: lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(a)[1], 5), TALL),
    "lstsq": (lambda a, b: jnp.linalg.lstsq(a[0], b[0, :, :2])[0], TALL, WIDE.transpose(0, 2, 1)),
    "rank": (jnp.linalg.matrix_rank, TALL),
    "cond": (jnp.linalg.cond, SQUARE),
    "norm": (lambda a: jnp.linalg.norm(a[0], "nuc"), SQUARE),
    "power": (lambda a: jnp.linalg.matrix_power(a, -2), SQUARE),
    "ormqr": (lambda a, c: lax.linalg.ormqr(*_reflections(a[0]), c[0], transpose=True), TALL, WIDE.transpose(0, 2, 1)),
    "product of reflections": (lambda a: lax.linalg.householder_product(*_reflections(a[0])), TALL),
    "symmetric product": (
        lambda a, c: lax.linalg.symmetric_product(a, c, alpha=2.0, beta=0.5, symmetrize_output=False),
        SQUARE,
        POSITIVE,
    ),
    "polar": (lambda a: sla.polar(a[0], method="svd"), SQUARE),
}
LOOPS = {
    "hessenberg": (lax.linalg.hessenberg, SQUARE),
    "tridiagonal": (lax.linalg.tridiagonal, POSITIVE),
    "upper tridiagonal": (lambda a: lax.linalg.tridiagonal(a, lower=False), POSITIVE),
    "pivoted qr": (lambda a: sla.qr(a[0], pivoting=True, mode="economic"), TALL),
    "cholesky update": (lambda a, b: lax.linalg.cholesky_update(jnp.triu(a[0]), b[0, :, 0]), SQUARE, SIDES),
    "tridiagonal solve": (
        lambda a, b: lax.linalg.tridiagonal_solve(*_diagonals(a[0]), b[0]),
        SQUARE,
        SIDES,
    ),
    "expm": (lambda a: sla.expm(a[0] * 0.1), SQUARE),
}


def _reflections(a):
    packed, factors = jnp.linalg.qr(a, mode="raw")
    return packed.T, factors


def _diagonals(a):
    rows = jnp.arange(4)
    below, above = jnp.where(rows > 0, a[0], 0.0), jnp.where(rows < 3, a[1], 0.0)
    return below * 0.2, 4.0 + a[2] * 0.2, above * 0.2


def gradient(fn, *args):
    def total(*args):
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(fn(*args)))

    return jax.grad(total, tuple(range(len(args))))


@pytest.mark.parametrize("name", mostly_slow(DIFFERENTIABLE, "cholesky", "det", "qr", "solve_triangular"))
def test_function_and_its_gradient__are_those_of_jax(name):
    fn, *args = DIFFERENTIABLE[name]
    check(fn, *args, rtol=2e-3, atol=2e-3)
    check(gradient(fn, *args), *args, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", mostly_slow(PLAIN, "wide qr", "unit solve", "tall lu", "lstsq"))
def test_function__is_that_of_jax(name):
    fn, *args = PLAIN[name]
    check(fn, *args, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", mostly_slow(LOOPS, "hessenberg", "tridiagonal solve"))
def test_function_by_a_loop__is_that_of_jax(name):
    fn, *args = LOOPS[name]
    check(fn, *args, rtol=1e-4, atol=1e-4)


def test_solve_by_triangles__compiled__is_that_of_jax():
    check(lambda a, b: sla.solve_triangular(a[0], b[0]), SQUARE, SIDES, rtol=1e-4, atol=1e-4, native=True)


@pytest.mark.slow
def test_solve_and_its_gradient__compiled__are_those_of_jax():
    check(gradient(jnp.linalg.solve, SQUARE, SIDES), SQUARE, SIDES, rtol=1e-4, atol=1e-4, native=True)


@pytest.mark.parametrize("fn", [jnp.linalg.eigvals, sla.schur], ids=["eig", "schur"])
def test_eigenvalues_of_other_matrices__are_refused_with_the_reason(fn):
    with pytest.raises(UnsupportedOpError, match="depends on the data") as caught:
        captured(fn, SQUARE[0])
    assert "eigh" in str(caught.value)
