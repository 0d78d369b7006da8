"""Kinds of linear algebra: what programs compute against NumPy, and derivatives against differences of the meaning."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from abele.expr.derivative import arg
from abele.network import NetworkBuilder, Value, differentiate, evaluate, parse, verify
from abele.network.ops import build, matrices
from abele.session import Schedule, Session, Settings

Array = np.ndarray[Any, Any]
Make = Callable[[NetworkBuilder, Value], Sequence[Value]]


def general(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def positive(batch: int, n: int) -> Array:
    a = general(batch, n, n)
    return (a @ a.swapaxes(1, 2) + 0.5 * np.eye(n)).astype(np.float32)


def symmetric(batch: int, n: int) -> Array:
    a = general(batch, n, n)
    return (a + a.swapaxes(1, 2)) / 2


def computed(make: Make, a: Array) -> list[Array]:
    """Results of a program for ``a``."""
    net = NetworkBuilder()
    x = net.input(a.shape, "f32", "x")
    net.outputs += make(net, x)
    made = net.finish()
    verify(made)
    assert parse(str(made)) == made
    session = Session.of(made, Schedule())
    return [np.asarray(v) for v in session(a[None] if False else a)]


def meaning(make: Make, a: Array) -> list[Array]:
    net = NetworkBuilder()
    x = net.input(a.shape, "f32", "x")
    outputs = list(make(net, x))
    net.outputs += outputs
    values = evaluate(net.finish(), {x: a.astype(np.float64)})
    return [values[v] for v in outputs]


SHAPES = [(1, 1, 1), (3, 2, 2), (2, 7, 7), (1, 33, 33)]
TALL_AND_WIDE = [(2, 5, 3), (2, 3, 5)]
RECTANGLES = [*SHAPES, (1, 20, 9), *TALL_AND_WIDE]
THIN_AND_WHOLE = [
    *zip([*SHAPES, (1, 20, 9)], [False, True, False, True, True], strict=True),
    *itertools.product(TALL_AND_WIDE, [False, True]),
]
"""Shapes with whole factors or thin ones; those of square matrices are the same."""


@pytest.mark.parametrize("shape", RECTANGLES)
def test_lu__of_matrices__gives_factors_and_the_exchanges_of_partial_pivoting(shape: tuple[int, ...]) -> None:
    a = general(*shape)
    packed, places, swaps = computed(matrices.lu, a)
    expected = meaning(matrices.lu, a)
    np.testing.assert_array_equal(places, expected[1])
    np.testing.assert_array_equal(swaps, expected[2])
    np.testing.assert_allclose(packed, expected[0], atol=3e-5)
    k = min(shape[1:])
    lower = np.tril(packed[:, :, :k], -1) + np.eye(shape[1], k)
    ordered = np.take_along_axis(a, np.argsort(places, axis=1)[:, :, None], axis=1)
    np.testing.assert_allclose(lower @ np.triu(packed[:, :k]), ordered, atol=3e-5)


def test_lu__of_a_singular_matrix__stays_finite() -> None:
    a = np.zeros((2, 4, 4), np.float32)
    a[1, :, 1] = [1, 2, 3, 4]
    packed, _, _ = computed(matrices.lu, a)
    assert np.isfinite(packed).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_solve_and_inverse__of_matrices__equal_numpy(shape: tuple[int, ...]) -> None:
    a = general(*shape) + 2 * np.eye(shape[1], dtype=np.float32)
    b = general(shape[0], shape[1], 3, seed=1)

    def make(net: NetworkBuilder, x: Value) -> list[Value]:
        return [matrices.solve(net, x, net.constant(b, "f32")), matrices.inverse(net, x), matrices.determinant(net, x)]

    for got, expected in zip(computed(make, a), meaning(make, a), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize(("shape", "complete"), THIN_AND_WHOLE)
def test_qr__of_matrices__equals_numpy(shape: tuple[int, ...], complete: bool) -> None:
    a = general(*shape)
    make = lambda net, x: matrices.qr(net, x, complete=complete)  # noqa: E731
    q, r = computed(make, a)
    expected_q, expected_r = meaning(make, a)
    k = min(shape[1:])
    np.testing.assert_allclose(q[:, :, :k], expected_q[:, :, :k], atol=1e-4)
    np.testing.assert_allclose(r, expected_r, atol=1e-4)
    np.testing.assert_allclose(q @ r, a, atol=2e-5)
    np.testing.assert_allclose(
        q.swapaxes(1, 2) @ q, np.broadcast_to(np.eye(q.shape[2]), (len(a), *q.shape[2:] * 2)), atol=1e-5
    )


@pytest.mark.parametrize(("shape", "full"), THIN_AND_WHOLE)
def test_svd__of_matrices__gives_orthogonal_factors(shape: tuple[int, ...], full: bool) -> None:
    a = general(*shape)
    u, s, v = computed(lambda net, x: matrices.svd(net, x, full=full), a)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=2e-5)
    k = min(shape[1:])
    np.testing.assert_allclose((u[:, :, :k] * s[:, None]) @ v[:, :k], a, atol=3e-5)
    for factor in (u, v.swapaxes(1, 2)):
        product = factor.swapaxes(1, 2) @ factor
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(product.shape[1]), product.shape), atol=2e-5)


def test_svd__of_a_matrix_without_full_rank__still_gives_orthogonal_factors() -> None:
    a = np.zeros((3, 6, 4), np.float32)
    a[0] = np.outer(np.arange(1, 7), [1, -2, 0, 3])
    a[1] = general(6, 2) @ general(2, 4, seed=1)
    u, s, v = computed(matrices.svd, a)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), atol=1e-4)
    np.testing.assert_allclose((u * s[:, None]) @ v, a, atol=1e-4)
    np.testing.assert_allclose(u.swapaxes(1, 2) @ u, np.broadcast_to(np.eye(4), (3, 4, 4)), atol=2e-5)


@pytest.mark.parametrize(
    "a", [symmetric(1, 1), symmetric(3, 2), symmetric(2, 7), symmetric(1, 34)], ids=lambda a: str(a.shape)
)
def test_eigh__of_matrices__gives_values_and_orthogonal_vectors(a: Array) -> None:
    w, v = computed(matrices.eigh, a)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), atol=2e-5)
    np.testing.assert_allclose(a @ v, v * w[:, None], atol=3e-5)
    np.testing.assert_allclose(v.swapaxes(1, 2) @ v, np.broadcast_to(np.eye(v.shape[1]), v.shape), atol=1e-5)


def test_eigh__of_values_that_differ_in_sign_alone__gives_vectors_of_each() -> None:
    a = np.zeros((1, 6, 6), np.float32)
    a[0, :3, 3:] = general(3, 3)
    a = a + a.swapaxes(1, 2)
    w, v = computed(matrices.eigh, a)
    np.testing.assert_allclose(a @ v, v * w[:, None], atol=2e-5)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 6.0])
def test_matrix_exponential__of_any_norm__equals_that_of_eigenvalues(scale: float) -> None:
    a = symmetric(3, 5) * scale * np.array([1, 0.01, 0.5], np.float32)[:, None, None]
    (got,) = computed(lambda net, x: [matrices.matrix_exponential(net, x)], a)
    w, v = np.linalg.eigh(a.astype(np.float64))
    expected = (v * np.exp(w)[:, None]) @ v.swapaxes(1, 2)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 5, 3), (2, 3, 5)])
def test_pseudo_inverse__with_and_without_full_rank__equals_numpy(shape: tuple[int, ...]) -> None:
    a = general(*shape)
    a[1, :, 1] = 2 * a[1, :, 0]

    def make(net: NetworkBuilder, x: Value) -> list[Value]:
        limits = [build.full(net, number, (2,), x.dtype) for number in (0.0, 1e-5)]
        return [matrices.pseudo_inverse(net, x, *limits)]

    np.testing.assert_allclose(computed(make, a)[0], np.linalg.pinv(a, rcond=1e-5), atol=2e-5)


def test_cholesky__of_matrices__equals_numpy() -> None:
    a = positive(3, 6)
    (got,) = computed(lambda net, x: [matrices.cholesky(net, x)], a)
    np.testing.assert_allclose(got, np.linalg.cholesky(a), atol=1e-5)


def _fixed(net: NetworkBuilder, value: Value) -> Value:
    """Vectors without the choice of their sign: each element times the first of its column."""
    head = build.slice_(net, value, 1, 0, 1)
    return build.map_(net, arg(0) * arg(1), [value, head])


def _eigh(net: NetworkBuilder, x: Value) -> list[Value]:
    w, v = matrices.eigh(net, build.map_(net, (arg(0) + arg(1)) * 0.5, [x, build.transpose(net, x)]))
    return [w, _fixed(net, v)]


def _svd(net: NetworkBuilder, x: Value) -> list[Value]:
    u, s, v = matrices.svd(net, x)
    head = build.transpose(net, build.slice_(net, u, 1, 0, 1))
    return [_fixed(net, u), s, build.map_(net, arg(0) * arg(1), [v, head])]


def _pinv(net: NetworkBuilder, x: Value) -> list[Value]:
    limit = build.full(net, 0.0, (x.shape[0],), x.dtype)
    return [matrices.pseudo_inverse(net, x, limit, limit)]


DERIVATIVES: dict[str, tuple[Make, Array]] = {
    "lu": (lambda net, x: matrices.lu(net, x)[:1], general(2, 4, 4)),
    "lu_tall": (lambda net, x: matrices.lu(net, x)[:1], general(2, 5, 3)),
    "lu_wide": (lambda net, x: matrices.lu(net, x)[:1], general(2, 3, 5)),
    "solve": (lambda net, x: [matrices.solve(net, x, build.slice_(net, x, 2, 0, 2))], general(2, 4, 4)),
    "inverse": (lambda net, x: [matrices.inverse(net, x)], general(2, 4, 4)),
    "inverse_twice": (
        lambda net, x: [matrices.solve(net, build.transpose(net, x), matrices.inverse(net, x))],
        general(1, 3, 3),
    ),
    "determinant": (lambda net, x: [matrices.determinant(net, x)], general(2, 4, 4)),
    "log_determinant": (lambda net, x: matrices.log_determinant(net, x)[1:], general(2, 4, 4)),
    "cholesky": (
        lambda net, x: [matrices.cholesky(net, build.map_(net, (arg(0) + arg(1)) * 0.5, [x, build.transpose(net, x)]))],
        positive(2, 4),
    ),
    "triangular_solve": (
        lambda net, x: [matrices.triangular_solve(net, x, build.slice_(net, x, 2, 1, 3), lower=False)],
        positive(2, 4),
    ),
    "qr": (matrices.qr, general(2, 5, 3)),
    "qr_square": (lambda net, x: matrices.qr(net, x, complete=True), general(2, 4, 4)),
    "qr_wide": (matrices.qr, general(2, 3, 5)),
    "eigh": (_eigh, symmetric(2, 4)),
    "svd": (_svd, general(2, 4, 4)),
    "svd_tall": (_svd, general(2, 5, 3)),
    "svd_wide": (_svd, general(2, 3, 5)),
    "singular_values": (lambda net, x: matrices.svd(net, x, vectors=False)[1:2], general(2, 4, 3)),
    "matrix_exponential": (lambda net, x: [matrices.matrix_exponential(net, x)], general(2, 3, 3)),
    "pseudo_inverse": (_pinv, general(2, 4, 3)),
    "householder": (
        lambda net, x: [
            matrices.householder_product(net, x, build.reshape(net, build.slice_(net, x, 1, 0, 1), (2, 3)), 3)
        ],
        general(2, 5, 3),
    ),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivative__of_a_weighted_sum_of_results__equals_differences(name: str) -> None:
    make, a = DERIVATIVES[name]
    net = NetworkBuilder()
    x = net.parameter(a.shape, "f32", "x")
    terms = []
    for number, result in enumerate(make(net, x)):
        weights = net.constant(general(*result.shape, seed=number + 5), "f32")
        product = build.map_(net, arg(0) * arg(1), [result, weights])
        terms.append(build.reduce(net, product, range(result.ndim)))
    net.loss = build.total(net, terms)
    captured = net.finish()
    made = differentiate(captured, captured.parameters)
    verify(made)
    at, direction = a.astype(np.float64), general(*a.shape, seed=99)
    (gradient,) = made.gradients.values()
    slope = float((evaluate(made, {x: at})[gradient] * direction).sum())
    step = 1e-6
    above, below = (float(evaluate(captured, {x: at + sign * step * direction})[net.loss]) for sign in (1, -1))
    np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 9, 9), (1, 7, 18)])
def test_factors_by_columns__on_tiles_and_as_the_host_runs_them__are_the_same(shape: tuple[int, ...]) -> None:
    a = general(*shape)

    def factors(mode: str) -> list[Array]:
        net = NetworkBuilder()
        x = net.input(a.shape, "f32", "x")
        net.outputs += [*matrices.lu(net, x), *matrices.qr(net, x)]
        return [np.asarray(v) for v in Session.of(net.finish(), Schedule(), settings=Settings(mode=mode))(a)]

    for on_host, on_tiles in zip(factors("native"), factors("tiles"), strict=True):
        np.testing.assert_allclose(on_host, on_tiles, atol=1e-4)
