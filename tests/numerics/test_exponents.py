"""Histograms of exponents by bits, against logarithms in double precision; 8-bit floats by squared error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from abele.errors import TypeMismatchError
from abele.numerics import bf16, f8_143, quarter, to_device, to_host
from abele.numerics.exponents import (
    HIGHEST_OCTAVE,
    LOWEST_OCTAVE,
    ExponentCounts,
    count_exponents,
    quarter_for,
)


def by_logarithm(array: np.ndarray) -> dict[int, int]:
    wide = np.abs(array.astype(np.float64).reshape(-1))
    wide = wide[np.isfinite(wide) & (wide > 0)]
    octave = np.maximum(np.floor(np.log2(wide)).astype(int), LOWEST_OCTAVE)
    found, times = np.unique(octave, return_counts=True)
    return dict(zip(found.tolist(), times.tolist(), strict=True))


def held(counts: ExponentCounts) -> dict[int, int]:
    (at,) = np.nonzero(counts.octaves)
    return {int(k) + LOWEST_OCTAVE: int(counts.octaves[k]) for k in at}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1000,), (7, 11, 13), (1,), ()])
def test_count__values_of_many_sizes__are_those_of_logarithms(dtype: type, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    array = np.asarray(rng.normal(size=shape) * np.exp2(rng.integers(-20, 14, size=shape)), dtype)
    counts = count_exponents(array)
    assert held(counts) == by_logarithm(array)
    assert counts.elements == array.size
    # float64 is counted as the float32 that it becomes.
    assert counts.largest == float(np.abs(array if dtype == np.float16 else array.astype(np.float32)).max())


def test_count__special_values__are_told_apart() -> None:
    array = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 65504, 65505, -1e30, 2**-14, 2**-15], np.float32
    )
    counts = count_exponents(array)
    assert (counts.zeros, counts.infinities, counts.nans, counts.above_f16) == (2, 2, 1, 2)
    assert counts.octaves[0] == 2
    assert counts.subnormals_f16 == 3
    assert counts.largest == np.float32(1e30)
    assert counts.elements == len(array)


def test_count__every_f16__is_counted_as_what_it_is() -> None:
    array = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    counts = count_exponents(array)
    assert (counts.zeros, counts.infinities, counts.nans) == (2, 2, 2046)
    assert held(counts) == by_logarithm(array)
    assert (counts.above_f16, counts.largest) == (0, 65504.0)
    assert counts.subnormals_f16 == 2 * 1023


def test_count__narrow_types__are_those_of_their_values() -> None:
    values = np.float32([0.5, 3.0, -240.0, 0.0])
    for type_ in (bf16, f8_143):
        assert held(count_exponents(to_device(values, type_))) == {-1: 1, 1: 1, 7: 1}


def test_count__views__need_not_be_contiguous() -> None:
    array = np.arange(1.0, 101.0, dtype=np.float32).reshape(10, 10)
    assert held(count_exponents(array.T[::2])) == by_logarithm(array.T[::2])


def test_count__nothing__is_empty() -> None:
    counts = count_exponents(np.zeros((0, 4), np.float32))
    assert (counts.elements, counts.largest) == (0, 0.0)
    assert quarter_for(counts) is None


@pytest.mark.parametrize("array", [np.arange(4), np.array(["a"]), np.array([True]), np.array([1j])])
def test_count__no_floats__are_refused(array: np.ndarray) -> None:
    with pytest.raises(TypeMismatchError, match="have no exponents"):
        count_exponents(array)


def test_count__float64_beyond_float32__is_infinite() -> None:
    assert count_exponents(np.array([1e300, 1e-300])).infinities == 1


@given(hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32)))
def test_count__any_array__counts_each_element_once_and_adds_up(array: np.ndarray) -> None:
    counts = count_exponents(array)
    assert counts.elements == array.size
    assert held(counts) == by_logarithm(array)
    cut = len(array) // 3
    parts = count_exponents(array[:cut]) + count_exponents(array[cut:])
    assert np.array_equal(parts.octaves, counts.octaves)
    assert (parts.zeros, parts.nans, parts.infinities) == (counts.zeros, counts.nans, counts.infinities)
    assert (parts.above_f16, parts.largest) == (counts.above_f16, counts.largest)


def direct_error(values: np.ndarray, format_: str, scale: int) -> float:
    """Squared error of an array itself, too large values becoming the largest."""
    most = {"F143": 240.0, "F152": 57344.0}[format_]
    scaled = np.clip(np.ldexp(values.astype(np.float64), scale), -most, most).astype(np.float32)
    rounded = np.ldexp(to_host(to_device(scaled, quarter(format_))).astype(np.float64), -scale)
    return float(np.mean((rounded - values) ** 2))


@pytest.mark.parametrize("spread", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("size", [2.0**-20, 1.0, 2.0**14])
def test_quarter_for__arrays__comes_near_the_least_squared_error_of_all_formats_and_scales(
    spread: float, size: float
) -> None:
    rng = np.random.default_rng(5)
    values = (rng.normal(size=20_000) * np.exp2(rng.normal(size=20_000) * spread) * size).astype(np.float32)
    choice = quarter_for(count_exponents(values))
    assert choice is not None
    errors = {(f, s): direct_error(values, f, s) for f in ("F143", "F152") for s in range(-31, 32)}
    # The histogram does not know where in its octave a value lies.
    assert errors[choice.format, choice.scale] <= 1.15 * min(errors.values())
    found = (errors[choice.format, choice.scale] / float(np.mean(values.astype(np.float64) ** 2))) ** 0.5
    if spread < 6:
        # Further out a single value, which its octave's mean does not tell, decides.
        assert choice.relative_error == pytest.approx(found, rel=0.3)
    assert choice.type.scale == -choice.scale


def test_quarter_for__wide_spread__is_never_wider_than_needed() -> None:
    """Numbers of one octave: most bits of fraction, and the octave anywhere in the format's normal range."""
    choice = quarter_for(count_exponents(np.linspace(1, 1.999, 4096, dtype=np.float32)))
    assert choice is not None
    assert choice.format == "F143"
    # The least normal number of F143 is 2**-7; of equal errors the least scale wins.
    assert choice.scale == -7


def test_quarter_for__far_octaves__are_no_overflow() -> None:
    for power in (-126, -60, 60, 127):
        choice = quarter_for(count_exponents(np.ldexp(np.float32([1.0, 1.5, 1.25]), power).astype(np.float32)))
        assert choice is not None
        assert 0 <= choice.relative_error <= 1
    assert HIGHEST_OCTAVE == 127


def test_quarter_for__only_one_format__is_that() -> None:
    counts = count_exponents(np.random.default_rng(1).normal(size=1000))
    choice = quarter_for(counts, ("F152",))
    assert choice is not None
    assert choice.format == "F152"
