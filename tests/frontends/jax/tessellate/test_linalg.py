"""Factors and eigenvalues with a row on each tile, beside NumPy."""

import jax
import numpy as np
import pytest
from jax import lax

from abele import jax as ajax
from abele.jax.tessellate import tile_constant_sharded, tile_map, tile_put_sharded
from abele.jax.tessellate.linalg import (
    dot_product1d_p,
    ipu_eigh,
    ipu_hessenberg,
    ipu_jacobi_eigh,
    ipu_qr,
    jacobi_initial_rotation_set,
    jacobi_next_rotation_set,
    jacobi_sort_rotation_set,
    qr_correction_vector_p,
    tile_rotate_columns,
)
from frontends.jaxpr.jaxpr_kit import run


def matrix(num, seed=0):
    return np.random.default_rng(seed).normal(size=(num, num)).astype(np.float32)


def symmetric(num, seed=0):
    x = matrix(num, seed)
    return (x + x.T) / 2


@pytest.mark.slow
@pytest.mark.parametrize("fn", [ipu_qr, ipu_hessenberg, ipu_jacobi_eigh])
def test_host_and_machine_agree(fn):
    x = symmetric(6)
    for a, b in zip(jax.tree.leaves(jax.jit(fn)(x)), run(fn, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_qr():
    x = matrix(6)
    q, rt = run(ipu_qr, x, np.sign(np.diag(x)))
    np.testing.assert_allclose(q @ rt.T, x, atol=3e-6)
    np.testing.assert_allclose(q @ q.T, np.eye(6), atol=3e-6)
    np.testing.assert_allclose(np.tril(rt.T, -1), 0, atol=3e-6)
    np.testing.assert_array_equal(np.sign(np.diag(rt))[:-1], -np.sign(np.diag(x))[:-1])
    np.testing.assert_allclose(np.abs(np.diag(rt)), np.abs(np.diag(np.linalg.qr(x)[1])), rtol=1e-4)


def test_qr__of_matrices_that_cancel():
    factors = ajax.jit(ipu_qr)
    for x in (np.eye(4, dtype=np.float32), np.zeros((4, 4), np.float32), np.diag([1e-4, 1, 1e4, -1]).astype("f4")):
        for signs in (np.ones(4, np.float32), -np.ones(4, np.float32)):
            q, rt = map(np.asarray, factors(x, signs))
            np.testing.assert_allclose(q @ rt.T, x, rtol=1e-5, atol=1e-9)
            np.testing.assert_allclose(q @ q.T, np.eye(4), atol=1e-6)


def test_hessenberg():
    x = matrix(6)
    q, rt = run(ipu_hessenberg, x)
    np.testing.assert_allclose(q @ rt.T @ q.T, x, atol=5e-6)
    np.testing.assert_allclose(np.tril(rt.T, -2), 0, atol=3e-6)
    np.testing.assert_allclose(q @ q.T, np.eye(6), atol=3e-6)


def test_one_sweep_of_jacobi():
    x = symmetric(6)
    a, v = run(lambda x: ipu_jacobi_eigh(x, num_iters=1), x)
    np.testing.assert_allclose(v.T @ a @ v, x, atol=5e-6)
    rest = a - np.diag(np.diag(a))
    assert np.abs(rest).max() < 0.7 * np.abs(x - np.diag(np.diag(x))).max()


@pytest.mark.slow
def test_eigenvalues_on_the_host():
    x = symmetric(10)
    vectors, values = jax.jit(lambda x: ipu_eigh(x, num_iters=6))(x)
    want = np.linalg.eigvalsh(x)
    np.testing.assert_allclose(values, want, atol=1e-5)
    np.testing.assert_allclose((vectors * values) @ vectors.T, x, atol=1e-5)
    loose, unsorted = jax.jit(lambda x: ipu_eigh(x, num_iters=6, sort_eigenvalues=False))(x)
    np.testing.assert_allclose(np.sort(unsorted), want, atol=1e-5)
    _, begun = jax.jit(lambda x, g: ipu_eigh(x, num_iters=1, initial_guess=g))(x, loose)
    np.testing.assert_allclose(begun, want, atol=1e-5)
    _, mean = jax.jit(lambda x: ipu_eigh(x, num_iters=6, symmetrize_input=True))(
        x + np.triu(np.ones((10, 10), "f4"), 1)
    )
    np.testing.assert_allclose(mean, np.linalg.eigvalsh(x + (np.ones((10, 10)) - np.eye(10)) / 2), atol=1e-5)


def test_eigenvalues_on_the_machine():
    x = symmetric(8)
    vectors, values = run(lambda x: ipu_eigh(x, num_iters=5), x)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(x), atol=1e-5)
    np.testing.assert_allclose((vectors * values) @ vectors.T, x, atol=1e-5)


def test_partners_meet_once():
    for num in (2, 4, 8, 14):
        rot, met = jacobi_initial_rotation_set(num), set()
        for _ in range(num - 1):
            met |= {tuple(sorted(p)) for p in rot.tolist()}
            rot = jacobi_next_rotation_set(rot)
        assert len(met) == num * (num - 1) // 2
        np.testing.assert_array_equal(rot, jacobi_initial_rotation_set(num))
    second = jacobi_next_rotation_set(jacobi_initial_rotation_set(8))
    assert second.tolist() == [[0, 3], [1, 5], [2, 7], [4, 6]]
    assert jacobi_sort_rotation_set(np.array([[3, 1], [0, 2]])).tolist() == [[1, 3], [0, 2]]


def test_columns_move_to_their_partners():
    rot, tiles = jacobi_next_rotation_set(jacobi_initial_rotation_set(8)), (1, 2, 3, 4)
    now, then = jacobi_sort_rotation_set(rot), jacobi_sort_rotation_set(jacobi_next_rotation_set(rot))

    def f(p, q):
        return tile_rotate_columns(tile_put_sharded(p, tiles), tile_put_sharded(q, tiles), rot)

    columns = [now[:, side, None].repeat(3, 1).astype(np.float32) for side in (0, 1)]
    p, q = run(f, *columns)
    np.testing.assert_array_equal(p[:, 0], then[:, 0])
    np.testing.assert_array_equal(q[:, 0], then[:, 1])


def test_vertices_of_reflections():
    x = matrix(5)

    def f(x):
        rows = tile_put_sharded(x, range(5))
        v, scale = tile_map(
            qr_correction_vector_p, rows, tile_constant_sharded(np.ones((5, 1), "f4"), range(5)), col_idx=2
        )
        return v, scale, tile_map(dot_product1d_p, rows, tile_map(lax.neg_p, rows))

    v, scale, partials = run(f, x)
    assert not v[:, :2].any()
    reflected = x - scale * (v * x).sum(1, keepdims=True) * v
    np.testing.assert_allclose(reflected[:, 3:], 0, atol=1e-6)
    np.testing.assert_allclose(partials.sum(1), -(x**2).sum(1), rtol=1e-5)


def test_wrong_matrices():
    for call, words in [
        (lambda: ipu_qr(np.zeros((3, 4), "f4")), "square"),
        (lambda: ipu_hessenberg(np.zeros(3, "f4")), "square"),
        (lambda: ipu_eigh(np.zeros((3, 3), "f4")), "pad the matrix"),
        (lambda: ipu_jacobi_eigh(np.zeros((1026, 1026), "f4")), "1,024 rows"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 4, 12])
def test_larger_matrices(num):
    x = matrix(num)
    q, rt = run(ipu_qr, x)
    np.testing.assert_allclose(q @ rt.T, x, atol=1e-5)
    y = symmetric(num)
    _, values = run(lambda y: ipu_eigh(y, num_iters=6), y)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(y), atol=2e-5)
