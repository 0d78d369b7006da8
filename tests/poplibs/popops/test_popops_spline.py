"""Spline bases and weighting against loops in Python."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import TILES, Bench, assert_close

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.poplibs.popops.spline import spline_basis, spline_weighting

RNG = np.random.default_rng(6)
STEPS = {
    1: (lambda v: 1 - v, lambda v: v),
    2: (lambda v: 0.5 * (1 - v) ** 2, lambda v: -v * v + v + 0.5, lambda v: 0.5 * v * v),
    3: (
        lambda v: (1 - v) ** 3 / 6,
        lambda v: (3 * v**3 - 6 * v**2 + 4) / 6,
        lambda v: (-3 * v**3 + 3 * v**2 + 3 * v + 1) / 6,
        lambda v: v**3 / 6,
    ),
}


def _oracle(pseudo: np.ndarray, sizes: list[int], opened: list[int], degree: int) -> tuple[np.ndarray, np.ndarray]:
    splines = (degree + 1) ** len(sizes)
    basis, index = np.ones((len(pseudo), splines)), np.zeros((len(pseudo), splines), np.int64)
    for e, row in enumerate(pseudo):
        for s in range(splines):
            rest, stride = s, 1
            for d, size in enumerate(sizes):
                rest, k = divmod(rest, degree + 1)
                v = row[d] * (size - degree * opened[d])
                index[e, s] += (int(np.floor(v)) + k) % size * stride
                stride *= size
                basis[e, s] *= STEPS[degree][k](v - np.floor(v))
    return basis, index


@pytest.mark.parametrize("num_tiles", [*TILES, 1472])
@pytest.mark.parametrize(("degree", "dims"), [(1, 1), (1, 2), (2, 2), (3, 1)])
def test_spline_basis__degrees_and_dims__is_the_formula(num_tiles: int, degree: int, dims: int) -> None:
    bench = Bench(num_tiles)
    pseudo = RNG.uniform(0, 0.99, (11, dims)).astype(np.float32)
    sizes, opened = [5, 4][:dims], [1, 0][:dims]
    tensors = bench.tensor(pseudo), bench.tensor(sizes, "i32", 0), bench.tensor(opened, "u8", 0)
    outs = spline_basis(bench.graph, *tensors, degree, bench.prog)
    basis, index = bench.run_both(*outs)
    wanted, numbers = _oracle(pseudo.astype(np.float64), sizes, opened, degree)
    assert_close(basis, wanted, outs[0].dtype)
    np.testing.assert_array_equal(index, numbers)
    np.testing.assert_allclose(basis.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("num_tiles", TILES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_spline_weighting__edges__sum_over_splines(num_tiles: int, dtype: str) -> None:
    bench = Bench(num_tiles)
    x, w = bench.tensor(RNG.standard_normal((37, 3)), dtype), bench.tensor(RNG.standard_normal((6, 3, 5)), dtype)
    b, k = bench.tensor(RNG.uniform(0, 1, (37, 4)), dtype), bench.tensor(RNG.integers(0, 6, (37, 4)), "i32")
    out = spline_weighting(bench.graph, x, w, b, k, bench.prog)
    wanted = np.einsum("es,ei,esio->eo", bench.values(b), bench.values(x), bench.values(w)[bench.data[k]])
    assert_close(bench.run_both(out)[0], wanted, out.dtype)


def test_spline__wrong_operands__are_named() -> None:
    bench = Bench(4)
    p, n = bench.tensor(np.zeros((4, 2)), "f32"), bench.tensor([3, 3], "i32", 0)
    with pytest.raises(InvalidOptionError, match="a spline of degree 4"):
        spline_basis(bench.graph, p, n, n, 4, bench.prog)
    with pytest.raises(TensorError, match=r"shapes \[4, 2\], \[1\], \[2\]"):
        spline_basis(bench.graph, p, n[:1], n, 1, bench.prog)
    with pytest.raises(TypeMismatchError, match="types f32, i32, f32"):
        spline_basis(bench.graph, p, n, p[0], 1, bench.prog)
    with pytest.raises(TensorError, match=r"shapes \[4, 2\], \[4, 2\]"):
        spline_weighting(bench.graph, p, p, p, p, bench.prog)
