"""Cholesky, triangular solves, masks and grids against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy
from abele.poplibs.poplin import linalg

RNG = np.random.default_rng(5)


def _spd(batch: int, n: int, dtype: str) -> np.ndarray:
    x = RNG.standard_normal((batch, n, n))
    return (x @ x.transpose(0, 2, 1) / n + np.eye(n)).astype(dtype)


@pytest.mark.parametrize(
    ("batch", "n", "block", "lower", "dtype", "tiles"),
    [(1, 4, 4, True, "float32", 4), (2, 10, 4, False, "float32", 64), (2, 8, 4, True, "float16", 64)],
)
def test_cholesky__matches_numpy(batch: int, n: int, block: int, lower: bool, dtype: str, tiles: int) -> None:
    bench = Bench(tiles)
    a = bench.tensor(_spd(batch, n, dtype))
    out = linalg.cholesky(bench.graph, a, lower, bench.prog, options={"blockSize": block})
    (got,) = bench.run(out)
    wanted = np.linalg.cholesky(bench.values(a))
    wanted = wanted if lower else wanted.transpose(0, 2, 1)
    np.testing.assert_allclose(got, wanted, atol=1e-5 if dtype == "float32" else 1e-2)


def test_cholesky__not_positive_definite__gives_nan() -> None:
    bench = Bench(4)
    a = bench.tensor(np.array([[1.0, 2.0], [2.0, 1.0]], np.float32))
    (got,) = bench.run(linalg.cholesky(bench.graph, a, True, bench.prog))
    assert np.isnan(got[1, 1])


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(("n", "block", "unit"), [(4, 8, False), (10, 3, False), (8, 4, True)])
def test_triangular_solve__matches_numpy(left: bool, lower: bool, n: int, block: int, unit: bool) -> None:
    bench = Bench(64)
    a = bench.tensor((RNG.standard_normal((2, n, n)) * 0.3 + 2 * np.eye(n)).astype(np.float32))
    b = bench.tensor(RNG.standard_normal((2, n, 3) if left else (2, 3, n)).astype(np.float32))
    out = linalg.triangular_solve(bench.graph, a, b, left, lower, unit, bench.prog, options={"block_size": block})
    (got,) = bench.run(out)
    matrix = np.tril(bench.values(a)) if lower else np.triu(bench.values(a))
    if unit:
        matrix[:, range(n), range(n)] = 1.0
    back = matrix @ got if left else got @ matrix
    np.testing.assert_allclose(back, bench.values(b), atol=2e-5)


@pytest.mark.parametrize("tiles", [4, 1472])
def test_created_inputs__any_number_of_tiles__same_solution(tiles: int) -> None:
    bench = Bench(tiles)
    shapes, options = ((2, 7, 7), (2, 7, 5)), {"blockSize": 3}
    a = linalg.create_triangular_solve_input_lhs(bench.graph, "half", *shapes, options=options)
    b = linalg.create_triangular_solve_input_rhs(bench.graph, "half", *shapes, options=options)
    assert (a.shape, b.shape) == shapes
    rng = np.random.default_rng(9)
    values = (rng.standard_normal(shapes[0]) * 0.2 + 2 * np.eye(7), rng.standard_normal(shapes[1]))
    sources = [bench.tensor(v.astype(np.float16)) for v in values]
    for source, made in zip(sources, (a, b), strict=True):
        bench.prog.add(Copy(source, made))
    (got,) = bench.run(linalg.triangular_solve(bench.graph, a, b, True, True, False, bench.prog, options=options))
    wanted = np.linalg.solve(np.tril(bench.values(sources[0])), bench.values(sources[1]))
    np.testing.assert_allclose(got, wanted, atol=1e-2)


def test_created_inputs__shapes_that_do_not_fit__are_refused() -> None:
    bench = Bench(4)
    with pytest.raises(TensorError, match=r"takes square matrices \[..., n, n\], got shape \[3, 4\]"):
        linalg.create_cholesky_input(bench.graph, "float", (3, 4))
    with pytest.raises(TensorError, match="on the right does not fit b"):
        linalg.create_triangular_solve_input_rhs(bench.graph, "float", (4, 4), (4, 1), False)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_mask__keeps_one_triangle(lower: bool, unit: bool) -> None:
    bench = Bench(4)
    a = bench.tensor(RNG.standard_normal((2, 5, 5)).astype(np.float32))
    (got,) = bench.run_both(linalg.triangular_mask(bench.graph, a, lower, unit, bench.prog))
    wanted = np.tril(bench.data[a]) if lower else np.triu(bench.data[a])
    if unit:
        wanted[:, range(5), range(5)] = 1.0
    np.testing.assert_array_equal(got, wanted)


def test_grids__match_numpy() -> None:
    bench = Bench(4)
    x = linalg.linspace(bench.graph, "float", -1.0, 2.0, 7)
    y = linalg.linspace(bench.graph, "float", 0.0, 1.0, 3)
    got = [t.shape for t in linalg.meshgrid2d(bench.graph, x, y)]
    assert got == [(3, 7), (3, 7)]
    with pytest.raises(TensorError, match="count of at least 1, got 0"):
        linalg.linspace(bench.graph, "float", 0.0, 1.0, 0)
    with pytest.raises(TensorError, match="meshgrid2d takes vectors"):
        linalg.meshgrid2d(bench.graph, x, x.expand_dims(0))


def test_linalg__wrong_arguments__are_named() -> None:
    bench = Bench(4)
    a, b = bench.tensor(np.zeros((4, 4), np.float32)), bench.tensor(np.zeros((3, 1), np.float32))
    whole, half = bench.tensor(np.zeros((4, 4), np.int32)), bench.tensor(np.zeros((4, 1), np.float16))
    with pytest.raises(TensorError, match="does not fit b of shape"):
        linalg.triangular_solve(bench.graph, a, b, True, True, False, bench.prog)
    with pytest.raises(TypeMismatchError, match=r"operands of one type, got Tensor\(f32\[4, 4\] of 'v0'"):
        linalg.triangular_solve(bench.graph, a, half, True, True, False, bench.prog)
    with pytest.raises(TypeMismatchError, match="cholesky: a takes f32 or f16"):
        linalg.cholesky(bench.graph, whole, True, bench.prog)
    with pytest.raises(TensorError, match="square"):
        linalg.cholesky(bench.graph, b, True, bench.prog)
    with pytest.raises(InvalidOptionError, match="blockSize"):
        linalg.cholesky(bench.graph, a, True, bench.prog, options={"blockSize": 0})
