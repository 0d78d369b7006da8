"""Masks and grids against NumPy; layouts, options and errors of linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.errors import AbeleError, InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy, LibraryCall
from abele.poplibs import poplin
from abele.poplibs.poplin import linalg

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_mask__keeps_one_triangle(lower: bool, unit: bool, dtype: str) -> None:
    bench = Bench(4)
    a = bench.tensor(RNG.standard_normal((2, 5, 5)).astype(dtype))
    (got,) = bench.run_both(linalg.triangular_mask(bench.graph, a, lower, unit, bench.prog))
    wanted = np.tril(bench.data[a]) if lower else np.triu(bench.data[a])
    if unit:
        wanted[:, range(5), range(5)] = 1.0
    np.testing.assert_array_equal(got, wanted)


def test_grids__match_numpy() -> None:
    bench = Bench(4)
    x = linalg.linspace(bench.graph, "float", -1.0, 2.0, 7)
    y = linalg.linspace(bench.graph, "half", 0.0, 1.0, 3)
    views = linalg.meshgrid2d(bench.graph, x, y)
    wanted = np.meshgrid(np.linspace(-1, 2, 7, dtype=np.float32), np.linspace(0, 1, 3, dtype=np.float16))
    outs = [bench.graph.variable(v.dtype, v.shape, name="out").map_linear() for v in views]
    for view, out in zip(views, outs, strict=True):
        bench.prog.add(Copy(view, out))
    for got, grid in zip(bench.run(*outs), wanted, strict=True):
        np.testing.assert_array_equal(got, grid)


def test_calls__one_node_each__with_their_operations() -> None:
    bench = Bench(4)
    a = bench.tensor(np.eye(4, dtype=np.float32))
    q = bench.tensor(np.eye(4, dtype=np.float32))
    linalg.cholesky(bench.graph, a, True, bench.prog)
    linalg.triangular_solve(bench.graph, a, q, True, True, False, bench.prog, options={"blockSize": 2})
    linalg.triangular_mask(bench.graph, a, True, False, bench.prog)
    linalg.lu_factorization(bench.graph, a, bench.prog)
    linalg.qr_factorization(bench.graph, a, q, bench.prog)
    calls = [s for s in bench.prog if isinstance(s, LibraryCall)]
    assert calls == list(bench.prog)
    assert [c.name for c in calls] == [
        f"poplin.{n}"
        for n in ("cholesky", "triangular_solve", "triangular_mask", "lu_factorization", "qr_factorization")
    ]
    assert [c.flops for c in calls] == [21, 64, 0, 2 * (16 + 9 + 4 + 1), 384]


def test_names__those_of_poplibs_too() -> None:
    assert poplin.QRFactorization is linalg.qr_factorization
    assert poplin.LUFactorization is linalg.lu_factorization
    assert poplin.createQRFactorizationMatrices is linalg.create_qr_factorization_matrices
    assert poplin.triangularSolve is linalg.triangular_solve


FLOATS = np.zeros((4, 4), np.float32)
HALVES = np.zeros((4, 1), np.float16)
WHOLE = np.zeros((4, 4), np.int32)
TALL = np.zeros((3, 1), np.float32)
REFUSED = [
    (lambda g, p, t: linalg.cholesky(g, t(WHOLE), True, p), TypeMismatchError, "cholesky: a takes f32 or f16"),
    (lambda g, p, t: linalg.cholesky(g, t(TALL), True, p), TensorError, r"square matrices \[..., n, n\], got shape"),
    (
        lambda g, p, t: linalg.cholesky(g, t(FLOATS), True, p, options={"blockSize": 0}),
        InvalidOptionError,
        "cholesky: option 'blockSize' takes a whole number from 1 on, got 0",
    ),
    (
        lambda g, p, t: linalg.cholesky(g, t(FLOATS), True, p, options={"block": 4}),
        InvalidOptionError,
        "cholesky has no option 'block'",
    ),
    (
        lambda g, p, t: linalg.triangular_solve(g, t(FLOATS), t(TALL), True, True, False, p),
        TensorError,
        r"a of shape \[4, 4\] on the left does not fit b of shape \[3, 1\]",
    ),
    (
        lambda g, p, t: linalg.triangular_solve(g, t(FLOATS), t(HALVES), True, True, False, p),
        TypeMismatchError,
        r"operands of one type, got Tensor\(f32\[4, 4\] of 'v0'",
    ),
    (lambda g, p, t: linalg.triangular_mask(g, t(WHOLE), True, True, p), TypeMismatchError, "a takes f32 or f16"),
    (lambda g, p, t: linalg.triangular_mask(g, t(TALL), True, True, p), TensorError, "triangular_mask: a takes square"),
    (lambda g, p, t: linalg.lu_factorization(g, t(WHOLE), p), TypeMismatchError, "lu_factorization: a takes f32"),
    (
        lambda g, p, t: linalg.lu_factorization(g, t(np.zeros((2, 3, 3), np.float32)), p),
        TensorError,
        r"a takes a matrix \[rows, columns\], got Tensor\(f32\[2, 3, 3\] of 'v0'",
    ),
    (
        lambda g, p, t: linalg.qr_factorization(g, t(FLOATS), t(TALL), p),
        TensorError,
        r"q of a \[4, 4\] matrix is \[4, 4\], got Tensor\(f32\[3, 1\]",
    ),
    (
        lambda g, p, t: linalg.qr_factorization(g, t(FLOATS), t(np.zeros((4, 4), np.float16)), p),
        TypeMismatchError,
        "qr_factorization takes operands of one type",
    ),
    (
        lambda g, p, t: linalg.create_qr_factorization_matrices(g, "float", 0, 3),
        TensorError,
        r"extents of at least 1, got \[0, 3\]",
    ),
    (lambda g, p, t: linalg.create_qr_factorization_matrices(g, "int", 3, 3), TypeMismatchError, "f32 or f16"),
    (lambda g, p, t: linalg.create_cholesky_input(g, "float", (3, 4)), TensorError, r"got shape \[3, 4\]"),
    (
        lambda g, p, t: linalg.create_triangular_solve_input_rhs(g, "float", (4, 4), (4, 1), False),
        TensorError,
        "on the right does not fit b",
    ),
    (lambda g, p, t: linalg.linspace(g, "float", 0.0, 1.0, 0), TensorError, "count of at least 1, got 0"),
    (lambda g, p, t: linalg.linspace(g, "int", 0.0, 1.0, 3), TypeMismatchError, "linspace: dtype takes f32 or f16"),
    (lambda g, p, t: linalg.meshgrid2d(g, t(FLOATS), t(TALL)), TensorError, "meshgrid2d takes vectors"),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_wrong_arguments__are_named(call: object, kind: type[AbeleError], text: str) -> None:
    bench = Bench(4)
    with pytest.raises(kind, match=text):
        call(bench.graph, bench.prog, bench.tensor)
    assert not list(bench.prog)


def test_virtual_graph__everything_stays_inside() -> None:
    bench = Bench(16)
    part, rng = bench.graph.virtual(8, 16), np.random.default_rng(2)
    values = [rng.standard_normal((9, 9)) * 0.2 + 3 * np.eye(9), rng.standard_normal((9, 4))]
    options = {"blockSize": 4}
    a = linalg.create_triangular_solve_input_lhs(part, "float", (9, 9), (9, 4), options=options)
    b = linalg.create_triangular_solve_input_rhs(part, "float", (9, 9), (9, 4), options=options)
    for tensor, array in zip((a, b), values, strict=True):
        bench.prog.add(Copy(bench.tensor(array.astype(np.float32)), tensor))
    x = linalg.triangular_solve(part, a, b, True, True, False, bench.prog, options=options)
    linalg.cholesky(part, a, True, bench.prog, options=options)
    lower, upper = linalg.lu_factorization(part, a, bench.prog)
    r, q = linalg.create_qr_factorization_matrices(part, "float", 9, 9)
    bench.prog.add(Copy(a, r))
    linalg.qr_factorization(part, r, q, bench.prog)
    groups = [group for cs in bench.graph.compute_sets for group in cs.groups]
    assert groups
    assert all(group.tile.min() >= 8 for group in groups)
    got = bench.run(x, lower, upper, q, r)
    np.testing.assert_allclose(np.tril(values[0]) @ got[0], values[1], atol=1e-5)
    for left, right in (got[1:3], got[3:5]):
        np.testing.assert_allclose(left @ right, values[0], atol=1e-5)
