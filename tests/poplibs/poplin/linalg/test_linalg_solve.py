"""Cholesky factorisations and triangular solves against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench

from abele.graph import Call, Copy
from abele.poplibs.poplin import linalg
from support.examples import examples

TOLERANCE = {"float32": 2e-5, "float16": 1.5e-2}
DTYPES = sorted(TOLERANCE)
VERTICES = st.sampled_from(["library", "counted"])
LEADING = st.sampled_from([(), (1,), (3,), (2, 2)])


def _positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Symmetric positive definite matrices, eigenvalues not below 1."""
    x = rng.standard_normal(shape)
    return x @ np.swapaxes(x, -1, -2) / shape[-1] + np.eye(shape[-1])


def _triangular(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Matrices whose triangles are well conditioned."""
    return rng.standard_normal(shape) * 0.2 + 2 * np.eye(shape[-1])


def _triangle(a: np.ndarray, lower: bool, unit: bool = False) -> np.ndarray:
    kept = np.tril(a) if lower else np.triu(a)
    if unit:
        kept[..., range(a.shape[-1]), range(a.shape[-1])] = 1.0
    return kept


@examples(4)
@given(st.data())
def test_cholesky__any_shape__matches_numpy(data: st.DataObject) -> None:
    n, lower = data.draw(st.integers(1, 11)), data.draw(st.booleans())
    dtype, tiles = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from([4, 64]))
    bench = Bench(tiles)
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    values = _positive(rng, (*data.draw(LEADING), n, n)).astype(dtype)
    a = bench.tensor(_triangle(values, lower))
    options = {"blockSize": data.draw(st.integers(1, 12)), "vertices": data.draw(VERTICES)}
    (got,) = bench.run_both(linalg.cholesky(bench.graph, a, lower, bench.prog, options=options))
    wanted = np.linalg.cholesky(values.astype(np.float64))
    np.testing.assert_allclose(got, wanted if lower else np.swapaxes(wanted, -1, -2), atol=TOLERANCE[dtype])


def test_cholesky__not_positive_definite__gives_nan() -> None:
    bench = Bench(4)
    a = bench.tensor(np.array([[1.0, 2.0], [2.0, 1.0]], np.float32))
    (got,) = bench.run(linalg.cholesky(bench.graph, a, True, bench.prog))
    assert np.isnan(got[1, 1])


@examples(6)
@given(st.data())
def test_triangular_solve__any_shape_side_and_triangle__solves(data: st.DataObject) -> None:
    n, r = data.draw(st.integers(1, 10)), data.draw(st.integers(1, 9))
    left, lower, unit = (data.draw(st.booleans()) for _ in range(3))
    dtype, tiles = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from([4, 64]))
    leading = data.draw(LEADING)
    bench = Bench(tiles)
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    a = bench.tensor(_triangular(rng, (*leading, n, n)).astype(dtype))
    b = bench.tensor(rng.standard_normal((*leading, n, r) if left else (*leading, r, n)).astype(dtype))
    options = {"block_size": data.draw(st.integers(1, 11)), "vertices": data.draw(VERTICES)}
    out = linalg.triangular_solve(bench.graph, a, b, left, lower, unit, bench.prog, options=options)
    (got,) = bench.run_both(out)
    matrix, right = _triangle(bench.values(a), lower, unit), bench.values(b)
    if left:
        wanted = np.linalg.solve(matrix, right)
    else:
        wanted = np.swapaxes(np.linalg.solve(np.swapaxes(matrix, -1, -2), np.swapaxes(right, -1, -2)), -1, -2)
    np.testing.assert_allclose(got, wanted, atol=TOLERANCE[dtype] * max(1.0, abs(wanted).max()))


def test_triangular_solve__other_triangle_not_a_number__is_not_read() -> None:
    bench = Bench(4)
    values = _triangular(np.random.default_rng(0), (5, 5)).astype(np.float32)
    values[np.triu_indices(5)] = np.nan
    a, b = bench.tensor(values), bench.tensor(np.ones((5, 2), np.float32))
    options = {"blockSize": 2}
    (got,) = bench.run(linalg.triangular_solve(bench.graph, a, b, True, True, True, bench.prog, options=options))
    wanted = np.linalg.solve(_triangle(np.nan_to_num(bench.values(a)), True, True), np.ones((5, 2)))
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_triangular_solve__no_right_hand_side__is_empty() -> None:
    bench = Bench(4)
    a, b = bench.tensor(np.eye(3, dtype=np.float32)), bench.tensor(np.zeros((3, 0), np.float32))
    assert linalg.triangular_solve(bench.graph, a, b, True, True, False, bench.prog).shape == (3, 0)


def test_triangular_solve__four_blocks__one_after_the_other_with_products_between() -> None:
    bench = Bench(64)
    a, b = bench.tensor(np.eye(8, dtype=np.float32)), bench.tensor(np.ones((8, 1), np.float32))
    linalg.triangular_solve(bench.graph, a, b, True, True, False, bench.prog, options={"blockSize": 2})
    names = [cs.name.rsplit("/", 1)[-1] for cs in bench.graph.compute_sets]
    assert [n for n in names if n in ("substitute", "rest")] == ["substitute", "rest"] * 3 + ["substitute"]


def test_triangular_solve__many_right_hand_sides__blocks_of_a_size_share_a_program_of_rows() -> None:
    bench = Bench(64)
    a, b = bench.tensor(np.eye(8, dtype=np.float32)), bench.tensor(np.ones((8, 6), np.float32))
    linalg.triangular_solve(bench.graph, a, b, True, True, False, bench.prog, options={"blockSize": 4})
    names = [cs.name.rsplit("/", 1)[-1] for cs in bench.graph.compute_sets]
    # One program for 4 right-hand sides and one for the 2 that are left; for each, a product between the two blocks.
    program = ["divide", "rest"] * 3 + ["divide"]
    assert [n for n in names if n in ("divide", "rest")] == [*program, "rest", *program, "rest"]


def test_triangular_solve__one_block__has_its_rows_in_place() -> None:
    bench = Bench(64)
    a, b = bench.tensor(np.eye(4, dtype=np.float32)), bench.tensor(np.ones((4, 4), np.float32))
    linalg.triangular_solve(bench.graph, a, b, True, False, True, bench.prog)
    (call,) = bench.prog
    assert not any(isinstance(step, Call) for step in call.body)


@pytest.mark.parametrize(("dtype", "cycles"), [("half", 329_292), ("float", 191_556)])
def test_cholesky__block_of_sixteen__costs_what_is_published_of_the_vertex(dtype: str, cycles: int) -> None:
    bench = Bench(4)
    a = linalg.create_cholesky_input(bench.graph, dtype, (16, 16), options={"blockSize": 16})
    linalg.cholesky(bench.graph, a, True, bench.prog, options={"blockSize": 16})
    assert max(bench.executable.report.steps["compute_cycles"]) == cycles


@pytest.mark.parametrize(
    ("dtype", "left", "slots"), [("half", True, 23_274), ("half", False, 51_996), ("float", True, 17_538)]
)
def test_triangular_solve__one_right_hand_side__costs_what_is_published_of_the_vertex(
    dtype: str, left: bool, slots: int
) -> None:
    bench = Bench(64)
    shapes = (64, 64), (64, 1) if left else (1, 64)
    a = linalg.create_triangular_solve_input_lhs(bench.graph, dtype, *shapes, left)
    b = linalg.create_triangular_solve_input_rhs(bench.graph, dtype, *shapes, left)
    linalg.triangular_solve(bench.graph, a, b, left, True, False, bench.prog)
    assert max(bench.executable.report.steps["compute_cycles"]) == 6 * slots


def test_cholesky__lower_triangle__takes_longer_by_the_inverse_alone() -> None:
    def compute(lower: bool) -> float:
        bench = Bench(64)
        a = linalg.create_cholesky_input(bench.graph, "half", (32, 32), options={"blockSize": 16})
        linalg.cholesky(bench.graph, a, lower, bench.prog, options={"blockSize": 16})
        steps = bench.executable.report.steps
        return sum(
            c
            for n, c in zip(steps["name"], steps["compute_cycles"], strict=True)
            if n.endswith(("factorise", "invert"))
        )

    assert compute(True) - compute(False) == 6 * 17_553


def test_counted_vertices__take_a_fraction_of_the_librarys_cycles() -> None:
    def cycles(vertices: str) -> float:
        bench = Bench(64)
        options = {"blockSize": 16, "vertices": vertices}
        a = linalg.create_cholesky_input(bench.graph, "float", (16, 16), options=options)
        linalg.cholesky(bench.graph, a, True, bench.prog, options=options)
        return bench.executable.report.cycles().total

    assert cycles("counted") < cycles("library") / 3


def test_cholesky__batches__take_no_longer_than_one() -> None:
    def cycles(batch: int) -> float:
        bench = Bench(64)
        a = linalg.create_cholesky_input(bench.graph, "float", (batch, 16, 16))
        linalg.cholesky(bench.graph, a, True, bench.prog)
        return bench.executable.report.cycles().total

    assert cycles(8) == pytest.approx(cycles(1), rel=0.01)


@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.slow), "float32"])
def test_created_inputs__any_number_of_tiles__same_results(dtype: str) -> None:
    shapes, options = ((2, 13, 13), (2, 13, 20)), {"blockSize": 4}
    rng = np.random.default_rng(9)
    values = [f(rng, shapes[0]).astype(dtype) for f in (_positive, _triangular)]
    values.append(rng.standard_normal(shapes[1]).astype(dtype))
    results = [_on(tiles, dtype, shapes, options, values) for tiles in (4, 64, 1472)]
    for result in results[1:]:
        for one, other in zip(results[0], result, strict=True):
            np.testing.assert_allclose(one, other, atol=TOLERANCE[dtype])


def _on(tiles: int, dtype: str, shapes: tuple, options: dict, values: list[np.ndarray]) -> list[np.ndarray]:
    bench = Bench(tiles)
    g = bench.graph
    made = [
        linalg.create_cholesky_input(g, dtype, shapes[0], options=options),
        linalg.create_triangular_solve_input_lhs(g, dtype, *shapes, options=options),
        linalg.create_triangular_solve_input_rhs(g, dtype, *shapes, options=options),
    ]
    for array, tensor in zip(values, made, strict=True):
        bench.prog.add(Copy(bench.tensor(array), tensor))
    factor = linalg.cholesky(g, made[0], True, bench.prog, options=options)
    solved = linalg.triangular_solve(g, made[1], made[2], True, True, False, bench.prog, options=options)
    return bench.run(factor, solved)


@pytest.mark.parametrize("n", [1, 15, 63, 64, 66, 131])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky__panels_of_the_host_and_columns_left_over__matches_numpy(
    n: int, batch: tuple[int, ...], lower: bool
) -> None:
    bench = Bench(16)
    root = np.random.default_rng(n).standard_normal((*batch, n, n))
    values = (root @ np.swapaxes(root, -1, -2) + n * np.eye(n)).astype(np.float32)
    a = bench.tensor(np.where(_triangle(np.ones((n, n)), lower), values, np.nan).astype(np.float32))
    (got,) = bench.run(linalg.cholesky(bench.graph, a, lower, bench.prog), mode="native")
    wanted = np.linalg.cholesky(values.astype(np.float64))
    np.testing.assert_allclose(got, wanted if lower else np.swapaxes(wanted, -1, -2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("right", [1, 4, 5, 16, 131])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_triangular_solve__panels_and_rows_left_over__solves_on_the_host(
    right: int, lower: bool, turned: bool, dtype: str
) -> None:
    bench, n = Bench(16), 38
    rng = np.random.default_rng(right)
    square = rng.standard_normal((n, n)) / n + 2 * np.eye(n)
    kept = _triangle(square, lower ^ turned).astype(dtype)
    a, b = bench.tensor(kept), bench.tensor(rng.standard_normal((n, right)).astype(dtype))
    out = linalg.triangular_solve(bench.graph, a.T if turned else a, b, True, lower, False, bench.prog)
    one, three = bench.run(out, mode="native"), bench.run(out, mode="native", threads=3)
    np.testing.assert_array_equal(one[0], three[0])
    matrix = bench.values(a).astype(np.float64)
    wanted = np.linalg.solve(matrix.T if turned else matrix, bench.values(b).astype(np.float64))
    np.testing.assert_allclose(one[0], wanted, atol=TOLERANCE[dtype] * abs(wanted).max())
