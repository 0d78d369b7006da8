"""Narrow floats: their codes, and rounding into them."""

from __future__ import annotations

import gfloat
import numpy as np
import pytest
from gfloat.formats import format_info_binary16
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TypeMismatchError
from abele.numerics import (
    ElementType,
    as_element_type,
    bf16,
    f8_143,
    f8_152,
    f16,
    f32,
    quarter,
    to_device,
    to_host,
)
from abele.numerics.narrow import format_of, round_at_random, round_to_nearest
from support.examples import examples
from support.quarters import fnuz

NARROW = [f16, bf16, f8_143, f8_152]
CODES = np.arange(256, dtype=np.uint8)


def numbers_of(type_: ElementType) -> np.ndarray:
    """All finite numbers of a narrow float, f32, sorted."""
    codes = np.arange(1 << type_.bits, dtype=np.uint64).astype(np.uint16 if type_.bits == 16 else np.uint8)
    elements = codes.view(type_.np)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return np.unique(to_host(elements[np.isfinite(elements)]).astype(np.float32))


@pytest.mark.parametrize(("type_", "bias"), [(f8_143, 8), (f8_152, 16)])
def test_quarter__every_code__means_what_its_bits_say(type_: ElementType, bias: int) -> None:
    fraction = 3 if type_ == f8_143 else 2
    for code in range(256):
        exponent, rest = (code & 0x7F) >> fraction, code & ((1 << fraction) - 1)
        size = (
            rest * 2.0 ** (1 - bias - fraction)
            if exponent == 0
            else (1 + rest / 2**fraction) * 2.0 ** (exponent - bias)
        )
        got = to_host(np.array([code], np.uint8).view(type_.np))[0]
        assert np.isnan(got) if code == 0x80 else got == (-size if code > 0x80 else size)
    assert format_of(type_).largest == (240.0 if type_ == f8_143 else 57344.0)


@pytest.mark.parametrize("type_", [f8_143, f8_152], ids=str)
def test_quarter__every_code__is_gfloats(type_: ElementType) -> None:
    info = fnuz(type_)
    for code in range(256):
        want, got = gfloat.decode_float(info, code).fval, float(to_host(CODES[code : code + 1].view(type_.np))[0])
        assert (np.isnan(want) and np.isnan(got)) or want == got


@pytest.mark.parametrize("type_", [f8_143, f8_152], ids=str)
@examples(30)
@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-1e5, max_value=1e5))
def test_round_to_nearest__any_value_in_range__is_gfloats(type_: ElementType, value: float) -> None:
    largest = format_of(type_).largest
    if abs(value) > largest:
        assert float(to_host(round_to_nearest([value], type_, saturate=True))[0]) == np.copysign(largest, value)
        return
    want = gfloat.round_float(fnuz(type_), value, gfloat.RoundMode.TiesToEven)
    assert float(to_host(round_to_nearest([value], type_))[0]) == want


def test_round_to_nearest__f16__is_gfloats() -> None:
    values = np.random.default_rng(0).normal(0, 1e-4, 200).astype(np.float32)
    want = [gfloat.round_float(format_info_binary16, float(v), gfloat.RoundMode.TiesToEven) for v in values]
    np.testing.assert_array_equal(round_to_nearest(values, f16).astype(np.float64), want)


@pytest.mark.parametrize("type_", NARROW, ids=str)
@examples(12)
@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_round_at_random__any_value__is_one_of_its_two_neighbours(type_: ElementType, value: float) -> None:
    x = np.full(64, np.clip(value, -200, 200), np.float32)
    words = np.random.default_rng(3).integers(0, 2**32, 64, dtype=np.uint64).astype(np.uint32)
    got = to_host(round_at_random(x, type_, words)).astype(np.float64)
    near = float(to_host(round_to_nearest(x[:1], type_))[0])
    numbers = numbers_of(type_).astype(np.float64)
    below, above = numbers[numbers <= x[0]].max(), numbers[numbers >= x[0]].min()
    assert near in (below, above)
    assert set(got.tolist()) <= {below, above}


@pytest.mark.parametrize("type_", NARROW, ids=str)
def test_round_at_random__beyond_the_largest__is_what_rounding_to_nearest_gives(type_: ElementType) -> None:
    assert format_of(type_).largest == numbers_of(type_).max()
    values = np.array([np.inf, -np.inf, np.nan, 3e38 if type_ is not bf16 else np.inf], np.float32)
    found = to_host(round_at_random(values, type_, np.zeros(4, np.uint32)))
    np.testing.assert_array_equal(found, to_host(round_to_nearest(values, type_)))


@pytest.mark.parametrize("type_", NARROW, ids=str)
@pytest.mark.parametrize("value", [1.0 + 1e-4, -0.3, 3.14159, 1.7e-3, 2.3e-7])
def test_round_at_random__many_times__keeps_the_mean(type_: ElementType, value: float) -> None:
    count = 1 << 18
    x = np.full(count, value, np.float32)
    words = np.random.default_rng(4).integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    got = to_host(round_at_random(x, type_, words)).astype(np.float64)
    spread = got.max() - got.min()
    assert abs(got.mean() - float(x[0])) <= 5 * spread / 2 / np.sqrt(count) + 1e-12 * abs(value) + 2.0**-24 * spread


@pytest.mark.parametrize("type_", NARROW, ids=str)
def test_round_at_random__numbers_of_the_type__stay(type_: ElementType) -> None:
    numbers = numbers_of(type_)
    numbers = numbers[(np.abs(numbers) >= 2.0**-126) | (numbers == 0)]
    words = np.full(len(numbers), 0xFFFFFFFF, np.uint32)
    np.testing.assert_array_equal(to_host(round_at_random(numbers, type_, words)), numbers)


def test_quarter__with_a_scale__stands_for_scaled_numbers() -> None:
    type_ = quarter("F143", 4)
    values = np.array([1000.0, 3840.0, 17.0, -2.5], np.float32)
    np.testing.assert_array_equal(to_host(to_device(values, type_), type_), [1024.0, 3840.0, 16.0, -2.5])
    assert (type_.bytes, type_.poplar_name, type_.scale) == (1, "quarter", 4)
    assert as_element_type(type_.name) == type_
    assert type_ != f8_143
    assert quarter("F152", 0) == f8_152


def test_quarter__of_numbers_beyond_its_range__is_nan() -> None:
    assert np.isnan(to_host(to_device([250.0, 1e9, -np.inf, np.nan], f8_143))).all()


def test_quarter__of_a_wrong_format_or_scale__is_refused() -> None:
    with pytest.raises(TypeMismatchError, match="is no format of 8-bit floats"):
        quarter("half")
    with pytest.raises(TypeMismatchError, match=r"cannot be scaled by 2\^40"):
        quarter("F143", 40)


def test_names__of_narrow_floats__are_known() -> None:
    assert as_element_type("quarter") == as_element_type("F143") == f8_143
    assert as_element_type("F152") == as_element_type(f8_152.np) == f8_152
    assert f8_143.is_quarter
    assert not f16.is_quarter
    assert [t.is_narrow for t in (f32, f16, bf16, f8_143)] == [False, True, True, True]
