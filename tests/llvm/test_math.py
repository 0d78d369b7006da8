from __future__ import annotations

import math

import numpy as np
import pytest
from elementwise_ir import elementwise
from scipy import special

from abele.llvm import math as functions
from abele.llvm.host import host_cpu
from abele.llvm.math import pow

REFERENCE = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "erf": special.erf,
    "sin": np.sin,
    "cos": np.cos,
}
WITHOUT_FUSED = 1.0
"""Units that are added to limits where the CPU fuses no multiply-add."""
LIMIT = {"exp": 1.0, "log": 1.0, "tanh": 2.0, "sigmoid": 2.5, "erf": 2.5, "sin": 2.0, "cos": 2.0}
EDGES = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -2, 3, -3, 0.5, -0.5, 1e-20, -1e-20], np.float32)


def arguments(name: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**32, 1 << 17, dtype=np.uint64).astype(np.uint32).view(np.float32)
    normal = rng.standard_normal(1 << 17).astype(np.float32)
    x = np.concatenate([bits, normal * 5, normal * 40])
    x = x[np.isfinite(x) & (np.abs(x) >= 2.0**-126)]
    if name in ("sin", "cos"):
        x = x[np.abs(x) < 2.0**30]
    x = np.abs(x) if name == "log" else x
    return x[: len(x) // 16 * 16]


def worst_ulps(got: np.ndarray, want: np.ndarray) -> float:
    rounded = want.astype(np.float32)
    normal = np.isfinite(rounded) & (np.abs(want) >= 2.0**-126)
    return float((np.abs(got - want)[normal] / np.spacing(np.abs(rounded[normal])).astype(np.float64)).max())


@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_function__all_magnitudes__within_stated_ulps_of_float64(name: str) -> None:
    x = arguments(name)
    got = elementwise(getattr(functions, name), "float32", x)
    limit = LIMIT[name] + (0.0 if host_cpu().fuses else WITHOUT_FUSED)
    assert worst_ulps(got, REFERENCE[name](x.astype(np.float64))) <= limit


@pytest.mark.parametrize("name", REFERENCE)
def test_function__vector_of_lanes__same_bits_as_scalar(name: str) -> None:
    x = arguments(name)
    x = x[: x.size // 16 * 16]
    scalar, *wide = (elementwise(getattr(functions, name), "float32", x, lanes=lanes) for lanes in (1, 4, 8, 16))
    assert all(np.array_equal(scalar, result, equal_nan=True) for result in wide)


@pytest.mark.parametrize("name", REFERENCE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_function__edges__as_ieee754_says(name: str) -> None:
    got = elementwise(getattr(functions, name), "float32", EDGES)
    want = REFERENCE[name](EDGES.astype(np.float64))
    assert np.allclose(got, want, rtol=3e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_circular_function__beside_quarters_of_a_turn__within_stated_ulps(name: str) -> None:
    quarters = (np.arange(1, 5300) * (np.pi / 2)).astype(np.float32)
    x = (quarters.view(np.int32)[:, None] + np.arange(-3, 4, dtype=np.int32)).view(np.float32).ravel()
    x = x[: x.size // 16 * 16]
    limit = LIMIT[name] + (0.0 if host_cpu().fuses else WITHOUT_FUSED)
    got, want = elementwise(getattr(functions, name), "float32", x), REFERENCE[name](x.astype(np.float64))
    assert worst_ulps(got, want) <= limit


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_circular_function__beyond_its_range__stays_within_one(name: str) -> None:
    x = np.geomspace(2.0**30, 3e38, 4096, dtype=np.float32)
    assert np.abs(elementwise(getattr(functions, name), "float32", x)).max() <= 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_pow__positive_base__within_one_ulp_of_float64() -> None:
    rng = np.random.default_rng(1)
    x = np.exp(rng.standard_normal(1 << 16) * 3).astype(np.float32)
    y = (rng.standard_normal(1 << 16) * 5).astype(np.float32)
    assert worst_ulps(elementwise(pow, "float32", x, y), np.power(x.astype(np.float64), y)) < 1.0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_pow__edges__as_ieee754_says() -> None:
    x, y = (grid.ravel() for grid in np.meshgrid(EDGES, EDGES))
    got = elementwise(pow, "float32", x, y)
    want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    assert np.allclose(got, want, rtol=2e-7, atol=0, equal_nan=True)


def test_pow__half__is_close_to_sqrt() -> None:
    x = np.array([2.0, 9.0, 1e10], np.float32)
    assert elementwise(pow, "float32", x, np.full(3, 0.5, np.float32)).tolist() == [np.float32(math.sqrt(v)) for v in x]
