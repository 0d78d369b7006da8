"""Narrow floats in IR, held against NumPy, ml_dtypes and gfloat."""

from __future__ import annotations

import numpy as np
import pytest
from elementwise_ir import elementwise
from test_convert import around_every_pattern, same_numbers

from abele.llvm.narrow import narrowed, widened
from abele.numerics import ElementType, bf16, f8_143, f8_152, f16, quarter
from abele.numerics.narrow import round_at_random, round_to_nearest

QUARTERS = [f8_143, f8_152]
NARROW = [f16, bf16, *QUARTERS]
SCALED = [quarter("F143", 3), quarter("F152", -5)]
CODES = np.arange(256, dtype=np.uint8)


def bits(type_: ElementType) -> str:
    return f"uint{type_.bits}"


def values_for(type_: ElementType) -> np.ndarray:
    if type_.bits == 16:
        return around_every_pattern(type_.np)
    values = CODES.view(type_.np).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middle = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    exact = np.concatenate([values, middle])
    up, down = np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))
    far = np.array([1e37, -1e37, np.inf, -np.inf, np.nan, 1e-30, -1e-8, -0.0, 248, 61440], np.float32)
    random = np.random.default_rng(1).normal(0, 30, 1000).astype(np.float32)
    return np.concatenate([exact, up, down, far, random]) * np.float32(2.0**type_.scale)


def same_codes(got: np.ndarray, want: np.ndarray, type_: ElementType) -> bool:
    numbers = [a.view(type_.np).astype(np.float32) for a in (got, want)]
    return bool(((got == want.view(got.dtype)) | (np.isnan(numbers[0]) & np.isnan(numbers[1]))).all())


@pytest.mark.parametrize("type_", [*QUARTERS, *SCALED], ids=str)
@pytest.mark.parametrize("lanes", [1, 16])
def test_widened__every_code__is_exact(type_: ElementType, lanes: int) -> None:
    got = elementwise(lambda b, x: widened(b, x, type_), "float32", CODES, lanes=lanes)
    assert same_numbers(got, np.ldexp(CODES.view(type_.np).astype(np.float32), type_.scale))


@pytest.mark.parametrize("type_", [*NARROW, *SCALED], ids=str)
@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.filterwarnings("ignore:overflow")
def test_narrowed__around_every_code__rounds_to_nearest_even(type_: ElementType, saturate: bool) -> None:
    x = values_for(type_)
    got = elementwise(lambda b, v: narrowed(b, v, type_, saturate=saturate), bits(type_), x)
    assert same_codes(got, round_to_nearest(x, type_, saturate=saturate), type_)
    if not saturate:
        assert same_codes(got, (x * np.float32(2.0**-type_.scale)).astype(type_.np), type_)


@pytest.mark.parametrize("type_", [*NARROW, *SCALED], ids=str)
@pytest.mark.parametrize("saturate", [False, True])
def test_narrowed__random_words__gives_the_bits_of_the_definition(type_: ElementType, saturate: bool) -> None:
    x = values_for(type_)
    words = np.random.default_rng(2).integers(0, 2**32, len(x), dtype=np.uint64).astype(np.uint32)
    got = elementwise(lambda b, v, w: narrowed(b, v, type_, w, saturate=saturate), bits(type_), x, words)
    assert same_codes(got, round_at_random(x, type_, words, saturate=saturate), type_)
