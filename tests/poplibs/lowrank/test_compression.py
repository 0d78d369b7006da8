"""Compression keeps its bound, and what it gives multiplies as the matrix does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.poplibs.lowrank import TileLowRank, compress
from abele.poplibs.lowrank.compression import METHODS
from support.examples import examples

Array = np.ndarray[Any, Any]


def smooth(rows: int, columns: int, seed: int = 0) -> Array:
    """Cauchy kernel of points on a line, which overlap."""
    rng = np.random.default_rng(seed)
    x, y = np.sort(rng.random(rows)), np.sort(rng.random(columns))
    return 1 / (1 + 20 * np.abs(x[:, None] - y))


def _matrix(data: st.DataObject) -> Array:
    rows, columns = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 70))
    kind = data.draw(st.sampled_from(["smooth", "random", "zeros", "one block"]))
    seed = data.draw(st.integers(0, 5))
    if kind == "smooth":
        return smooth(rows, columns, seed)
    if kind == "random":
        return np.random.default_rng(seed).standard_normal((rows, columns))
    made = np.zeros((rows, columns))
    if kind == "one block":
        made[rows // 2 :, columns // 2 :] = smooth(rows - rows // 2, columns - columns // 2)
    return made


def _compressed(data: st.DataObject, matrix: Array, **how: Any) -> TileLowRank:
    tile = tuple(data.draw(st.integers(1, side)) for side in matrix.shape)
    return compress(matrix, (tile[0], tile[1]), method=data.draw(st.sampled_from(METHODS)), **how)


@examples(60)
@given(st.data())
def test_compress__any_matrix_and_tolerance__is_within_it(data: st.DataObject) -> None:
    matrix = _matrix(data) * data.draw(st.sampled_from([1e-200, 1e-3, 1.0, 1e150]))
    tolerance = data.draw(st.sampled_from([0.9, 1e-1, 1e-3, 1e-6, 1e-12, 1e-17]))
    found = _compressed(data, matrix, tolerance=tolerance)
    unit = float(np.abs(matrix).max()) or 1.0
    norm, error = (float(np.linalg.norm(m / unit)) for m in (matrix, found.to_dense() - matrix))
    assert error <= tolerance * norm * (1 + 1e-9)
    assert found.norm == pytest.approx(norm * unit)
    assert found.error == pytest.approx(error * unit, rel=1e-6, abs=1e-15 * norm * unit)


@examples(30)
@given(st.data())
def test_multiply__any_vectors__is_the_dense_product(data: st.DataObject) -> None:
    found = _compressed(data, _matrix(data), tolerance=data.draw(st.sampled_from([0.3, 1e-2, 1e-9])))
    leading = data.draw(st.sampled_from([(), (1,), (2, 3)]))
    x = np.random.default_rng(1).standard_normal((*leading, found.shape[1]))
    np.testing.assert_allclose(found.multiply(x), x @ found.to_dense().T, atol=1e-10)


@examples(20)
@given(st.data())
def test_compress__given_rank__no_tile_has_more_and_edges_have_their_own(data: st.DataObject) -> None:
    matrix = _matrix(data)
    tile = tuple(data.draw(st.integers(1, side)) for side in matrix.shape)
    rank = data.draw(st.integers(1, min(tile)))
    found = compress(matrix, (tile[0], tile[1]), rank=rank, method=data.draw(st.sampled_from(METHODS)))
    assert found.ranks.max() <= rank
    full = found.heights[:, None] * found.widths
    low = np.minimum(rank, np.minimum(found.heights[:, None], found.widths))
    np.testing.assert_array_equal(found.is_dense, low * (found.heights[:, None] + found.widths) >= full)
    assert found.num_values <= matrix.size


@pytest.mark.parametrize("method", METHODS)
def test_compress__smaller_tolerances__smaller_errors_and_more_numbers(method: str) -> None:
    matrix = smooth(120, 200)
    found = [compress(matrix, 40, tolerance=10.0**-k, method=method) for k in range(1, 9)]
    errors, sizes = [f.relative_error for f in found], [f.num_values for f in found]
    assert errors == sorted(errors, reverse=True)
    assert sizes == sorted(sizes)
    assert found[3].num_bytes("half") * 2 == found[3].num_bytes("float") < found[3].dense_bytes("float")


def test_compress__randomised__needs_hardly_more_than_whole_decompositions() -> None:
    matrix = smooth(192, 256)
    whole, sketched = (compress(matrix, 64, tolerance=1e-4, method=m) for m in METHODS)
    assert sketched.num_values <= 1.1 * whole.num_values


def test_compress__same_seed__gives_the_same_bits() -> None:
    matrix = smooth(64, 96)
    one, other = (compress(matrix, 32, tolerance=1e-3, method="randomised", seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.u, other.u)


def test_compress__tile_of_two_values__drops_the_smallest_of_all() -> None:
    matrix = np.diag([3.0, 1.0, 0.2, 0.0, 2.0, 0.1, 0.0, 0.0])
    found = compress(matrix, 4, tolerance=0.1)
    assert found.ranks.tolist() == [[2, 0], [0, 0]] or found.is_dense[0, 0]
    assert found.error <= 0.1 * found.norm


def test_repr__a_compressed_matrix__has_its_figures() -> None:
    text = repr(compress(np.eye(12, 16), 4, rank=1))
    assert text.startswith(
        "TileLowRank(12 × 16 in tiles of 4 × 4, mean rank 1.0, 0 of 12 dense, relative error 8.7e-01"
    )
    assert text.endswith("0.50 of dense)")


@pytest.mark.parametrize(
    ("matrix", "tile", "how", "error", "text"),
    [
        (np.ones(3), 1, {"rank": 1}, TensorError, r"a matrix \[rows, columns\], got shape \[3\]"),
        (np.ones((0, 3)), 1, {"rank": 1}, TensorError, r"got shape \[0, 3\]"),
        ([[1.0, np.nan], [np.inf, 1.0]], 1, {"rank": 1}, TensorError, r"2 of 4 are not, the first at \(0, 1\)"),
        (np.ones((2, 2), complex), 1, {"rank": 1}, TypeMismatchError, "np.block"),
        ([["a"]], 1, {"rank": 1}, TypeMismatchError, "real numbers, got <U1"),
        (np.ones((4, 6)), (5, 2), {"rank": 1}, InvalidOptionError, r"tile_size=\(4, 2\) at most"),
        (np.ones((4, 6)), 0, {"rank": 1}, InvalidOptionError, "from 1 on, got 0"),
        (np.ones((4, 6)), (2, 2, 2), {"rank": 1}, InvalidOptionError, "or two"),
        (np.ones((4, 6)), 2.0, {"rank": 1}, InvalidOptionError, "got 2.0"),
        (np.ones((4, 6)), 2, {"rank": 3}, InvalidOptionError, "a tile of 2 × 2 has no higher rank"),
        (np.ones((4, 6)), 2, {"rank": 0}, InvalidOptionError, "from 1 to 2, got 0"),
        (np.ones((4, 6)), 2, {"tolerance": 0.0}, InvalidOptionError, "above 0, got 0.0"),
        (np.ones((4, 6)), 2, {"tolerance": -1e-3}, InvalidOptionError, "above 0"),
        (np.ones((4, 6)), 2, {"tolerance": float("nan")}, InvalidOptionError, "above 0, got nan"),
        (np.ones((4, 6)), 2, {"tolerance": "1e-3"}, InvalidOptionError, "a number"),
        (np.ones((4, 6)), 2, {}, InvalidOptionError, "either tolerance or rank"),
        (np.ones((4, 6)), 2, {"rank": 1, "tolerance": 0.1}, InvalidOptionError, "either tolerance or rank"),
        (np.ones((4, 6)), 2, {"rank": 1, "method": "randomized"}, InvalidOptionError, "did you mean 'randomised'"),
    ],
)
def test_compress__wrong_input__is_named(matrix: Any, tile: Any, how: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        compress(matrix, tile, **how)


def test_multiply__vector_of_another_length__is_named() -> None:
    found = compress(np.ones((4, 6)), 2, rank=1)
    with pytest.raises(TensorError, match=r"\[\.\.\., 6\], got shape \[4\]"):
        found.multiply(np.ones(4))
    with pytest.raises(TypeMismatchError, match="complex128"):
        found.multiply(np.ones(6, complex))
