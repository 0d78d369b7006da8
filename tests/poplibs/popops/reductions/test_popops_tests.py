"""Histograms, and tests for numbers that are none, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import Bench

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.numerics import f32, u32
from abele.poplibs import popops

RNG = np.random.default_rng(8)


@pytest.mark.parametrize("num_tiles", [4, 64, 1472])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_has_nan__one_bad_element__is_found(bad: float | None, dtype: str, num_tiles: int) -> None:
    bench = Bench(num_tiles)
    data = RNG.standard_normal((37, 111))
    if bad is not None:
        data[20, 99] = bad
    x = bench.tensor(data, dtype)
    nan = popops.has_nan(bench.graph, x, bench.prog)
    either = popops.has_nan_or_inf(bench.graph, x, bench.prog)
    got = bench.run_both(nan, either)
    assert bool(got[0]) == (bad is not None and np.isnan(bad))
    assert bool(got[1]) == (bad is not None)


def test_has_nan__empty_tensor_and_integers() -> None:
    bench = Bench(4)
    out = popops.has_nan(bench.graph, bench.tensor(np.zeros(0), "f32"), bench.prog)
    assert not bench.run(out)[0]
    with pytest.raises(TypeMismatchError, match="has no elements that could be NaN"):
        popops.has_nan(bench.graph, bench.tensor(np.zeros(3), "i32"), bench.prog)


def _bins(data: np.ndarray, levels: np.ndarray) -> np.ndarray:
    return np.bincount(np.searchsorted(levels, data.ravel(), side="right"), minlength=len(levels) + 1)


@pytest.mark.parametrize("num_tiles", [4, 64])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("levels", [[0.5], [-1.0, -0.25, 0.0, 0.5, 2.0]])
def test_histogram__any_levels__is_numpy(levels: list[float], absolute: bool, dtype: str, num_tiles: int) -> None:
    bench = Bench(num_tiles)
    x, bounds = bench.tensor(RNG.integers(-12, 13, (50, 41)) / 4, dtype), bench.tensor(levels, dtype, 0)
    out = popops.histogram(bench.graph, x, bounds, absolute, bench.prog)
    data = np.abs(bench.data[x]) if absolute else bench.data[x]
    assert out.dtype == u32
    np.testing.assert_array_equal(bench.run_both(out)[0], _bins(data, np.array(levels)))


def test_histogram__float_arithmetic__counts_in_f32() -> None:
    bench = Bench(16)
    x, bounds = bench.tensor(RNG.standard_normal(500), "f32"), bench.tensor([0.0], "f32", 0)
    out = popops.histogram(bench.graph, x, bounds, False, bench.prog, options={"useFloatArithmetic": True})
    assert out.dtype == f32
    np.testing.assert_array_equal(bench.run_both(out)[0], _bins(bench.data[x], np.zeros(1)))


def test_histogram_with_output__update__adds_to_what_is_there() -> None:
    bench = Bench(16)
    x, bounds = bench.tensor(RNG.standard_normal(500), "f32"), bench.tensor([-1.0, 1.0], "f32", 0)
    out = bench.tensor([1, 2, 3], "u32")
    popops.histogram_with_output(bench.graph, x, out, True, bounds, False, bench.prog)
    wanted = _bins(bench.data[x], np.array([-1.0, 1.0])) + np.array([1, 2, 3])
    np.testing.assert_array_equal(bench.run_both(out)[0], wanted)


def test_histogram__wrong_operands__are_named() -> None:
    bench = Bench(4)
    x, bounds = bench.tensor(np.zeros(4), "f32"), bench.tensor([0.0], "f32", 0)
    with pytest.raises(TypeMismatchError, match="takes floats and levels of their type"):
        popops.histogram(bench.graph, bench.tensor(np.zeros(4), "f16"), bounds, False, bench.prog)
    with pytest.raises(TensorError, match="levels are a vector of at least one bound"):
        popops.histogram(bench.graph, x, bounds[0], False, bench.prog)
    with pytest.raises(TensorError, match=r"has shape \[4\], not \[2\]"):
        popops.histogram_with_output(bench.graph, x, x, False, bounds, False, bench.prog)
    with pytest.raises(TypeMismatchError, match="counts are u32 or f32"):
        popops.histogram_with_output(bench.graph, x, bench.tensor([0, 0], "i32"), False, bounds, False, bench.prog)
    with pytest.raises(InvalidOptionError, match="histogram has no option 'useFloat'"):
        popops.histogram(bench.graph, x, bounds, False, bench.prog, options={"useFloat": True})
