"""QR and LU factorisations against their definition and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench
from scipy.linalg import lapack

from abele.compiler import compile_program
from abele.graph import Copy, Graph, Sequence
from abele.machine import systems
from abele.poplibs.poplin import linalg
from support.examples import examples

TOLERANCE = {"float32": 1e-5, "float16": 2e-2}
SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9))


def _reflected(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R and Q by LAPACK, with signs as Householder's method gives them."""
    packed, tau, _, _ = lapack.dgeqrf(a)
    m = a.shape[0]
    q = np.eye(m)
    for k in range(min(m - 1, a.shape[1])):
        v = np.concatenate([np.zeros(k), [1.0], packed[k + 1 :, k]])
        q = q @ (np.eye(m) - tau[k] * np.outer(v, v))
    return q, q.T @ a


@examples(4)
@given(SHAPES, st.sampled_from(sorted(TOLERANCE)), st.sampled_from([4, 64]), st.integers(0, 9))
def test_qr__any_shape__matches_lapack(shape: tuple[int, int], dtype: str, tiles: int, seed: int) -> None:
    m, n = shape
    bench = Bench(tiles)
    a = bench.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))
    q = bench.tensor(np.full((m, m), 7.0, dtype))
    linalg.qr_factorization(bench.graph, a, q, bench.prog)
    r_got, q_got = (x.astype(np.float64) for x in bench.run_both(a, q))
    q_wanted, _ = _reflected(bench.values(a))
    np.testing.assert_allclose(q_got @ r_got, bench.values(a), atol=2 * TOLERANCE[dtype])
    np.testing.assert_allclose(q_got @ q_got.T, np.eye(m), atol=2 * TOLERANCE[dtype])
    np.testing.assert_array_equal(np.tril(r_got, -1), 0.0)
    if dtype == "float32":
        np.testing.assert_allclose(q_got[:, : min(m, n)], q_wanted[:, : min(m, n)], atol=2e-3)


def test_qr__zero_columns__are_left_alone() -> None:
    bench = Bench(4)
    values = np.array([[0.0, 1, 2], [0, 3, 4], [0, 5, 6], [0, 7, 8]], np.float32)
    a, q = bench.tensor(values), bench.tensor(np.zeros((4, 4), np.float32))
    linalg.qr_factorization(bench.graph, a, q, bench.prog)
    r_got, q_got = bench.run_both(a, q)
    np.testing.assert_allclose(q_got @ r_got, values, atol=1e-5)
    np.testing.assert_array_equal(r_got[:, 0], 0.0)


@examples(4)
@given(SHAPES, st.sampled_from(sorted(TOLERANCE)), st.sampled_from([4, 64]), st.integers(0, 9))
def test_lu__any_shape__matches_elimination(shape: tuple[int, int], dtype: str, tiles: int, seed: int) -> None:
    bench = Bench(tiles)
    values = np.random.default_rng(seed).standard_normal(shape) * 0.3 + 4 * np.eye(*shape)
    a = bench.tensor(values.astype(dtype))
    got = bench.run_both(*linalg.lu_factorization(bench.graph, a, bench.prog))
    for one, wanted in zip(got, _eliminated(bench.values(a)), strict=True):
        np.testing.assert_allclose(one, wanted, atol=TOLERANCE[dtype])


def _eliminated(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U without pivoting: leading minors decide every element."""
    u, p = a.copy(), min(a.shape)
    lower = np.eye(a.shape[0], p)
    for k in range(p):
        lower[k + 1 :, k] = u[k + 1 :, k] / u[k, k]
        u[k + 1 :] -= np.outer(lower[k + 1 :, k], u[k])
    return lower, np.triu(u[:p])


def test_lu__input__is_left_as_it_is() -> None:
    bench = Bench(4)
    a = bench.tensor(np.array([[4.0, 1], [2, 3]], np.float32))
    linalg.lu_factorization(bench.graph, a, bench.prog)
    np.testing.assert_array_equal(bench.run(a)[0], bench.data[a])


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_factorisations__any_number_of_tiles__same_results(dtype: str) -> None:
    values = (np.random.default_rng(3).standard_normal((70, 5)) + 5 * np.eye(70, 5)).astype(dtype)
    results = []
    for tiles in (4, 64, 1472):
        bench = Bench(tiles)
        a, q = linalg.create_qr_factorization_matrices(bench.graph, dtype, 70, 5)
        source = bench.tensor(values)
        bench.prog.add(Copy(source, a))
        linalg.qr_factorization(bench.graph, a, q, bench.prog)
        lower, upper = linalg.lu_factorization(bench.graph, source, bench.prog)
        results.append(bench.run(a, q, lower, upper))
    for result in results[1:]:
        for one, other in zip(results[0], result, strict=True):
            np.testing.assert_allclose(one, other, atol=2 * TOLERANCE[dtype])


def test_factorisations__more_columns__same_program_and_more_cycles() -> None:
    def steps_and_cycles(n: int) -> tuple[int, float]:
        graph, prog = Graph(systems.get("bow")), Sequence()
        a, q = linalg.create_qr_factorization_matrices(graph, "float", n, n)
        linalg.qr_factorization(graph, a, q, prog)
        executable = compile_program(graph, prog)
        return len(executable.steps), executable.report.cycles().total

    (few, small), (many, large) = steps_and_cycles(16), steps_and_cycles(32)
    assert many - few <= 1  # sums over more tiles may take a stage more
    assert large > 2 * small
