"""Templates, namespaces, inheritance and the C++ library, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from codelet.cpp.conftest import f32, load, run, zeros

FOUND = load("templates.cpp")
RNG = np.random.default_rng(4)


def test_names__of_instances__are_whole_and_without_defaults() -> None:
    names = set(FOUND)
    assert "ops::Binary<ops::Kind::ADD,float>" in names
    assert {"ops::detail::Affine<float,true,3,ops::UP>", "ops::detail::Affine<float,true>"} <= names
    assert {
        "ops::detail::Affine<int,false,2,ops::DOWN>",
        "Cast<unsigned int,float>",
        "Cast<bool,unsigned char>",
    } <= names
    assert not any(n.startswith(("WithData", "Reversed<")) for n in names)
    assert FOUND["ops::detail::Affine<float,true>"] is FOUND["ops::detail::Affine<float,true,3,ops::UP>"]


@pytest.mark.parametrize(
    ("name", "dtype", "function"),
    [
        ("ops::Binary<ops::Kind::ADD,float>", "f4", np.add),
        ("ops::Binary<ops::Kind::SUBTRACT,int>", "i4", np.subtract),
        ("ops::Binary<ops::Kind::MULTIPLY,half>", "f2", np.multiply),
    ],
)
def test_enum_parameter__chooses_the_operation(name: str, dtype: str, function: np.ufunc) -> None:
    a, b = (10 * RNG.standard_normal((2, 50))).astype(dtype)
    np.testing.assert_array_equal(run(FOUND[name], a=a, b=b, out=zeros(50, dtype))["out"], function(a, b))


def test_constraints__are_read() -> None:
    assert [str(c) for c in FOUND["ops::Binary<ops::Kind::ADD,float>"].constraints] == [
        "elem(*a) != elem(*b)",
        "region(*a) != region(*out)",
    ]


def test_method_outside_the_class__with_static_members__computes() -> None:
    x = np.arange(9)
    done = run(FOUND["ops::detail::Affine<float,true>"], data=x.astype("f4"))
    np.testing.assert_array_equal(done["data"], -(3 * x + 5 + 7))
    done = run(FOUND["ops::detail::Affine<int,false,2,ops::DOWN>"], data=x.astype("i4"))
    np.testing.assert_array_equal(done["data"], 2 * x + 5)


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("float,half", "f4", "f2"),
        ("half,float", "f2", "f4"),
        ("unsigned int,float", "u4", "f4"),
        ("float,int", "f4", "i4"),
    ],
)
def test_casts__are_those_of_numpy(name: str, source: str, target: str) -> None:
    x = (100 * RNG.random(40)).astype(source)
    np.testing.assert_array_equal(
        run(FOUND[f"Cast<{name}>"], **{"in": x}, out=zeros(40, target))["out"], x.astype(target)
    )


def test_casts__of_truths__give_0_and_1() -> None:
    x = np.array([True, False, True])
    np.testing.assert_array_equal(
        run(FOUND["Cast<bool,unsigned char>"], **{"in": x}, out=zeros(3, "u1"))["out"], [1, 0, 1]
    )


def test_full_specialisation__has_fields_of_its_own() -> None:
    assert [f.name for f in FOUND["Specialised<half>"].fields] == ["out", "value"]
    assert run(FOUND["Specialised<half>"], out=zeros(1), value=6.5)["out"][0] == 6.5
    assert run(FOUND["Specialised<int>"], out=zeros(1))["out"][0] == 1


def test_inherited_fields__come_first() -> None:
    assert [f.name for f in FOUND["Doubled"].fields] == ["in", "out", "skip"]
    done = run(FOUND["Doubled"], **{"in": f32(1, 2, 3)}, out=zeros(3), skip=1)
    np.testing.assert_array_equal(done["out"], [0, 4, 6])


def test_inherited_compute__of_a_template__is_compiled() -> None:
    assert [f.name for f in FOUND["ReversedInts"].fields] == ["in", "out", "bias"]
    done = run(FOUND["ReversedInts"], **{"in": np.arange(5, dtype="i4")}, out=zeros(5, "i4"), bias=0)
    np.testing.assert_array_equal(done["out"], [4, 3, 2, 1, 0])


def test_lambdas_and_std_array__make_a_histogram() -> None:
    x = RNG.standard_normal(200).astype("f4")
    done = run(FOUND["Histogram"], **{"in": x}, out=zeros(8, "u4"))
    low, scale = x.min(), np.float32(8) / (x.max() - x.min())
    wanted = np.bincount(np.minimum(7, ((x - low) * scale).astype("u4")), minlength=8)
    np.testing.assert_array_equal(done["out"], wanted)


def test_sorting__swaps_in_place() -> None:
    x = RNG.integers(-50, 50, 30).astype("i4")
    np.testing.assert_array_equal(run(FOUND["Sorted"], data=x)["data"], np.sort(x))


def test_math_functions__are_within_a_few_units_of_the_last_place() -> None:
    x = (4 * RNG.standard_normal(64)).astype("f4")
    done = run(FOUND["MathFunctions"], **{"in": x}, out=[zeros(64) for _ in range(9)])
    w = x.astype("f8")
    wanted = [
        np.exp(w),
        np.log(np.abs(w) + 1),
        np.tanh(w),
        np.sqrt(np.abs(w)),
        np.sin(w) + np.cos(w),
        np.abs(w) ** 1.5,
        np.floor(w) + np.ceil(w),
        np.arctan2(w, 2) + np.fmod(w, np.float32(0.7)),
        special.erf(w),
    ]
    for got, right in zip(done["out"], wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6, atol=3e-7)


def test_integers__divide_towards_zero_and_shift() -> None:
    a = RNG.integers(-1000, 1000, 40).astype("i4")
    b = RNG.integers(1, 30, 40).astype("i4") * RNG.choice([-1, 1], 40).astype("i4")
    done = run(FOUND["Integers"], a=a, b=b, out=[zeros(40, "i4") for _ in range(5)])["out"]
    np.testing.assert_array_equal(done[0], np.trunc(a / b).astype("i4"))
    np.testing.assert_array_equal(done[1], np.fmod(a, b))
    np.testing.assert_array_equal(done[2], (a << 3) ^ (b >> 1))
    np.testing.assert_array_equal(done[3], np.clip(a, -5, 5))
    np.testing.assert_array_equal(done[4], np.select([a & 3 == 0, a & 3 == 1, a & 3 == 2], [7, -7, b], 0))


def test_double_constant__exact_in_float__is_float() -> None:
    np.testing.assert_array_equal(run(FOUND["NarrowedConstants"], x=f32(3, -5))["x"], [1.5, -2.5])
