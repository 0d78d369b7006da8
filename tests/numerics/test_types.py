"""Element types: their widths, arrays as elements of the device, and elements that a type cannot hold."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from abele.numerics import ElementType, bf16, bool_, f16, f32, i8, i32, i64, quarter, u8
from abele.numerics.types import ALL, misfit, to_device


@pytest.mark.parametrize("type_", ALL, ids=str)
def test_element_type__width__is_that_of_its_elements_on_the_host(type_: ElementType) -> None:
    assert type_.bits == 8 * type_.np.itemsize


def test_to_device__whole_numbers__lose_nothing_on_the_way() -> None:
    assert to_device(np.array([2**24 + 1, -(2**24) - 1]), i32).tolist() == [2**24 + 1, -(2**24) - 1]


def test_to_device__elements_of_a_scaled_type__are_not_scaled_again() -> None:
    type_ = quarter("F143", 2)
    assert to_device(np.array([8.0, 16.0]), type_).astype(np.float32).tolist() == [2.0, 4.0]
    elements = np.array([8.0, 16.0], type_.np)
    assert to_device(elements, type_).astype(np.float32).tolist() == [8.0, 16.0]


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1.5, 65504.0], f16),
        ([np.inf, np.nan], f16),
        ([-128, 127], i8),
        ([-128.0, 127.0], i8),
        ([2**64 - 1], f32),
        ([0, 1], bool_),
        ([True, False], i8),
        (np.array([2.0, 3.0], ml_dtypes.bfloat16), u8),
        ([], u8),
    ],
)
def test_misfit__elements_that_fit__is_none(values: Any, type_: ElementType) -> None:
    assert misfit(values, type_) is None


@pytest.mark.parametrize(
    ("values", "type_", "text"),
    [
        ([1.0, 1e6, 1e7], f16, "1000000.0, which is too large"),
        ([0.0, 1e300], bf16, "1e+300, which is too large"),
        ([3, 1000], i8, "1,000, which is not from -128 to 127"),
        ([3, -129], i8, "-129, which is not from -128 to 127"),
        ([127.0, 128.0], i8, "128.0, which is not from -128 to 127"),
        ([1.0, 1.5], i32, "1.5, which is no integer"),
        ([1.0, -1.5], i32, "-1.5, which is no integer"),
        ([1.0, np.inf], i32, "inf, which is no integer"),
        ([2.0**63], i64, "which is not from -9,223,372,036,854,775,808 to 9,223,372,036,854,775,807"),
        ([0, 2], bool_, "2, which is not from 0 to 1"),
        (["a", "b"], f32, "'a', which is no number"),
        (np.array(["a"]), f32, "'a', which is no number"),
        (np.array([object()]), f32, "which is no number"),
    ],
)
def test_misfit__element_that_does_not_fit__is_the_first_with_the_reason(
    values: Any, type_: ElementType, text: str
) -> None:
    found = misfit(values, type_)
    assert found is not None
    assert text in str(found)
