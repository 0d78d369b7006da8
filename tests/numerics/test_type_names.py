from __future__ import annotations

import numpy as np
import pytest

from abele.errors import TypeMismatchError
from abele.numerics import as_element_type, bool_, f16, f32, i8, i16, i32, i64, u8, u16, u32, u64

NAMES = {
    f32: ["FLOAT", "float", "f32", np.float32, float],
    f16: ["HALF", "half", np.float16],
    i32: ["INT", "int", "int32", int],
    u32: ["UNSIGNED_INT", "unsigned int", "unsigned", "UNSIGNED"],
    bool_: ["BOOL", "bool", bool],
    i8: ["CHAR", "SIGNED_CHAR", "signed char", "char"],
    u8: ["UNSIGNED_CHAR", "unsigned char"],
    i16: ["SHORT", "short"],
    u16: ["UNSIGNED_SHORT", "unsigned short"],
    i64: ["LONGLONG", "long long", np.int64],
    u64: ["UNSIGNED_LONGLONG", "unsigned long long"],
}


@pytest.mark.parametrize(("element", "name"), [(t, n) for t, names in NAMES.items() for n in names])
def test_as_element_type__every_name_of_poplar__is_known(element, name):
    assert as_element_type(name) is element


@pytest.mark.parametrize(
    ("name", "why", "remedy"),
    [
        ("DOUBLE", "no 64-bit floating point", "use f32"),
        ("double", "no 64-bit floating point", "use f32"),
        (np.float64, "no 64-bit floating point", "use f32"),
        ("LONG", "only the host has it", "use i64"),
        ("long", "only the host has it", "use i64"),
        ("UNSIGNED_LONG", "only the host has it", "use u64"),
    ],
)
def test_as_element_type__types_of_the_host__are_refused_with_the_reason(name, why, remedy):
    with pytest.raises(TypeMismatchError, match="is no element type of the machine") as caught:
        as_element_type(name)
    assert caught.value.because is not None
    assert why in caught.value.because
    assert caught.value.remedy == remedy
